"""Codes at the beginning of a source, such as >>pt<<, that name the target language for multilingual OPUS-MT models."""

import re
from collections.abc import Callable, Iterable, Iterator

from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.errors import UserError

# >>pt<<, >>pt_BR<<, >>cmn_Hans<<.
LANGUAGE_CODE = re.compile(r">>[a-z]{2,3}([_-]\w+)*<<\s*")
_TOKEN = re.compile(r">>[^<>\s]+<<")


class LanguageCodes:
    """The codes in the vocabulary of a tokenizer. Most have none, and then all texts stay as they are."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.ids: dict[str, int] = {}
        """The codes with their token ids."""
        for token, token_id in tokenizer.get_vocab().items():
            # Much faster than the expression, which only a few tokens reach.
            if token.startswith(">>") and _TOKEN.fullmatch(token):
                self.ids[token] = token_id
        self.languages = sorted(code[2:-2] for code in self.ids)
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
        bare_language = language.removeprefix(">>").removesuffix("<<")
        code = f">>{bare_language}<<"
        if code not in self.ids:
            raise UserError(f"{name} is {language!r}, but {self._lacks(code)}")
        return code

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
        if LANGUAGE_CODE.match(text):
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
        example = self.languages[0]
        return f"a text does not say which language to write ({known_languages:.200}). Begin it with >>{example}<<"

    def _lacks(self, code: str) -> str:
        known_languages = ", ".join(self.languages) or "none"
        return f"the tokenizer has no code {code}. It has: {known_languages:.200}"


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
