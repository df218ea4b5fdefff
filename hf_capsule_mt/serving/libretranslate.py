"""The protocol of LibreTranslate: what its clients send, and the answers that they read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .jobs import Job, SourceText, TranslatedText
from .languages import name_of_language
from .models import Reading, ServedModel, find_model
from .requests import Fields, RequestError, check_known

_FIELDS = frozenset(("q", "source", "target", "format", "alternatives", "api_key", "secret"))
"""`secret` is what LibreTranslate's own page sends."""
_FIELDS_OF_FILE = frozenset(("source", "target", "api_key", "secret"))


@dataclass(frozen=True)
class LibreTranslateJob(Job):
    """What a client of LibreTranslate asks for."""

    is_list: bool  # Whether it sent a list, and reads one.
    is_detected: bool  # Whether it wants to know the source language.
    wants_alternatives: bool


def job(fields: Fields, models: Sequence[ServedModel]) -> LibreTranslateJob:
    """Return what a client asks for.

    Raises:
        RequestError: if a field is missing or wrong, or there is no such pair of languages.
    """
    check_known(fields, _FIELDS)
    texts, is_list = _texts(fields)
    source = _text(fields, "source")
    target = _text(fields, "target")
    kind = fields.get("format", "text")
    if kind not in ("text", "html"):
        raise RequestError(400, f"Invalid request: format {kind!r:.40} is neither text nor html")
    is_detected = source == "auto"
    model = _model(source, target, models)
    reading = Reading(tags=kind == "html", split="paragraphs" if kind == "html" else "lines")
    return LibreTranslateJob(
        sources=[SourceText(text, model, reading) for text in texts],
        is_list=is_list,
        is_detected=is_detected,
        wants_alternatives=_wants_alternatives(fields),
    )


def model_of_file(fields: Fields, models: Sequence[ServedModel]) -> ServedModel:
    """Return the model that translates a file.

    Raises:
        RequestError: if a field is missing or wrong, or there is no such pair of languages.
    """
    check_known(fields, _FIELDS_OF_FILE)
    return _model(_text(fields, "source"), _text(fields, "target"), models)


def answer(asked: LibreTranslateJob, translated: Sequence[TranslatedText]) -> dict[str, Any]:
    """Return the answer to a job."""
    results: dict[str, list[Any]] = {"translatedText": [text.text for text in translated]}
    if asked.is_detected:
        results["detectedLanguage"] = [
            {"confidence": 100.0, "language": source.model.source} for source in asked.sources
        ]
    if asked.wants_alternatives:
        # There are none, as LibreTranslate says of texts of several sentences.
        results["alternatives"] = [[] for _ in translated]
    if asked.is_list:
        return results
    # A client that sent one text reads one of each.
    return {name: values[0] for name, values in results.items()}


def languages(models: Sequence[ServedModel]) -> list[dict[str, Any]]:
    """Return all languages with the targets of each. Clients look for a target among the languages too."""
    codes = dict.fromkeys(code for model in models for code in (model.source, model.target))
    entries = []
    for code in codes:
        targets = [model.target for model in models if model.source == code]
        entries.append({"code": code, "name": name_of_language(code), "targets": targets})
    return entries


def detection(fields: Fields, models: Sequence[ServedModel]) -> list[dict[str, Any]]:
    """Return the language of a text. With several source languages, nothing fits."""
    _texts(fields)
    sources = {model.source for model in models}
    confidence = 100.0 if len(sources) == 1 else 0.0
    return [{"confidence": confidence, "language": models[0].source}]


def detected_source(models: Sequence[ServedModel]) -> str:
    """Return the source language of all models.

    Raises:
        RequestError: if there are several.
    """
    sources = {model.source for model in models}
    if len(sources) > 1:
        raise RequestError(400, "auto is not supported, because this server translates from several languages")
    return models[0].source


def settings(
    models: Sequence[ServedModel], char_limit: int, key_required: bool, file_formats: Sequence[str]
) -> dict[str, Any]:
    """Return what LibreTranslate tells its own page.

    Args:
        models: of the server.
        char_limit: the most characters of a text, or -1.
        key_required: whether clients need a key.
        file_formats: endings of files that are translated.
    """
    first = models[0]
    return {
        "apiKeys": key_required,
        "charLimit": char_limit,
        "filesTranslation": bool(file_formats),
        "frontendTimeout": 500,
        "keyRequired": key_required,
        "language": {"source": _entry(first.source), "target": _entry(first.target)},
        "suggestions": False,
        "supportedFilesFormat": [*file_formats],
    }


def _model(source: str, target: str, models: Sequence[ServedModel]) -> ServedModel:
    if source == "auto":
        source = detected_source(models)
    model = find_model(models, source, target)
    if model is None:
        raise RequestError(400, f"{source:.40} to {target:.40} is not supported")
    return model


def _entry(code: str) -> dict[str, str]:
    return {"code": code, "name": name_of_language(code)}


def _texts(fields: Fields) -> tuple[list[str], bool]:
    """Return the texts of a request, and whether they came as a list."""
    texts = fields.get("q")
    if texts is None:
        raise RequestError(400, "Invalid request: missing q parameter")
    is_list = isinstance(texts, list)
    texts = texts if is_list else [texts]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RequestError(400, "Invalid request: q is neither a text nor a list of texts")
    return texts, is_list


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise RequestError(400, f"Invalid request: missing {name} parameter")
    if not isinstance(value, str) or not value:
        raise RequestError(400, f"Invalid request: {name} is no language")
    return value


def _wants_alternatives(fields: Fields) -> bool:
    value = fields.get("alternatives", 0)
    try:
        return int(value) > 0
    except (TypeError, ValueError) as error:
        raise RequestError(400, "Invalid request: alternatives is no number") from error
