"""Shortlists of words that translations into a language need, counted in text of the language."""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import regex
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import special_ids, tokenize_lines
from hf_capsule_mt.data.lines import each_line, text_bytes
from hf_capsule_mt.data.tokenizer import is_byte_level, text_of_bytes, vocabulary_of
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import replaced_file

_EVERY = 10
"""One of so many lines is held out."""
_LINES = 1000
"""Lines that are tokenised at a time."""
_MOST_LINES = 10_000
"""Held-out lines of a text that are kept as text."""
_LEAST_SHARE = 0.001
"""A script with a smaller share of the letters is one of names that are quoted."""
_BYTE = regex.compile(r"<0x[0-9A-F]{2}>")
_SCRIPTS_OF_CODES = {
    "Jpan": ("Han", "Hira", "Kana"),
    "Kore": ("Hang", "Han"),
    "Hans": ("Hani",),
    "Hant": ("Hani",),
}
"""Scripts of codes that stand for several, or for a way to write one."""


@dataclass(frozen=True)
class Shortlist:
    """Tokens with the number of times that they were counted, 0 for those that every shortlist has."""

    counts: dict[int, int]
    held_out: Counter[int]
    """Tokens of the lines that were not counted."""
    lines: int
    """The number of these lines."""

    @property
    def coverage(self) -> float | None:
        """The share of the held-out tokens that are in the shortlist. None: there are none."""
        total = self.held_out.total()
        if not total:
            return None
        covered = sum(number for token_id, number in self.held_out.items() if token_id in self.counts)
        return covered / total

    def missing(self, most: int) -> list[int]:
        """Return the held-out tokens that are not in the shortlist, those that are most frequent first."""
        ordered = [token_id for token_id, _ in self.held_out.most_common() if token_id not in self.counts]
        return ordered[:most]


@dataclass(frozen=True)
class HeldOutLine:
    """A line whose tokens were not counted."""

    text: str
    side: str
    """"text" or "text_target", as a tokenizer is told."""
    token_ids: list[int]


