"""Codes at the head of a source, such as >>pt<<, that tell multilingual OPUS-MT models which language to write."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from .documents import Segment

# >>pt<<, >>pt_BR<<, >>cmn_Hans<<.
LANGUAGE_CODE = re.compile(r">>[a-z]{2,3}([_-]\w+)*<<\s*")
_TOKEN = re.compile(r">>[^<>\s]+<<")
_SHOWN = 20


class LanguageCodes:
    """Those that a tokenizer has, of which most have none: then all texts stay as they are.

    Args:
        tokenizer: of the model. Its codes are words of its vocabulary.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        words = tokenizer.get_vocab().items()
        self.ids = {word: number for word, number in words if word.startswith(">>") and _TOKEN.fullmatch(word)}
        """The codes, with the ids of their words."""

    def __bool__(self) -> bool:
        return bool(self.ids)

    @property
    def languages(self) -> list[str]:
        """Those that the codes name, sorted."""
        return sorted(code[2:-2] for code in self.ids)

    def of(self, language: str | None, name: str) -> str:
        """Return the code of a language, such as "pt" or "cmn_Hans", empty of none; `name` is the option that names it.

        Raises:
            ValueError: if there is none.
        """
        if language is None:
            return ""
        code = f">>{language.removeprefix('>>').removesuffix('<<')}<<"
        if code not in self.ids:
            raise ValueError(f"{name} is {language!r}, and this tokenizer {self._lacks(code)}")
        return code

    def at_head(self, text: str) -> str:
        """Return the code that a text begins with, empty if it begins with none.

        Raises:
            ValueError: if that is not one of these.
        """
        code = _TOKEN.match(text) if self else None
        if code is None or code[0] in self.ids:
            return code[0] if code else ""
        if LANGUAGE_CODE.match(text):
            raise ValueError(f"the text {text!r:.60} begins with a code, and this tokenizer {self._lacks(code[0])}")
        return ""

    def put(self, segments: Iterable[Segment], code: str = "") -> list[Segment]:
        """Return segments with their code: that which one begins with, which those behind it have too, up to the next.

        One that is a code alone, on a line of its own or in front of a page, is left out, but for the space around it.

        Args:
            segments: of one text.
            code: of the first ones.

        Raises:
            ValueError: if one begins with a code that the tokenizer lacks.
        """
        if not self:
            return list(segments)
        found: list[Segment] = []
        space = ""
        for segment in segments:
            code = self.at_head(segment.text) or code
            if segment.text and segment.text == code and not segment.has_parts:
                space += segment.before + segment.after.lstrip(" ")
            else:
                found.append(replace(segment, before=space + segment.before, code=code))
                space = ""
        return found if found and not space else [*found, Segment(space, "", "", code=code)]

    def sources(self, texts: Sequence[str], code: str) -> list[str]:
        """Return what the model reads of texts that are translated one by one, with this code unless they have one."""
        if not self:
            return list(texts)
        return [self.put([Segment("", text.strip(), "")], code)[0].source for text in texts]

    def are_missing(self, texts: Iterable[str]) -> bool:
        """Return whether there are codes, and one of the texts, empty ones apart, begins with none.

        Raises:
            ValueError: if one begins with a code that the tokenizer lacks.
        """
        heads = [self.at_head(text) for text in texts if text.strip()]
        return bool(self) and not all(heads)

    def missing(self, option: str | None = None) -> str:
        """Return what to say of a text without a code; `option` gives one, if there is one that does."""
        languages = self.languages
        given = "" if option is None else f"give {option.format(languages[0])}, or "
        return (
            f"the tokenizer has codes of the languages to write ({_first(languages)}), and a text begins "
            f"with none; {given}begin the text with >>{languages[0]}<<"
        )

    def _lacks(self, code: str) -> str:
        if not self:
            return f"has no code {code}, nor any other; leave it out"
        alike = sorted(self.languages, key=lambda language: (language[:1] != code[2], language))
        return f"has no code {code}; it has those of {_first(alike)}"


def _first(languages: Sequence[str]) -> str:
    more = f" and {len(languages) - _SHOWN} more" if len(languages) > _SHOWN else ""
    return ", ".join(languages[:_SHOWN]) + more
