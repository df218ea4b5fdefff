"""Parallel text as token ids, kept compactly."""

from array import array
from collections.abc import Iterable
from itertools import pairwise

from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data.parallel_text import ParallelText

CHUNK = 10_000


class TokenizedPairs(Dataset):
    """Tokenised pairs for `DataCollatorForSeq2Seq`: items are {"input_ids": list[int], "labels": list[int]}.

    The ids lie in one buffer a side at four bytes each, so that millions of pairs fit in memory.

    Attributes:
        too_long: number of pairs that were left out because one side is over its limit.
    """

    def __init__(self) -> None:
        self.too_long = 0
        self._sources = _IntLists()
        self._targets = _IntLists()

    def append(self, input_ids: Iterable[int], labels: Iterable[int]) -> None:
        """Add one pair at the end."""
        self._sources.append(input_ids)
        self._targets.append(labels)

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        return {"input_ids": self._sources[index], "labels": self._targets[index]}

    @property
    def lengths(self) -> list[tuple[int, int]]:
        """(source, target) numbers of tokens of each pair, for `TokenBudgetBatchSampler`."""
        return list(zip(self._sources.lengths(), self._targets.lengths()))


class _IntLists:
    """Lists of ints laid end to end in one array."""

    def __init__(self) -> None:
        self.values = array("i")
        self.ends = array("q", [0])

    def append(self, values: Iterable[int]) -> None:
        self.values.extend(values)
        self.ends.append(len(self.values))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, index: int) -> list[int]:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is not in a data set of {len(self)} pairs")
        return self.values[self.ends[index] : self.ends[index + 1]].tolist()

    def lengths(self) -> Iterable[int]:
        return (end - start for start, end in pairwise(self.ends))


def tokenize_pairs(
    text: ParallelText,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int | None = None,
    max_target_length: int | None = None,
) -> TokenizedPairs:
    """Tokenise both sides, targets as targets (`text_target=`), and leave out pairs over a limit.

    Args:
        text: the pairs.
        tokenizer: any tokenizer of Transformers; one with two vocabularies is asked for each side's own.
        max_source_length: most tokens of a source, special tokens included; None for no limit.
        max_target_length: the same for a target.

    Raises:
        ValueError: every pair is over a limit.
    """
    pairs = TokenizedPairs()
    for start in range(0, len(text.sources), CHUNK):
        sources, targets = text.sources[start : start + CHUNK], text.targets[start : start + CHUNK]
        batch = tokenizer(sources, text_target=targets, return_attention_mask=False, verbose=False)
        for input_ids, labels in zip(batch["input_ids"], batch["labels"]):
            if _over(input_ids, max_source_length) or _over(labels, max_target_length):
                pairs.too_long += 1
            else:
                pairs.append(input_ids, labels)
    if not len(pairs):
        raise ValueError(
            f"All {pairs.too_long} pairs are longer than max_source_length={max_source_length} or "
            f"max_target_length={max_target_length} tokens. Raise the limits."
        )
    return pairs


def _over(ids: list[int], limit: int | None) -> bool:
    return limit is not None and len(ids) > limit