class WordCounts:
    """How often texts have each token of a vocabulary. Every tenth line of a text is held out.

    Args:
        tokenizer: the model's, set to a language.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.counts: Counter[int] = Counter()
        self.held_out: Counter[int] = Counter()
        """Tokens of the lines that were held out."""
        self.letters: Counter[str] = Counter()
        """Characters of the other lines."""
        self.num_held_out = 0
        """The number of lines that were held out."""
        self.held_out_lines: list[HeldOutLine] = []
        """The first of these lines of each text."""

    def add(self, lines: Iterable[str], side: str = "text_target") -> None:
        """Count the tokens of a text.

        Args:
            lines: the text.
            side: "text" for sources, or "text_target" for translations.

        Raises:
            UserError: if there is no text.
        """
        number = 0
        kept = 0
        before = self.counts.total()
        lines = iter(lines)

        while part := list(islice(lines, _LINES)):
            for line, ids in zip(part, tokenize_lines(self.tokenizer, part, side=side), strict=True):
                number += 1
                if number % _EVERY != 0:
                    self.counts.update(ids)
                    self.letters.update(line)
                    continue
                self.held_out.update(ids)
                self.num_held_out += 1
                if kept < _MOST_LINES:
                    kept += 1
                    self.held_out_lines.append(HeldOutLine(line, side, ids))

        if self.counts.total() == before:
            raise UserError("There is no text to count words in.")


def count_shortlist(
    tokenizer: PreTrainedTokenizerBase, lines: Iterable[str], always: Iterable[int], min_count: int = 1
) -> Shortlist:
    """Return the tokens of text in the target language, and those with which every word can be spelled.

    Args:
        tokenizer: the model's, set to the language.
        lines: the text. Every tenth line is held out.
        always: more tokens that are always in, such as that of the language.
        min_count: tokens that were counted less often are left out.

    Raises:
        UserError: if there is no text.
    """
    counts = WordCounts(tokenizer)
    counts.add(lines)
    return choose_words(counts, always, min_count)


def choose_words(
    word_counts: WordCounts,
    always: Iterable[int],
    min_count: int = 1,
    most: int | None = None,
    parts_of: Callable[[int], Iterable[int]] | None = None,
    side: str = "text_target",
) -> Shortlist:
    """Return the tokens of texts, and those with which every word can be spelled.

    Args:
        word_counts: what was counted.
        always: more tokens that are always in, such as those of languages.
        min_count: tokens that were counted less often are left out.
        most: the number of tokens, at most. The most frequent ones are chosen. None: all.
        parts_of: returns the tokens that one cannot be without, such as those that BPE joins.
        side: whose vocabulary it is, if the tokenizer has one for each side.

    Raises:
        UserError: if more tokens than `most` are always in.
    """
    tokenizer = word_counts.tokenizer
    # The languages of sources that were not asked for, among others.
    special = _special_ids(tokenizer, side)
    counts = Counter({token_id: n for token_id, n in word_counts.counts.items() if token_id not in special})
    held_out = Counter({token_id: n for token_id, n in word_counts.held_out.items() if token_id not in special})
    chosen: dict[int, int] = {}

    def with_parts(token_id: int) -> dict[int, int]:
        """Return the counts of a token and its parts that are not chosen yet."""
        parts = () if parts_of is None else parts_of(token_id)
        return {part: counts[part] for part in (token_id, *parts) if part not in chosen}

    for token_id in [*always, *spelling_ids(tokenizer, _scripts_of(word_counts.letters), side)]:
        chosen.update(with_parts(token_id))
    if most is not None and len(chosen) > most:
        raise UserError(f"The special tokens and letters alone are {len(chosen):,} words. Ask for more than {most:,}.")

    for token_id, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if count < min_count:
            break
        more = with_parts(token_id)
        if most is not None and len(chosen) + len(more) > most:
            break
        chosen.update(more)

    return Shortlist(chosen, held_out, word_counts.num_held_out)


def shortlist_of_script(tokenizer: PreTrainedTokenizerBase, script: str, always: Iterable[int]) -> Shortlist:
    """Return all tokens with letters of a script only, or with none.

    Args:
        tokenizer: the model's.
        script: its four letters, such as "Latn".
        always: more tokens that are in.

    Raises:
        UserError: if there is no such script, or the tokenizer has no token with a letter of it.
    """
    names = _SCRIPTS_OF_CODES.get(script, (script,))
    letters_of_scripts = "".join(rf"\p{{Script={name}}}" for name in names)
    try:
        letters = regex.compile(rf"[{letters_of_scripts}\P{{L}}]*")
    except regex.error as error:
        raise UserError(f"--script is {script!r}. Give four letters, such as Latn or Cyrl.") from error

    special = special_ids(tokenizer)
    is_of_bytes = is_byte_level(tokenizer)
    counts = dict.fromkeys(always, 0)
    has_script = False
    for piece, token_id in tokenizer.get_vocab().items():
        text = text_of_bytes(piece) if is_of_bytes else piece
        if token_id not in special and letters.fullmatch(text):
            counts.setdefault(token_id, 0)
            has_script = has_script or any(map(str.isalpha, text))

    if not has_script:
        raise UserError(f"The model has no word with letters of --script {script}. Name the script that it writes.")
    return Shortlist(counts, Counter(), 0)


def always_needed(tokenizer: PreTrainedTokenizerBase, side: str = "text_target") -> list[int]:
    """Return the special tokens that have a name: the end of a translation, padding, and what is unknown.

    Args:
        tokenizer: the model's.
        side: whose vocabulary it is, if the tokenizer has one for each side.
    """
    vocabulary = vocabulary_of(tokenizer, side)
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    tokens = [getattr(tokenizer, name, None) for name in names]
    return [vocabulary[token] for token in tokens if token in vocabulary]


def _special_ids(tokenizer: PreTrainedTokenizerBase, side: str) -> frozenset[int]:
    """Return the ids that stand for no text in the vocabulary of a side."""
    if side == "text" or not getattr(tokenizer, "separate_vocabs", False):
        return special_ids(tokenizer)
    vocabulary = vocabulary_of(tokenizer, side)
    tokens = vocabulary.keys() & tokenizer.all_special_tokens
    return frozenset(vocabulary[token] for token in tokens - {tokenizer.unk_token})


def spelling_ids(tokenizer: PreTrainedTokenizerBase, scripts: Iterable[str], side: str = "text_target") -> list[int]:
    """Return the tokens that spell any word: single letters of some scripts, digits, punctuation, and bytes.

    Args:
        tokenizer: the model's.
        scripts: first words of the names of letters in Unicode, such as LATIN.
        side: whose vocabulary it is, if the tokenizer has one for each side.
    """
    scripts = set(scripts)
    special = _special_ids(tokenizer, side)
    # In byte-level BPE a letter stands for a byte of any script.
    is_of_bytes = is_byte_level(tokenizer)

    ids = []
    for piece, token_id in vocabulary_of(tokenizer, side).items():
        if token_id in special:
            continue
        text = piece.removeprefix("▁")
        is_single = len(text) <= 1
        is_letter = is_single and text.isalpha() and not is_of_bytes
        if _BYTE.fullmatch(piece) or (is_single and (not is_letter or _script_of(text) in scripts)):
            ids.append(token_id)
    return ids


def _scripts_of(letters: Counter[str]) -> set[str]:
    """Return the scripts of a text by how often each of its characters stands there."""
    scripts: Counter[str] = Counter()
    for letter, number in letters.items():
        if letter.isalpha():
            scripts[_script_of(letter)] += number
    least = scripts.total() * _LEAST_SHARE
    return {script for script, number in scripts.items() if number >= least}


def _script_of(letter: str) -> str:
    """Return the first word of the name of a letter in Unicode, such as LATIN or CJK."""
    return unicodedata.name(letter, "").partition(" ")[0]


def _vocabulary_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a hash of the tokens and their ids. The language that a tokenizer is set to does not change it."""
    tokens = json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(tokens.encode()).hexdigest()[:16]


