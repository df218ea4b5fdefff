"""The languages of a tokenizer: their codes in texts, and between which of them it translates.

Multilingual OPUS-MT models, and MADLAD-400, read the target language as a code at the beginning of a source: >>pt<< or
<2pt>. The tokenizers of NLLB, M2M-100 and mBART have a token for each language, and are set to one.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from threading import RLock

from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.errors import UserError


class _Lock:
    """A lock for the calls of tokenizers. A panic of the library becomes an error that says what is wrong."""

    def __init__(self) -> None:
        self._lock = RLock()
        self.acquire = self._lock.acquire
        self.release = self._lock.release

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.release()
        # It is no Exception, and has no public name.
        if kind is not None and kind.__name__ == "PanicException":
            raise UserError(
                f"The tokenizer failed ({error}). Its file tokenizer.json is damaged. Copy the model again."
            ) from error


TOKENIZING = _Lock()
"""Held while a tokenizer is called, because its calls change its language and its truncation."""
# A thread that holds the lock would not exist in a forked process, so that nobody could release it there.
# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=TOKENIZING.acquire, after_in_parent=TOKENIZING.release, after_in_child=TOKENIZING.release
    )

OF_COMMANDS = ("--source_lang", "--target_lang")
"""What commands call the two languages."""
OF_FUNCTIONS = ("src_lang", "tgt_lang")
"""What the pipeline calls them, as Transformers does."""

# >>pt<<, >>pt_BR<<, >>cmn_Hans<<.
LANGUAGE_CODE = re.compile(r">>[a-z]{2,3}(?:[_-]\w++)*+<<\s*")
_TOKEN = re.compile(r">>[^<>\s]+<<|<2[a-zA-Z]{2}[^<>\s]*>")
_BRACKETS = ((">>", "<<"), ("<2", ">"))
"""What is around the language in a code of OPUS-MT, and of MADLAD."""
_FEW = 5
"""Languages that a message names."""
ADDED_LANGUAGES = "added_languages"
"""Field of tokenizer_config.json, with the languages that were added to a tokenizer whose class lists others.

The classes of M2M-100 and mBART have such a list, and that of NLLB takes the languages of its files."""
ADDED_SOURCE = "added_source"
"""Field of tokenizer_config.json, with the source language if it is an added one. Those classes do not load it."""


def language_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Return the token ids of languages by their codes, for a tokenizer that is set to one. Others have none."""
    if not hasattr(tokenizer, "src_lang"):
        return {}
    if hasattr(tokenizer, "lang_code_to_id"):
        tell_added_languages(tokenizer)
        known = tokenizer.lang_code_to_id
    else:
        # NLLB has no such dictionary.
        tokens = [str(token) for token in tokenizer.extra_special_tokens]
        known = dict(zip(tokens, tokenizer.convert_tokens_to_ids(tokens), strict=True))
    return {code: token_id for code, token_id in known.items() if token_id != tokenizer.unk_token_id}


def language_token(tokenizer: PreTrainedTokenizerBase, code: str) -> str:
    """Return the token of a language, such as "__de__" of M2M-100. In other tokenizers it is the code."""
    return f"__{code}__" if hasattr(tokenizer, "lang_code_to_token") else code


def tell_added_languages(tokenizer: PreTrainedTokenizerBase) -> None:
    """Tell a tokenizer of M2M-100 or mBART which languages were added to it, which its class forgets."""
    for code in tokenizer.init_kwargs.get(ADDED_LANGUAGES, ()):
        token = language_token(tokenizer, code)
        token_id = tokenizer.convert_tokens_to_ids(token)
        tokenizer.lang_code_to_id[code] = token_id
        if hasattr(tokenizer, "lang_code_to_token"):
            # M2M-100 has a dictionary for each way.
            tokenizer.lang_code_to_token[code] = token
            tokenizer.lang_token_to_id[token] = token_id
            tokenizer.id_to_lang_token[token_id] = token


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


@dataclass(frozen=True)
class Direction:
    """The languages of texts, as a tokenizer is told them. [`KnownLanguages.direction`] makes one.

    A tokenizer of one pair of languages is told nothing.
    """

    code: str = ""
    """In front of a source, such as >>pt<< or <2pt>, until a text begins with another."""
    source: str | None = None
    """The language that a tokenizer with languages is set to. None for other tokenizers."""
    target: str | None = None
    """The language to write, for the same tokenizers."""
    first_token: int | None = None
    """The token of the target language, with which translations begin."""

    @contextmanager
    def spoken_by(self, tokenizer: PreTrainedTokenizerBase) -> Iterator[None]:
        """Set a tokenizer to these languages in a block, in which no other thread can use it."""
        if self.source is None:
            yield
            return

        # A tokenizer has one language for all threads.
        with TOKENIZING:
            before = tokenizer.src_lang, tokenizer.tgt_lang
            try:
                tokenizer.tgt_lang = self.target
                # This also changes which tokens are put around a text.
                tokenizer.src_lang = self.source
                yield
            finally:
                source, target = before
                tokenizer.tgt_lang = target
                tokenizer.src_lang = source


ONE_PAIR = Direction()
"""The direction of a model of one pair of languages, which is told nothing."""


