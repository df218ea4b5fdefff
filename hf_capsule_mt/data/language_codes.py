"""Which languages a tokenizer knows.

Multilingual OPUS-MT models, and MADLAD-400, read the target language as a code at the beginning of a source: >>pt<< or
<2pt>. The tokenizers of NLLB, M2M-100 and mBART have a token for each language, and are set to one.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches

from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.errors import UserError

# >>pt<<, >>pt_BR<<, >>cmn_Hans<<.
LANGUAGE_CODE = re.compile(r">>[a-z]{2,3}(?:[_-]\w++)*+<<\s*")
_TOKEN = re.compile(r">>[^<>\s]+<<|<2[a-zA-Z]{2}[^<>\s]*>")
_BRACKETS = ((">>", "<<"), ("<2", ">"))
"""What is around the language in a code of OPUS-MT, and of MADLAD."""
_FEW = 5
"""Languages that a message names."""


def language_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Return the token ids of languages by their codes, for a tokenizer that is set to one. Others have none."""
    if not hasattr(tokenizer, "src_lang"):
        return {}
    known = getattr(tokenizer, "lang_code_to_id", None)
    if known is None:
        # NLLB has no such dictionary.
        tokens = [str(token) for token in tokenizer.extra_special_tokens]
        known = dict(zip(tokens, tokenizer.convert_tokens_to_ids(tokens), strict=True))
    return {code: token_id for code, token_id in known.items() if token_id != tokenizer.unk_token_id}


def nearest(language: str, languages: Iterable[str]) -> str:
    """Return what a message says about languages: the few that are most like one that is not there."""
    languages = sorted(languages)
    if len(languages) <= _FEW:
        return f"It has {', '.join(languages) or 'none'}."
    wanted = language.lower().replace("-", "_")
    by_lower = {code.lower(): code for code in languages}
    alike = [code for lower, code in by_lower.items() if lower[:2] == wanted[:2]]
    alike.sort(key=lambda code: code[:3].lower() != wanted[:3])
    alike += [by_lower[lower] for lower in get_close_matches(wanted, by_lower, _FEW)]
    few = list(dict.fromkeys(alike))[:_FEW] or languages[:_FEW]
    return f"The nearest of its {len(languages)} languages are {', '.join(few)}."


class LanguageCodes:
    """The codes in the vocabulary of a tokenizer. Most have none, and then all texts stay as they are."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.ids: dict[str, int] = {}
        """The codes with their token ids."""
        for token, token_id in tokenizer.get_vocab().items():
            # Much faster than the expression, which only a few tokens reach.
            if token.startswith((">>", "<2")) and _TOKEN.fullmatch(token):
                self.ids[token] = token_id
        self.before, self.after = _BRACKETS[0]
        if not any(code.startswith(self.before) for code in self.ids) and self.ids:
            self.before, self.after = _BRACKETS[1]
        self.languages = sorted(self.language_of(code) for code in self.ids)
        """The languages of the codes."""

    def __bool__(self) -> bool:
        return bool(self.ids)

    def of(self, language: str | None, name: str) -> str:
        """Return the code of a language, such as "pt" or "cmn_Hans", or an empty string for None.

        Raises:
            UserError: if there is no such code. The message names the option `name`.
        """
        if language is None:
            return ""
        # Users may also give the code itself.
        code = f"{self.before}{self.language_of(language)}{self.after}"
        if code not in self.ids:
            raise UserError(f"{name} is {language!r}, but {self._lacks(code)}")
        return code

    def language_of(self, code: str) -> str:
        """Return the language of a code, such as "pt" of >>pt<<."""
        return code.removeprefix(self.before).removesuffix(self.after)

    def at_head(self, text: str) -> str:
        """Return the code at the beginning of a text, or an empty string.

        Raises:
            UserError: if the tokenizer has other codes, but not this one.
        """
        if not self:
            return ""
        match = _TOKEN.match(text)
        if match is None:
            return ""
        code = match[0]
        if code in self.ids:
            return code
        # Only OPUS-MT's brackets may be text.
        is_like_codes = code.startswith(self.before) and self.before == _BRACKETS[1][0]
        if is_like_codes or LANGUAGE_CODE.match(text):
            raise UserError(f"the text {text!r:.60} begins with a code, but {self._lacks(code)}")
        return ""

    def are_missing(self, texts: Iterable[str]) -> bool:
        """Return whether the tokenizer has codes, and one of the texts, except empty ones, begins with none.

        Raises:
            UserError: if a text begins with a code that the tokenizer lacks.
        """
        if not self:
            return False
        heads = [self.at_head(text) for text in texts if text.strip()]
        return not all(heads)

    def missing(self) -> str:
        """Return the warning about a text without a code."""
        known_languages = ", ".join(self.languages)
        example = f"{self.before}{self.languages[0]}{self.after}"
        return f"a text does not say which language to write ({known_languages:.200}). Begin it with {example}"

    def _lacks(self, code: str) -> str:
        return f"the tokenizer has no code {code:.60}. {nearest(self.language_of(code), self.languages)}"


def each_checked(
    codes: LanguageCodes,
    sources: Iterable[str],
    where: str,
    warn: Callable[[str], object],
) -> Iterator[str]:
    """Yield sources as they are, and warn of the first without a language code, if the tokenizer has codes.

    Args:
        codes: those of the tokenizer.
        sources: the texts.
        where: the name of the corpus, with which messages begin.
        warn: is called with the warning, at most once.

    Raises:
        UserError: if a source begins with a code that the tokenizer lacks.
    """
    if not codes:
        yield from sources
        return
    has_warned = False
    for number, source in enumerate(sources, 1):
        try:
            code = codes.at_head(source)
        except UserError as error:
            raise UserError(f"{where}, source {number}: {error}") from None
        if not has_warned and not code and source.strip():
            has_warned = True
            warn(f"{where}, source {number}, {source!r:.60}: {codes.missing()}")
        yield source
