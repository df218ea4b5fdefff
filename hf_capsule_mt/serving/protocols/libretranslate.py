"""The protocol of LibreTranslate: what its clients send, and the answers that they read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hf_capsule_mt.translation.preparation import TextOptions

from ..detection import LanguageDetector
from ..jobs import ClientJob, SourceText, TranslatedText
from ..languages import name_of_language
from ..models import ServedModel, find_model
from ..requests import Fields, RequestError, check_known

_FIELDS = frozenset(("q", "source", "target", "format", "alternatives", "quality", "api_key", "secret"))
"""`secret` is what LibreTranslate's own page sends."""
_FIELDS_OF_DETECTION = frozenset(("q", "api_key", "secret"))
_FIELDS_OF_FILE = frozenset(("source", "target", "api_key", "secret"))


@dataclass(frozen=True)
class LibreTranslateJob(ClientJob):
    """What a client of LibreTranslate asks for."""

    is_list: bool  # Whether it sent a list, and reads one.
    is_detected: bool  # Whether it wants to know the source language.


def job(fields: Fields, models: Sequence[ServedModel], detector: LanguageDetector) -> LibreTranslateJob:
    """Return what a client asks for.

    Args:
        fields: what it sent.
        models: of the server.
        detector: finds the language of texts from "auto".

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
    reading = TextOptions(tags=kind == "html", split="paragraphs" if kind == "html" else "lines")
    sources = _sources(texts, source, target, reading, models, detector)
    return LibreTranslateJob(
        sources=sources,
        is_list=is_list,
        is_detected=is_detected,
        alternatives=_alternatives(fields, sources),
        wants_quality=_wants_quality(fields, sources),
    )


def model_of_file(fields: Fields, models: Sequence[ServedModel], detector: LanguageDetector) -> ServedModel:
    """Return the model that translates a file.

    Args:
        fields: what the client sent.
        models: of the server.
        detector: knows the language of files from "auto", if there is only one.

    Raises:
        RequestError: if a field is missing or wrong, or there is no such pair of languages.
    """
    check_known(fields, _FIELDS_OF_FILE)
    source = _text(fields, "source")
    if source == "auto":
        source = detector.only_language()
    return required_model(source, _text(fields, "target"), models)


def answer(asked: LibreTranslateJob, translated: Sequence[TranslatedText]) -> dict[str, Any]:
    """Return the answer to a job."""
    results: dict[str, list[Any]] = {"translatedText": [text.text for text in translated]}
    if asked.is_detected:
        results["detectedLanguage"] = [
            {"confidence": source.confidence, "language": source.model.source} for source in asked.sources
        ]
    if asked.alternatives:
        results["alternatives"] = [[*text.alternatives] for text in translated]
    if asked.wants_quality:
        results["quality"] = [_quality(text) for text in translated]
    if asked.is_list:
        return results
    # A client that sent one text reads one of each.
    return {name: values[0] for name, values in results.items()}


def languages(models: Sequence[ServedModel]) -> list[dict[str, Any]]:
    """Return all languages with the targets of each. Clients look for a target among the languages too."""
    codes: list[str] = []
    for model in models:
        codes += [model.source, model.target]
    entries = []
    for code in dict.fromkeys(codes):
        targets = [model.target for model in models if model.source == code]
        entries.append({"code": code, "name": name_of_language(code), "targets": targets})
    return entries


def detection(fields: Fields, detector: LanguageDetector) -> list[dict[str, Any]]:
    """Return the languages of a text, as [`LanguageDetector.ranked`] does."""
    check_known(fields, _FIELDS_OF_DETECTION)
    texts, is_list = _texts(fields)
    if is_list:
        raise RequestError(400, "Invalid request: q is a list")
    ranked = detector.ranked(texts[0])
    return [{"confidence": detected.confidence, "language": detected.language} for detected in ranked]


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


def required_model(source: str, target: str, models: Sequence[ServedModel]) -> ServedModel:
    """Return the model for two languages.

    Raises:
        RequestError: if there is none.
    """
    model = find_model(models, source, target)
    if model is None:
        raise RequestError(400, f"{source:.40} to {target:.40} is not supported")
    return model


def _sources(
    texts: Sequence[str],
    source: str,
    target: str,
    reading: TextOptions,
    models: Sequence[ServedModel],
    detector: LanguageDetector,
) -> list[SourceText]:
    """Return texts with their models. Texts from "auto" may have several."""
    if source != "auto":
        model = required_model(source, target, models)
        return [SourceText(text, model, reading) for text in texts]
    sources = []
    for text in texts:
        detected = detector.best(text)
        model = required_model(detected.language, target, models)
        sources.append(SourceText(text, model, reading, detected.confidence))
    return sources


def _quality(text: TranslatedText) -> list[dict[str, Any]]:
    """Return what a client reads of the sentences of a text."""
    return [quality.fields() for quality in text.qualities]


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


def _alternatives(fields: Fields, sources: Sequence[SourceText]) -> int:
    """Return how many other translations are wanted. A search has as many as it has beams, with the best one."""
    value = fields.get("alternatives", 0)
    try:
        number = int(value)
    # JSON may have a number that is infinite.
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestError(400, "Invalid request: alternatives is no number") from error
    most = min(source.model.num_beams for source in sources) - 1
    if number > most:
        raise RequestError(400, f"Invalid request: alternatives is {number}, and this server has at most {most}")
    return max(number, 0)


def _wants_quality(fields: Fields, sources: Sequence[SourceText]) -> bool:
    """Return whether the expected quality is wanted, which is a field of this server and not of LibreTranslate."""
    value = fields.get("quality", False)
    if value in (False, "false", ""):
        return False
    if value not in (True, "true"):
        raise RequestError(400, "Invalid request: quality is neither true nor false")
    for source in sources:
        if source.model.calibration is None:
            raise RequestError(400, f"Invalid request: quality is not supported, {source.model.name} is not calibrated")
    return True
