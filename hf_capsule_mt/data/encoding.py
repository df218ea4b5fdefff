"""Lines of text as token ids, cut to the length that a model reads."""

import logging
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from hf_capsule_mt.data.languages import TOKENIZING, LanguageCodes, language_ids
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.long_work import next_step

logger = logging.getLogger(__name__)

_TOKENIZED_TOGETHER = 2_000
"""Lines of one call of a tokenizer, which needs much memory for each."""
LETTERS_PER_TOKEN = 32
"""Letters for each token of a limit. A text with more is shortened before it is tokenised."""


def positions(config: PreTrainedConfig) -> int | None:
    """Return the most tokens that a model has positions for, or None."""
    return getattr(config, "max_position_embeddings", None)


def max_length_of(tokenizer: PreTrainedTokenizerBase) -> float:
    """Return the `model_max_length` of a tokenizer.

    Raises:
        UserError: if it is no number.
    """
    longest = tokenizer.model_max_length
    if not isinstance(longest, int | float):
        raise UserError(f"The tokenizer's model_max_length is {longest!r:.80}, which is no number. Correct it.")
    return longest


def source_limit(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the length of the longest source, in tokens, that model and tokenizer take.

    Raises:
        UserError: if no word fits.
    """
    longest = max_length_of(tokenizer)
    if longest < 1:
        # 0 and -1 stand for no limit, as null does.
        longest = VERY_LARGE_INTEGER

    model_positions = positions(config)
    if model_positions:
        longest = min(longest, model_positions)

    if longest < 2:
        # There would be room for the end of a sentence, and all translations would be empty.
        raise UserError(
            f"The model reads {longest} token at most, so no word fits. Raise the tokenizer's model_max_length."
        )
    return longest


def encode_lines(
    tokenizer: PreTrainedTokenizerBase,
    lines: Sequence[str],
    max_length: int,
    numbers: Sequence[int] | None = None,
    *,
    side: str = "text",
) -> list[list[int]]:
    """Return the token ids of every line, none for a blank one. Long lines are cut, with a warning.

    Args:
        tokenizer: the model's.
        lines: the texts.
        max_length: most tokens of a line, special tokens included.
        numbers: the number of each line, which the warning names (default: counted from 1).
        side: "text", or "text_target" for translations.
    """
    encoded = tokenize_lines(tokenizer, lines, max_length, side=side)
    cut_lines(tokenizer, lines, encoded, max_length, numbers, side=side)
    return encoded


def cut_lines(
    tokenizer: PreTrainedTokenizerBase,
    lines: Sequence[str],
    encoded: list[list[int]],
    max_length: int,
    numbers: Sequence[int] | None = None,
    *,
    side: str = "text",
) -> None:
    """Cut the lines that are too long, with a warning.

    Args:
        tokenizer: the model's.
        lines: the texts.
        encoded: the token ids of each line. Those of long lines are replaced in this list.
        max_length: most tokens of a line, special tokens included.
        numbers: the number of each line, which the warning names (default: counted from 1).
        side: "text", or "text_target" for translations.
    """
    too_long = [index for index, ids in enumerate(encoded) if len(ids) > max_length]
    for index in too_long:
        text = shortened(tokenizer, lines[index], max_length, side=side)
        encoded[index] = _ids(side, tokenizer, text, truncation=True, max_length=max_length)
    cut = [index + 1 if numbers is None else numbers[index] for index in too_long]
    warn_of_cut(cut, max_length, "lines" if side == "text" else "given translations")


def warn_of_cut(numbers: Sequence[int], max_length: int, what: str = "lines") -> None:
    """Warn of texts that were longer than the model reads, if there are any.

    Args:
        numbers: their lines.
        max_length: most tokens of a text.
        what: what the texts are.
    """
    if numbers:
        logger.warning(
            "%d %s have more than %d tokens, the model's limit, and were cut (the first is line %d)",
            len(numbers),
            what,
            max_length,
            numbers[0],
        )


def tokenize_lines(
    tokenizer: PreTrainedTokenizerBase,
    lines: Sequence[str],
    max_length: int | None = None,
    *,
    side: str = "text",
) -> list[list[int]]:
    """Return the token ids of every line, and none for a blank one.

    Args:
        tokenizer: the model's.
        lines: the texts.
        max_length: the tokens that are needed (default: all). Longer lines are not cut to it, but only the beginning
            of a very long one is read.
        side: "text", or "text_target" for translations.
    """
    filled = [index for index, line in enumerate(lines) if line.strip()]
    encoded = [[] for _ in lines]

    empty = _special_tokens(tokenizer)
    # Looking for codes in a vocabulary takes as long as some lines.
    if any(line.startswith((">>", "<2")) for line in lines):
        empty = special_ids(tokenizer)

    for start in range(0, len(filled), _TOKENIZED_TOGETHER):
        next_step()
        part = filled[start : start + _TOKENIZED_TOGETHER]
        texts = [shortened(tokenizer, lines[index], max_length, side=side) for index in part]
        ids_of_part = _ids(side, tokenizer, texts)
        for index, ids in zip(part, ids_of_part, strict=True):
            # Invisible characters may have no tokens.
            has_text = bool(set(ids) - empty)
            encoded[index] = ids if has_text else []
    return encoded


def shortened(
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    max_length: int | None,
    *,
    side: str = "text",
) -> str:
    """Return the beginning of a very long text, or all of a shorter text.

    A tokenizer takes hundreds of bytes for a letter, and usually only the first tokens are used.

    Args:
        tokenizer: the model's.
        text: one text.
        max_length: a beginning has more tokens than this. With None the text stays whole.
        side: "text", or "text_target" for a translation.
    """
    if max_length is None:
        return text

    size = LETTERS_PER_TOKEN * max_length
    while size < len(text):
        # At a space no word is cut in two. A text without spaces is cut anywhere.
        last_space = text.rfind(" ", 0, size)
        beginning = text[: max(last_space, size // 2)]
        if len(_ids(side, tokenizer, beginning)) > max_length + LETTERS_PER_TOKEN:
            return beginning
        size *= 4
    return text


def _ids(side: str, tokenizer: PreTrainedTokenizerBase, texts: str | Sequence[str], **options: Any) -> Any:
    # verbose=False: the library's own warning of long texts names no lines.
    with TOKENIZING:
        return tokenizer(**{side: texts}, **options, verbose=False)["input_ids"]


def special_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the ids that stand for no text: codes of languages, and special tokens except the unknown token."""
    codes = LanguageCodes(tokenizer)
    return _special_tokens(tokenizer).union(codes.ids.values(), language_ids(tokenizer).values())


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    # The unknown token stands for text.
    return frozenset(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
