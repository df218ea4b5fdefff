"""Lengths of the rows of data sets of token ids: columns input_ids and labels."""

from collections.abc import Sequence
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from datasets import Dataset

SIDES = ("input_ids", "labels")
_CHUNK = 10_000


def longest_sides(pairs: "Dataset | Sequence[dict[str, Any]]") -> np.ndarray:
    """Return the number of tokens of the longer side of each pair, `[N]`, uint16, or int32 if that is too small.

    Of a `datasets.Dataset` only the bounds of its lists are read, and the lengths are mapped from a temporary file, so
    that they need not stay in memory.

    Raises:
        ValueError: if it has no columns input_ids and labels.
    """
    if not _is_arrow(pairs):
        lengths = np.array([max(len(pair[side]) for side in SIDES) for pair in pairs], np.int32)
        return lengths.astype(_lengths_type(lengths))
    import pyarrow.compute as pc

    missing = [side for side in SIDES if side not in pairs.column_names]
    if missing:
        raise ValueError(f"the data set has no column {missing[0]}, only {', '.join(pairs.column_names)}; tokenise it")
    if not len(pairs):
        return np.empty(0, np.uint16)
    with TemporaryFile() as file:
        lengths = np.memmap(file, np.uint16, "w+", shape=len(pairs))
    start = 0
    for table in pairs.select_columns(list(SIDES)).with_format("arrow").iter(_CHUNK):
        sides = [pc.list_value_length(table[name]).to_numpy() for name in SIDES]
        longest = np.maximum(*sides)
        lengths = lengths.astype(np.result_type(lengths, _lengths_type(longest)), copy=False)
        lengths[start : start + len(table)] = longest
        start += len(table)
    return lengths


def _lengths_type(lengths: np.ndarray) -> type:
    return np.uint16 if lengths.max(initial=0) <= np.iinfo(np.uint16).max else np.int32


def _is_arrow(pairs: Any) -> bool:
    # A trainer may be given lists where `datasets` is not installed.
    try:
        from datasets import Dataset
    except ImportError:
        return False
    return isinstance(pairs, Dataset)
