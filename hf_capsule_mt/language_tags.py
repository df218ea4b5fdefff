"""What codes of languages stand for: `EN-US`, `pt_BR`, `iw`, `deu_Latn`. The library langcodes knows it."""

import re
from collections.abc import Iterable
from functools import lru_cache

from langcodes import Language, LanguageTagError

_LETTERS = re.compile(r"[a-zA-Z]{2,3}(?![a-zA-Z])")
_OTHER_TAGS = {"no": "nb", "zh-cn": "zh-hans", "zh-tw": "zh-hant"}
"""What programs write for a language of a server that calls it otherwise. The standard keeps them apart."""
_OTHER_SCRIPTS = {"fil": "Latn", "zh": "Hans"}
"""Scripts that the standard does not say. Chinese has two, with characters of one kind."""


def language_of(code: str) -> str | None:
    """Return the language of a code, in two letters if it has some: "de" of "DE", "de_DE" and "deu_Latn", "he" of "iw".

    Returns:
        The language, or None if there is none of the first two or three letters.
    """
    letters = _LETTERS.match(code)
    # langcodes keeps what it has read. Only letters go there: clients could fill the memory with the rest of a code.
    return None if letters is None else _language_of_letters(letters[0].lower())


@lru_cache
def _language_of_letters(letters: str) -> str | None:
    language = Language.get(letters)
    if not language.is_valid():
        return None
    if len(letters) == 3:
        # Arabic of NLLB is "arb", and a part of "ar".
        return language.prefer_macrolanguage().language
    # The standard writes "fil" for "tl". Other libraries know two letters only.
    return language.language if len(language.language) == 2 else letters


def is_language(code: str) -> bool:
    """Return whether these are the two letters of a language in ISO 639-1. Replaced ones, such as "iw", are not."""
    return len(code) == 2 and language_of(code) == code


@lru_cache
def name_of_language(code: str) -> str:
    """Return the English name of a language, such as "Portuguese (Brazil)", or its code if it has none."""
    try:
        # mBART has no region in "en_XX".
        language = Language.get(code.removesuffix("_XX"))
    except LanguageTagError:
        return code
    return language.display_name() if language.is_valid() else code


@lru_cache
def script_of(code: str) -> str | None:
    """Return the script of a language, such as "Latn" of "de" and "deu_Latn", or None if it has several, as "sr" has.

    "Hans" of "zh" stands for all Chinese characters.
    """
    try:
        language = Language.get(code).assume_script()
    except LanguageTagError:
        return None
    return language.script or _OTHER_SCRIPTS.get(language.language)


def known_code(code: str, known: Iterable[str]) -> str | None:
    """Return which of the known codes stands for a language, or None.

    `EN-US` stands for `en` if there is no `en-US`, and `zh` for `zh-Hans` if there is no `zh`.
    """
    by_tag = {_tag(code): code for code in known}
    wanted = _tag(code)
    if wanted in by_tag:
        return by_tag[wanted]

    language = wanted.partition("-")[0]
    if language in by_tag:
        return by_tag[language]
    if language != wanted:
        # pt-PT is not pt-BR.
        return None

    for tag in sorted(by_tag):
        if tag.partition("-")[0] == language:
            return by_tag[tag]
    return None


def written_like(code: str, example: str) -> str | None:
    """Return the code of a language in the way in which models write it.

    Args:
        code: in any way, such as "dsb", "dsb-latn" or "DSB_DE".
        example: a code of the model: "deu_Latn" of NLLB, "de_DE" of mBART, or "de" of M2M-100.

    Returns:
        For example "dsb_Latn", "dsb_DE" or "dsb". None if the code stands for no language.
    """
    try:
        language = Language.get(code.strip("_<>"))
    except LanguageTagError:
        return None
    if not language.is_valid():
        return None

    _, _, part = example.partition("_")
    if not part:
        return language.language

    # The most likely script and country, where the code says none.
    whole = language.maximize()
    if len(part) == 4:
        return f"{language.to_alpha3()}_{whole.script}"
    return f"{language.language}_{whole.territory}"


def _tag(code: str) -> str:
    """Return a code in small letters, with its language in two letters if it has some."""
    lowered = code.lower().replace("_", "-")
    first, hyphen, others = lowered.partition("-")
    tag = f"{language_of(first) or first}{hyphen}{others}"
    return _OTHER_TAGS.get(tag, tag)
