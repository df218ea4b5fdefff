"""Lengths and rows of data sets of token ids: columns input_ids and labels."""

from collections.abc import Sequence
from itertools import pairwise
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Dataset as TorchDataset

if TYPE_CHECKING:
    import pyarrow
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


class ArrowRows(TorchDataset):
    """Rows of a `datasets.Dataset` as lists of ints, a batch at a time: what it gives itself, in half the time."""

    def __init__(self, dataset: "Dataset") -> None:
        self._tables = dataset.with_format("arrow")

    def __len__(self) -> int:
        return len(self._tables)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        """Return the rows of a batch; a `DataLoader` looks for this method."""
        table = self._tables[indices]
        columns = [_to_lists(table[name]) for name in table.column_names]
        return [dict(zip(table.column_names, row)) for row in zip(*columns)]


def fast_rows(pairs: Any) -> Any:
    """Return [`ArrowRows`] of a `datasets.Dataset` without a format of its own, and anything else as it is."""
    return ArrowRows(pairs) if _is_arrow(pairs) and pairs.format["type"] is None else pairs


def _is_arrow(pairs: Any) -> bool:
    # A trainer may be given lists where `datasets` is not installed.
    try:
        from datasets import Dataset
    except ImportError:
        return False
    return isinstance(pairs, Dataset)


def _to_lists(column: "pyarrow.ChunkedArray") -> list[Any]:
    import pyarrow

    array = pyarrow.concat_arrays(column.chunks)
    if not (pyarrow.types.is_list(array.type) and pyarrow.types.is_integer(array.type.value_type)) or array.null_count:
        return array.to_pylist()
    ends = array.offsets.to_pylist()
    values = array.values.to_numpy(zero_copy_only=False)[ends[0] : ends[-1]].tolist()
    return [values[start - ends[0] : end - ends[0]] for start, end in pairwise(ends)]