def write_shortlist(path: Path, tokenizer: PreTrainedTokenizerBase, counts: dict[int, int]) -> None:
    """Write a shortlist: the tokenizer's hash, then a token and its count on each line, the most frequent first."""
    ordered = sorted(counts, key=lambda token_id: (-counts[token_id], token_id))
    tokens = tokenizer.convert_ids_to_tokens(ordered)
    lines = [f"tokenizer\t{_vocabulary_hash(tokenizer)}"]
    for token_id, token in zip(ordered, tokens, strict=True):
        # Some tokens have characters at which other programs end a line.
        breaks_line = token.splitlines() != [token]
        lines.append(f"{json.dumps(token, ensure_ascii=breaks_line)}\t{counts[token_id]}")
    with replaced_file(path) as file:
        file.write(text_bytes(lines))


def read_shortlist(path: Path, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the tokens of a file by [`write_shortlist`].

    Raises:
        UserError: if it is no such file, or of another tokenizer.
    """
    lines = each_line(path)
    if next(lines, "").split("\t") != ["tokenizer", _vocabulary_hash(tokenizer)]:
        raise UserError(
            f"{path} is no shortlist of this tokenizer. Make it with hf-capsule-mt shortlist and the same --model."
        )

    tokens = []
    for number, line in enumerate(lines, 2):
        token, _, count = line.rpartition("\t")
        try:
            tokens.append(json.loads(token))
        except ValueError as error:
            raise UserError(f"{path}:{number} is not a token and its count: {line!r:.80}") from error
        if not count.isdigit():
            raise UserError(f"{path}:{number} is not a token and its count: {line!r:.80}")
    return tokenizer.convert_tokens_to_ids(tokens)
