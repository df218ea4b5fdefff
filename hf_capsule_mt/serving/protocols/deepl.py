"""The protocol of DeepL: its routes for texts, what its clients send, and the answers that they read."""

from functools import partial

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hf_capsule_mt.language_tags import name_of_language
from hf_capsule_mt.translation.preparation import TextOptions
from hf_capsule_mt.translation.terms.glossary import Glossary

from ..calls import Call, Fields, Protocol, check_known
from ..glossaries import GlossaryStore
from ..refusals import RequestError
from ..service import Service
from ..texts import TranslationRequest

_PREFIX = "DeepL-Auth-Key "


def _key_of(fields: Fields, authorization: str) -> object:
    """Return the key of a client, from its header or, in old clients, from a field."""
    if authorization.startswith(_PREFIX):
        return authorization.removeprefix(_PREFIX).strip()
    return fields.get("auth_key")


DEEPL = Protocol("deepl", "message", _key_of)

_SPLITS = {"0": "never", "1": "lines", "nonewlines": "paragraphs"}
REFUSED = frozenset(
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
_NO_LIMIT = 1_000_000_000_000


def routes(service: Service) -> list[Route]:
    """Return the routes."""
    route = partial(service.route, DEEPL)
    return [
        route("/v2/translate", _translate, "POST"),
        route("/v2/languages", _languages, "GET", "POST"),
        route("/v2/usage", _usage, "GET", "POST"),
    ]


async def _translate(service: Service, call: Call) -> Response:
    fields = await call.read_fields()
    request = await _request(fields, service, call.owner)

    entries = []
    for source, text in zip(request.sources, await service.translate(call, request), strict=True):
        entries.append(
            {
                "detected_source_language": source.model.source.upper(),
                "text": text.text,
                # Clients read it, whether they asked for it or not.
                "billed_characters": len(source.text),
            }
        )
    return JSONResponse({"translations": entries})


async def _request(fields: Fields, service: Service, owner: str) -> TranslationRequest:
    """Return what a client asks for. Its glossaries belong to the owner of its key."""
    check_known(fields, _FIELDS | REFUSED | _WITHOUT_EFFECT)
    texts = _texts(fields)
    check_refused(fields)
    source, target = languages_of(fields)
    glossary = glossary_of(fields, source, target, service.glossaries, owner)
    options = _options(fields, glossary)
    return TranslationRequest(await service.sources(texts, source, target, options))


async def _languages(service: Service, call: Call) -> Response:
    """Return the source or target languages."""
    fields = await call.read_fields()
    kind = fields.get("type", "source")
    if kind not in ("source", "target"):
        raise RequestError(400, "Value for 'type' not supported.")
    codes = [getattr(model, kind) for model in service.models]
    entries = []
    for code in dict.fromkeys(codes):
        entries.append({"language": code.upper(), "name": name_of_language(code), "supports_formality": False})
    return JSONResponse(entries)


async def _usage(service: Service, call: Call) -> Response:
    await call.read_fields()
    return JSONResponse({"character_count": service.translated_characters, "character_limit": _NO_LIMIT})


def _texts(fields: Fields) -> list[str]:
    texts = fields.get("text")
    if isinstance(texts, str):
        texts = [texts]
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise RequestError(400, "Parameter 'text' not specified.")
    return texts


def check_refused(fields: Fields) -> None:
    """Refuse what changes translations, and what this server does not have.

    Raises:
        RequestError: if a client asks for it.
    """
    if fields.get("formality") in ("more", "less"):
        raise RequestError(400, "'formality' is not supported. Use prefer_more or prefer_less to go on without it.")
    for name in sorted(REFUSED):
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


def languages_of(fields: Fields) -> tuple[str | None, str]:
    """Return the source language that a client names, if it does, and the target language.

    Raises:
        RequestError: if it names no target, or a language is no text.
    """
    source = fields.get("source_lang") or None
    target = fields.get("target_lang")
    if not isinstance(target, str) or not target:
        raise RequestError(400, "Value for 'target_lang' not supported.")
    if source is not None and not isinstance(source, str):
        raise RequestError(400, "Value for 'source_lang' not supported.")
    return source, target


def glossary_of(
    fields: Fields, source: str | None, target: str, glossaries: GlossaryStore, owner: str
) -> Glossary | None:
    """Return the terms that a client wants in its translations, or None if it names no glossary.

    Args:
        fields: what it sent.
        source: the source language that it names.
        target: the target language.
        glossaries: of all clients.
        owner: of the client's key.

    Raises:
        RequestError: if its owner has no such glossary, or it is for other languages.
    """
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


def _options(fields: Fields, glossary: Glossary | None) -> TextOptions:
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
