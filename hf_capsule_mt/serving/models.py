"""The models of a server: one for each pair of languages, and how their texts are prepared."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from hf_capsule_mt.data.languages import ONE_PAIR, Direction
from hf_capsule_mt.decoding import UnsupportedModelError, adapter_for
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.generation.model_options import DecodingOptions
from hf_capsule_mt.translation.generation.settings import engine_takes, settings_of
from hf_capsule_mt.translation.preparation import TextOptions, TooLong, TooLongError
from hf_capsule_mt.translation.tags.markup import Run
from hf_capsule_mt.translation.tags.placement import Node
from hf_capsule_mt.translation.text.segments import Segment, check_language, language_code
from hf_capsule_mt.translation.text_translator import TextTranslator
from hf_capsule_mt.translation.translation import PreparedText

from .queue.batcher import Decode

MOST_ELEMENTS = 100
"""The most inline elements of a sentence. Putting them back takes time that grows faster than their number."""


@dataclass(frozen=True)
class ServedModel:
    """A model that translates one pair of languages."""

    source: str
    target: str
    translator: TextTranslator
    decode: Decode
    sentence_language: str | None  # Two letters, for finding sentences. None if nobody knows its sentences.
    direction: Direction = ONE_PAIR  # What the tokenizer is told of the languages.
    obeys_glossaries: bool = True  # Only the decoder engine of this package does.
    num_beams: int = 1

    @property
    def name(self) -> str:
        """The pair, such as en-de."""
        return f"{self.source}-{self.target}"

    def prepare(
        self, text: str, options: TextOptions | None = None, markup: Sequence[Run] | None = None
    ) -> PreparedText:
        """Prepare a text. Its sentences are found by the language of the model.

        Args:
            text: the text.
            options: how it is read. By default it is plain text, in which each line is cut by itself.
            markup: what was read of its tags, if it is of a file.

        Raises:
            UserError: if a tag is wrong, or a sentence is too long or has too many elements.
        """
        options = replace(options or TextOptions(split="lines"), language=self.sentence_language)
        if options.tags and options.split == "lines":
            # A tag may end in another line.
            options = replace(options, split="paragraphs")
        try:
            prepared = self.translator.reader.prepare(
                text, options, direction=self.direction, too_long=TooLong.SPLIT, markup=markup
            )
        except TooLongError as error:
            raise UserError("A sentence is too long for the model, and it cannot be cut.") from error
        for sentence in prepared.sentences:
            if _count_elements(sentence.segment) > MOST_ELEMENTS:
                raise UserError(f"A sentence has over {MOST_ELEMENTS} tags or kept parts.")
        return prepared


def load_models(specifications: Sequence[str], decoding: DecodingOptions, device: torch.device) -> list[ServedModel]:
    """Load the models of a server.

    Args:
        specifications: such as `en-de=Helsinki-NLP/opus-mt-en-de`, or `en-pt=NAME:pt_BR` where the model names its
            target language otherwise, or `en-de=NAME:eng_Latn:deu_Latn` for both languages. Pairs of one model share
            its weights.
        decoding: how all of them decode. Its model is not used.
        device: where they are.

    Raises:
        OSError: if there is no such checkpoint.
        UserError: if a specification is wrong, or a model has no such language.
    """
    models: dict[str, ServedModel] = {}
    loaded: dict[str, tuple[TextTranslator, Decode]] = {}
    for specification in specifications:
        parsed = _parsed(specification)
        if parsed.checkpoint not in loaded:
            loaded[parsed.checkpoint] = _loaded(parsed.checkpoint, decoding, device)
        translator, decode = loaded[parsed.checkpoint]

        settings = settings_of(translator.model, decoding.generate_options())
        model = ServedModel(
            parsed.source,
            parsed.target,
            translator,
            decode,
            _sentence_language(parsed.source),
            _direction(parsed, translator),
            obeys_glossaries=_obeys_glossaries(translator.model, decoding),
            num_beams=settings.num_beams or 1,
        )

        if model.name in models:
            raise UserError(f"--models names two models for {model.name}. Name one.")
        models[model.name] = model
    return [*models.values()]


class _Specification(NamedTuple):
    source: str
    target: str
    checkpoint: str
    own_source: str  # The model's own names for both languages.
    own_target: str


def _parsed(specification: str) -> _Specification:
    pair, _, name = specification.partition("=")
    source, _, target = pair.partition("-")
    if not (source and target and name):
        raise UserError(f"--models: {specification!r} is no pair with its model. Write en-de=NAME.")
    name, own_target = _without_language(name)
    name, own_source = _without_language(name)
    if own_source is None:
        return _Specification(source, target, name, source, own_target or target)
    return _Specification(source, target, name, own_source, own_target)


def _without_language(name: str) -> tuple[str, str | None]:
    """Return what is before the last colon, and the language after it, or None."""
    before, colon, language = name.rpartition(":")
    # A folder of Windows has a colon too.
    if not colon or "/" in language or "\\" in language:
        return name, None
    return before, language


def _loaded(name: str, decoding: DecodingOptions, device: torch.device) -> tuple[TextTranslator, Decode]:
    options = replace(decoding, model=name).pinned()
    # A decoder-only model is refused before its weights are read.
    options.config()
    translator = TextTranslator(*options.load(device))
    return translator, partial(translator.decode, **options.generate_options())


def _obeys_glossaries(model: PreTrainedModel, decoding: DecodingOptions) -> bool:
    """Return whether a model is decoded by the engine that can write terms."""
    if decoding.engine == "transformers":
        return False
    try:
        adapter_for(model)
    except UnsupportedModelError:
        return False
    options = decoding.generate_options()
    return engine_takes(settings_of(model, options), options)


def _direction(parsed: _Specification, translator: TextTranslator) -> Direction:
    """Return what the tokenizer is told of the languages."""
    languages = translator.reader.languages
    names = ("the source language in --models", "the target language in --models")
    if languages.are_arguments:
        return languages.direction(parsed.own_source, parsed.own_target, names)
    if languages.codes:
        return languages.direction(None, parsed.own_target, names)
    return ONE_PAIR


def _sentence_language(source: str) -> str | None:
    """Return the two letters of a language whose sentences can be found, or None."""
    try:
        language = language_code(source)
        check_language(language)
    except UserError:
        return None
    return language


def _count_elements(segment: Segment) -> int:
    root = getattr(segment, "root", None)
    return 0 if root is None else _count_below(root)


def _count_below(node: Node) -> int:
    return sum(1 + _count_below(child) for child in node.children)
