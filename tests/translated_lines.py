"""Lines of text, translated by what commands, pipeline and server translate with."""

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import cut_lines, source_limit, tokenize_lines
from hf_capsule_mt.data.lines import unbroken
from hf_capsule_mt.translation.generation.decoder import Decoder
from hf_capsule_mt.translation.portable_pipeline import copied


def translate_lines(model, tokenizer, lines, *, max_tokens_per_batch=4096, **options):
    """Return the translation of every line. A line without letters is copied."""
    limit = source_limit(model.config, tokenizer)
    encoded = tokenize_lines(tokenizer, lines, limit)
    texts = [""] * len(lines)
    for index, line in enumerate(lines):
        copy = copied(line)
        if copy is not None:
            texts[index] = copy
            encoded[index] = []
    cut_lines(tokenizer, lines, encoded, limit)
    decoder = Decoder(model, tokenizer, **options)
    for batch in batch_by_tokens([len(ids) for ids in encoded], max_tokens_per_batch):
        decoded = decoder.decode([encoded[index] for index in batch])
        written = tokenizer.batch_decode([ranked[0].token_ids for ranked in decoded], skip_special_tokens=True)
        for index, text in zip(batch, written, strict=True):
            texts[index] = text
    return unbroken(texts, "translations")


def decoded_batches(model, encoded, batches, num_return_sequences=1, **options):
    """Yield each batch with its translations, those of a sentence one after the other."""
    decoder = Decoder(model, **options)
    for batch in batches:
        decoded = decoder.decode([encoded[index] for index in batch], num_return_sequences)
        yield batch, [one for ranked in decoded for one in ranked]
