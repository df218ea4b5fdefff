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
        words = tokenizer.get_vocab().items()
        self.ids = {word: number for word, number in words if word.startswith(">>") and _TOKEN.fullmatch(word)}
        """The codes with their token ids."""
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
        code = f">>{language.removeprefix('>>').removesuffix('<<')}<<"
        if code not in self.ids:
            raise UserError(f"{name} is {language!r}, but {self._lacks(code)}")
        return code

    def at_head(self, text: str) -> str:
        """Return the code at the beginning of a text, or an empty string.

        Raises:
            UserError: if the tokenizer has other codes, but not this one.
        """
        code = _TOKEN.match(text) if self else None
        if code is None or code[0] in self.ids:
            return code[0] if code else ""
        if LANGUAGE_CODE.match(text):
            raise UserError(f"the text {text!r:.60} begins with a code, but {self._lacks(code[0])}")
        return ""

    def are_missing(self, texts: Iterable[str]) -> bool:
        """Return whether the tokenizer has codes, and one of the texts, except empty ones, begins with none.

        Raises:
            UserError: if a text begins with a code that the tokenizer lacks.
        """
        heads = [self.at_head(text) for text in texts if text.strip()]
        return bool(self) and not all(heads)

    def missing(self) -> str:
        """Return the warning about a text without a code."""
        shown = f"{', '.join(self.languages):.200}"
        return f"a text does not say which language to write ({shown}). Begin it with >>{self.languages[0]}<<"

    def _lacks(self, code: str) -> str:
        return f"the tokenizer has no code {code}. It has: {', '.join(self.languages) or 'none':.200}"


def each_checked(
    codes: LanguageCodes, sources: Iterable[str], where: str, warn: Callable[[str], object]
) -> Iterator[str]:
    """Yield sources as they are, and `warn` of the first without a language code, if the tokenizer has codes.

    Raises:
        UserError: if a source of the corpus `where` begins with a code that the tokenizer lacks.
    """
    told = not codes
    for number, source in enumerate(sources, 1):
        try:
            code = codes.at_head(source) if codes else ""
        except ValueError as error:
            raise UserError(f"{where}, source {number}: {error}") from None
        if not (told or code) and source.strip():
            told = True
            warn(f"{where}, source {number}, {source!r:.60}: {codes.missing()}")
        yield source
