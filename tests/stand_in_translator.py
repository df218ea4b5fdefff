"""A translator without a model. It writes in upper case, so that everything that it translated is seen at once."""

from tiny_marian import tiny_model, tiny_tokenizer

from hf_capsule_mt.translation.generation.decoder import Decoded
from hf_capsule_mt.translation.text_translator import TextTranslator


def in_order(source, target):
    """Word i of one side belongs to word i of the other."""
    return [[float(i == j) for j in range(len(source))] for i in range(len(target))]


def upper(segment):
    """Return the text of a segment in upper case, but for its kept parts, which a good model copies."""
    characters = list(segment.text.upper())
    for word in getattr(segment, "kept", {}):
        start, end = segment.words[word]
        characters[start:end] = segment.text[start:end]
    return "".join(characters)


class UpperCase(TextTranslator):
    """Translates "a dog" into "A DOG". `seen` are the sentences that it read."""

    def __init__(self):
        super().__init__(tiny_model(), tiny_tokenizer())
        self.seen = []

    def decode_batches(self, sentences, batches, **options):
        for batch in batches:
            translations = {}
            for index in batch:
                segment = sentences[index].segment
                self.seen.append(segment.text)
                translations[index] = (Decoded([], text=upper(segment)),)
            yield translations

    def align(self, sentence, decoded, clean_up):
        return in_order


class Copies(UpperCase):
    """Translates "a dog" into "a dog"."""

    def decode_batches(self, sentences, batches, **options):
        for batch in batches:
            yield {index: (Decoded([], text=sentences[index].segment.text),) for index in batch}


class Writes(UpperCase):
    """Writes one text, whatever it reads."""

    def __init__(self, text):
        super().__init__()
        self._text = text

    def decode_batches(self, sentences, batches, **options):
        for batch in super().decode_batches(sentences, batches, **options):
            yield {index: (Decoded([], text=self._text),) for index in batch}