class KnownLanguages:
    """The languages of a tokenizer: codes in front of sources, tokens that it is set to, or one pair without a name."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self.are_arguments = hasattr(tokenizer, "src_lang")
        """Whether the tokenizer is set to a source language, as those of NLLB, M2M-100 and mBART are."""

    @cached_property
    def codes(self) -> LanguageCodes:
        """The codes that stand in front of sources, for OPUS-MT and MADLAD."""
        return LanguageCodes(self._tokenizer)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The token ids of languages, for tokenizers that are set to one."""
        return language_ids(self._tokenizer)

    def direction(
        self,
        source: str | None = None,
        target: str | None = None,
        names: tuple[str, str] = OF_COMMANDS,
        *,
        needs_source: bool = True,
    ) -> Direction:
        """Return a direction, with the languages of the tokenizer where none are given.

        Args:
            source: the source language, such as "eng_Latn".
            target: the target language, such as "deu_Latn", or "pt" of the codes >>pt<< and <2pt>.
            names: what the user calls the two.
            needs_source: whether the tokenizer's own source language is used only if it has a target language too.
                Most tokenizers come with a source language that nobody has chosen.

        Raises:
            UserError: if there is no such language, or one is missing.
        """
        of_source, of_target = names
        if self.are_arguments:
            return self._of_arguments(source, target, names, needs_source)
        if source is not None:
            raise UserError(f"{of_source} is {source!r}, but the model has one source language. Leave it out.")
        if target is not None and not self.codes:
            raise UserError(f"{of_target} is {target!r}, but the model has one target language. Leave it out.")
        return Direction(code=self.codes.of(target, of_target))

    def _of_arguments(
        self, source: str | None, target: str | None, names: tuple[str, str], needs_source: bool
    ) -> Direction:
        if not self.ids:
            raise UserError(
                "The tokenizer has no token for any language. A file of it is missing, such as tokenizer.json. Copy "
                "the folder again."
            )

        tokenizer = self._tokenizer
        of_source, of_target = names
        if source is None and (tokenizer.tgt_lang is not None or not needs_source):
            source = tokenizer.src_lang
        if target is None:
            target = tokenizer.tgt_lang

        self._check(of_source, source)
        self._check(of_target, target)
        return Direction(source=source, target=target, first_token=self.ids[target])

    def _check(self, name: str, language: str | None) -> None:
        """Raise a UserError if a language is missing, or is none of the tokenizer."""
        if language is None:
            few = ", ".join(sorted(self.ids)[:3])
            raise UserError(f"{name} is missing. The model has {len(self.ids)} languages, such as {few}. Give one.")
        if language not in self.ids:
            raise UserError(f"{name} is {language!r}, which is no language of the model. {nearest(language, self.ids)}")


def languages_of_columns(
    tokenizer: PreTrainedTokenizerBase, source: str | None, target: str | None
) -> tuple[str | None, str | None]:
    """Return the languages that a tokenizer is told, of two that may also be the names of columns of a corpus.

    Raises:
        UserError: if the tokenizer is set to languages, and has none of such a name.
    """
    known = KnownLanguages(tokenizer)
    if known.are_arguments:
        try:
            direction = known.direction(source, target)
        except UserError as error:
            hint = "If these are columns of the data, name them with --source_column and --target_column."
            remedy = "--new_language adds a language to a model."
            raise UserError(f"{error} {hint} {remedy}") from None
        return direction.source, direction.target

    codes = known.codes
    is_code = target is not None and codes.language_of(target) in codes.languages
    return None, target if is_code else None


def set_languages(tokenizer: PreTrainedTokenizerBase, source: str | None, target: str | None) -> None:
    """Set a tokenizer to the languages of a training corpus, which it keeps when it is saved.

    Raises:
        UserError: if there is no such language, one is missing, or targets would not begin with their language.
    """
    if not KnownLanguages(tokenizer).are_arguments:
        return

    source, target = languages_of_columns(tokenizer, source, target)
    if getattr(tokenizer, "legacy_behaviour", False):
        raise UserError(
            "The tokenizer has legacy_behaviour, which puts the language behind a target. A model would learn to write "
            "it last. Set legacy_behaviour to false in tokenizer_config.json."
        )

    tokenizer.tgt_lang = target
    tokenizer.src_lang = source
    if source in tokenizer.init_kwargs.get(ADDED_LANGUAGES, ()):
        tokenizer.init_kwargs[ADDED_SOURCE] = source
        # It is saved if it is among these.
        tokenizer.init_kwargs.pop("src_lang", None)
    else:
        tokenizer.init_kwargs.pop(ADDED_SOURCE, None)
        tokenizer.init_kwargs["src_lang"] = source


def restore_added_languages(tokenizer: PreTrainedTokenizerBase) -> None:
    """Tell a tokenizer that was loaded what its class forgets: added languages, and a source that is one of them.

    Raises:
        UserError: if tokenizer_config.json is damaged there.
    """
    if not hasattr(tokenizer, "lang_code_to_id"):
        return

    added = tokenizer.init_kwargs.get(ADDED_LANGUAGES, [])
    source = tokenizer.init_kwargs.get(ADDED_SOURCE)
    is_list = isinstance(added, list) and all(isinstance(code, str) for code in added)
    if not is_list or source not in (None, *added):
        raise UserError(f"{ADDED_LANGUAGES} or {ADDED_SOURCE} in tokenizer_config.json is damaged. Copy it again.")

    tell_added_languages(tokenizer)
    if source is not None:
        tokenizer.src_lang = source
        tokenizer.init_kwargs.pop("src_lang", None)


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
