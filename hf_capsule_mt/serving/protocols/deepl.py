"""The protocol of DeepL, version 2: what its clients send, and the answers that they read."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request

from hf_capsule_mt.translation.preparation import TextOptions
from hf_capsule_mt.translation.terms.glossary import Glossary

from ..detection import LanguageDetector
from ..endpoints import Logged
from ..glossaries import GlossaryStore
from ..jobs import ClientJob, SourceText, TranslatedText
from ..languages import name_of_language
from ..models import ServedModel
from ..requests import Fields, RequestError, check_known
from .libretranslate import required_model

_SPLITS = {"0": "never", "1": "lines", "nonewlines": "paragraphs"}
_REFUSED = frozenset(
    {
        "splitting_tags",
        "non_splitting_tags",
        "style_id",
        "custom_instructions",
        "translation_memory_id",
        "translation_memory_threshold",
    }
)
"""Fields that change translations, and that this server does not have. Empty ones are taken."""
_WITHOUT_EFFECT = frozenset(
    {
        "context",
        "model_type",
        "preserve_formatting",
        "outline_detection",
        "tag_handling_version",
        "show_billed_characters",
        "auth_key",
    }
)
_FIELDS = frozenset(
    {
        "text",
        "source_lang",
        "target_lang",
        "split_sentences",
        "tag_handling",
        "ignore_tags",
        "formality",
        "glossary_id",
        "glossary_ids",
    }
)
_FIELDS_OF_DOCUMENT = frozenset(
    {
        "source_lang",
        "target_lang",
        "filename",
        "output_format",
        "formality",
        "glossary_id",
        "glossary_ids",
        "auth_key",
    }
)
_NO_LIMIT = 1_000_000_000_000
_PREFIX = "DeepL-Auth-Key "
FieldsOfKey = Callable[[Request, Logged], Awaitable[Fields]]
"""Reads the fields of a request, and notes the owner of its key."""


def job(
    fields: Fields, models: Sequence[ServedModel], detector: LanguageDetector, glossaries: GlossaryStore, owner: str
) -> ClientJob:
    """Return what a client asks for.

    Args:
        fields: what it sent.
        models: of the server.
        detector: finds the language of texts for which none is named.
        glossaries: of all clients.
        owner: of the client's key.

    Raises:
        RequestError: if a field is missing or wrong, asks for what the server has not, or names no pair of languages.
    """
    check_known(fields, _FIELDS | _REFUSED | _WITHOUT_EFFECT)
    texts = _texts(fields)
    _check_refused(fields)
    source, target = _languages(fields)
    reading = _reading(fields, _glossary(fields, source, target, glossaries, owner))
    named_model = required_model(source, target, models) if source else None
    sources = []
    for text in texts:
        model = named_model or required_model(detector.best(text).language, target, models)
        sources.append(SourceText(text, model, reading))
    return ClientJob(sources)


def model_and_glossary(
    fields: Fields, models: Sequence[ServedModel], detector: LanguageDetector, glossaries: GlossaryStore, owner: str
) -> tuple[ServedModel, Glossary | None]:
    """Return the model that translates a document, and the terms that its translation must have.

    Args:
        fields: what the client sent.
        models: of the server.
        detector: knows the language of documents, if there is only one.
        glossaries: of all clients.
        owner: of the client's key.

    Raises:
        RequestError: as [`job`] does.
    """
    _check_refused(fields)
    source, target = _languages(fields)
    glossary = _glossary(fields, source, target, glossaries, owner)
    return required_model(source or detector.only_language(), target, models), glossary


def check_fields_of_document(fields: Fields, suffix: str) -> None:
    """Refuse fields that are not for documents.

    Args:
        fields: what a client sent.
        suffix: the ending of the document, such as ".md".

    Raises:
        RequestError: if there is such a field, or another format is asked for.
    """
    check_known(fields, _FIELDS_OF_DOCUMENT | _REFUSED)
    output_format = fields.get("output_format")
    if output_format and f".{output_format}".lower() != suffix.lower():
        raise RequestError(400, "'output_format' is only supported with the format of the file.")


def answer(asked: ClientJob, translated: Sequence[TranslatedText]) -> dict[str, Any]:
    """Return the answer to a job."""
    entries = []
    for source, text in zip(asked.sources, translated, strict=True):
        entries.append(
            {
                "detected_source_language": source.model.source.upper(),
                "text": text.text,
                # Clients read it, whether they asked for it or not.
                "billed_characters": len(source.text),
            }
        )
    return {"translations": entries}


def languages(fields: Fields, models: Sequence[ServedModel]) -> list[dict[str, Any]]:
    """Return the source or target languages."""
    kind = fields.get("type", "source")
    if kind not in ("source", "target"):
        raise RequestError(400, "Value for 'type' not supported.")
    codes = [getattr(model, kind) for model in models]
    entries = []
    for code in dict.fromkeys(codes):
        entries.append({"language": code.upper(), "name": name_of_language(code), "supports_formality": False})
    return entries


def usage(characters: int) -> dict[str, int]:
    """Return the characters that were translated. There is no limit."""
    return {"character_count": characters, "character_limit": _NO_LIMIT}


def key_of(fields: Fields, authorization: str) -> str | None:
    """Return the key of a client, from its header or, in old clients, from a field."""
    if authorization.startswith(_PREFIX):
        return authorization.removeprefix(_PREFIX).strip()
    key = fields.get("auth_key")
    return key if isinstance(key, str) else None


def _texts(fields: Fields) -> list[str]:
    texts = fields.get("text")
    if isinstance(texts, str):
        texts = [texts]
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise RequestError(400, "Parameter 'text' not specified.")
    return texts


def _check_refused(fields: Fields) -> None:
    if fields.get("formality") in ("more", "less"):
        raise RequestError(400, "'formality' is not supported. Use prefer_more or prefer_less to go on without it.")
    for name in sorted(_REFUSED):
        if fields.get(name):
            raise RequestError(400, f"'{name}' is not supported.")


def _ignored_tags(fields: Fields, has_tags: bool) -> frozenset[str]:
    """Return the names of elements whose words are not translated."""
    names = fields.get("ignore_tags") or []
    if isinstance(names, str):
        names = names.split(",")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RequestError(400, "Value for 'ignore_tags' not supported.")
    if names and not has_tags:
        raise RequestError(400, "'ignore_tags' needs 'tag_handling'.")
    return frozenset(name.strip().lower() for name in names)


def _glossary(
    fields: Fields, source: str | None, target: str, glossaries: GlossaryStore, owner: str
) -> Glossary | None:
    """Return the terms that a client wants in its translations, or None if it names no glossary."""
    number = fields.get("glossary_id")
    several = fields.get("glossary_ids")
    if several:
        several = several.split(",") if isinstance(several, str) else several
        if number or not isinstance(several, list) or len(several) > 1:
            raise RequestError(400, "'glossary_ids' is only supported with one glossary, and without 'glossary_id'.")
        [number] = several
    if not number:
        return None
    if not isinstance(number, str):
        raise RequestError(400, "Value for 'glossary_id' not supported.")
    if source is None:
        raise RequestError(400, "'source_lang' is needed with a glossary.")
    return glossaries.find(owner, number).dictionary(source, target).glossary


def _languages(fields: Fields) -> tuple[str | None, str]:
    """Return the languages that a client names."""
    source = fields.get("source_lang") or None
    target = fields.get("target_lang")
    if not isinstance(target, str) or not target:
        raise RequestError(400, "Value for 'target_lang' not supported.")
    if source is not None and not isinstance(source, str):
        raise RequestError(400, "Value for 'source_lang' not supported.")
    return source, target


def _reading(fields: Fields, glossary: Glossary | None) -> TextOptions:
    """Return how the texts of a request are read."""
    tags = fields.get("tag_handling") or ""
    if tags not in ("", "xml", "html"):
        raise RequestError(400, "Value for 'tag_handling' not supported.")
    split = fields.get("split_sentences")
    if split in (None, ""):
        split = "nonewlines" if tags == "html" else "1"
    # Clients write 0 and 1 as texts or as numbers.
    split = str(split)
    if split not in _SPLITS:
        raise RequestError(400, "Value for 'split_sentences' not supported.")
    ignored_tags = _ignored_tags(fields, bool(tags))
    return TextOptions(tags=bool(tags), ignored_tags=ignored_tags, split=_SPLITS[split], glossary=glossary)
