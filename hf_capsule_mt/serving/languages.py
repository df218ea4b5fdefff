"""Codes and names of languages, as programs write them: `EN-US`, `pt-BR`, `iw`, `zh`."""

from collections.abc import Iterable

# Codes that were replaced, and others for the same language.
_ALIASES = {"iw": "he", "in": "id", "ji": "yi", "no": "nb", "zh-cn": "zh-hans", "zh-tw": "zh-hant"}
_NAMES = {
    "af": "Afrikaans",
    "ar": "Arabic",
    "az": "Azerbaijani",
    "be": "Belarusian",
    "bg": "Bulgarian",
    "bn": "Bengali",
    "bs": "Bosnian",
    "ca": "Catalan",
    "cs": "Czech",
    "cy": "Welsh",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "eo": "Esperanto",
    "es": "Spanish",
    "et": "Estonian",
    "eu": "Basque",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "ga": "Irish",
    "gl": "Galician",
    "he": "Hebrew",
    "hi": "Hindi",
    "hr": "Croatian",
    "hu": "Hungarian",
    "hy": "Armenian",
    "id": "Indonesian",
    "is": "Icelandic",
    "it": "Italian",
    "ja": "Japanese",
    "ka": "Georgian",
    "kk": "Kazakh",
    "ko": "Korean",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "mg": "Malagasy",
    "mk": "Macedonian",
    "ms": "Malay",
    "mt": "Maltese",
    "nb": "Norwegian",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "pt-br": "Portuguese (Brazil)",
    "ro": "Romanian",
    "ru": "Russian",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sq": "Albanian",
    "sr": "Serbian",
    "sv": "Swedish",
    "sw": "Swahili",
    "ta": "Tamil",
    "th": "Thai",
    "tl": "Tagalog",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "vi": "Vietnamese",
    "zh": "Chinese",
    "zh-hans": "Chinese (simplified)",
    "zh-hant": "Chinese (traditional)",
}


def name_of_language(code: str) -> str:
    """Return the English name of a language, or its code if it has none here."""
    return _NAMES.get(_normal(code), code)


def known_code(code: str, known: Iterable[str]) -> str | None:
    """Return which of the known codes stands for a language, or None.

    `EN-US` stands for `en` if there is no `en-US`, and `zh` for `zh-Hans` if there is no `zh`.
    """
    by_normal = {_normal(each): each for each in known}
    wanted = _normal(code)
    if wanted in by_normal:
        return by_normal[wanted]
    language = wanted.partition("-")[0]
    if language in by_normal:
        return by_normal[language]
    if language != wanted:
        # pt-PT is not pt-BR.
        return None
    for normal in sorted(by_normal):
        if normal.partition("-")[0] == language:
            return by_normal[normal]
    return None


def _normal(code: str) -> str:
    lowered = code.lower().replace("_", "-")
    return _ALIASES.get(lowered, lowered)
