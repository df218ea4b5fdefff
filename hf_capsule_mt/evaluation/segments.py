"""Segments that trained metrics score: whether they belong together, and in which batches they are read."""

from collections.abc import Iterator, Sequence

from hf_capsule_mt.errors import UserError


def check_segments(sources: Sequence[str], translations: Sequence[str], references: Sequence[str] | None) -> None:
    """Raise a UserError unless there are translations, and as many sources and references, if there are any."""
    if not translations:
        raise UserError("Nothing to score: there are no translations.")
    for name, texts in (("sources", sources), ("references", references)):
        if texts is not None and len(texts) != len(translations):
            raise UserError(f"There are {len(translations)} translations, but {len(texts)} {name}.")


def batches_of_like_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield the indices of each batch. Texts of like length make one, so that little is padded."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for begin in range(0, len(order), batch_size):
        yield order[begin : begin + batch_size]
