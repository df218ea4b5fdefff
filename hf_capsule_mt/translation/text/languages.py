"""From which language into which texts are translated, in whichever way their tokenizer is told it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import TOKENIZING
from hf_capsule_mt.data.language_codes import LanguageCodes, language_ids, nearest
from hf_capsule_mt.errors import UserError

OF_COMMANDS = ("--source_lang", "--target_lang")
"""What commands call the two languages."""
OF_FUNCTIONS = ("src_lang", "tgt_lang")
"""What the pipeline calls them, as Transformers does."""


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
            raise UserError(f"{error} {hint}") from None
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
