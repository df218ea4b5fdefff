"""Assignment of source words to PAST and FUTURE before and after their translation (Zheng et al. 2019, section 4.3).

The step that writes target word t has read the words before it: PAST is what they translate, FUTURE the rest.
"""

import torch
from torch import Tensor

FARTHEST = 10
"""Steps before and after a word is written, of which the means are told one by one."""


class PastAndFutureSums:
    """Sums of the assignment to PAST and FUTURE before and after a source word is translated, batch by batch.

    A source word is translated when all target words that are aligned with it are written: its steps before are those
    up to the first of these, and its steps after follow the last. Source words that none is aligned with do not count.
    """

    def __init__(self) -> None:
        self.words = self.aligned_words = 0
        # By step around the translation: the number of assignments, and their sums to PAST and FUTURE.
        self._sums = torch.zeros(2 * FARTHEST + 1, 3, dtype=torch.float64)
        self._before = torch.zeros(3, dtype=torch.float64)
        self._after = torch.zeros(3, dtype=torch.float64)

    def add(self, shares: Tensor, aligned: Tensor, source_mask: Tensor, target_mask: Tensor) -> None:
        """Add a batch.

        Args:
            shares: of source words in PAST and in FUTURE, `[batch, target, source, 2]`.
            aligned: `[batch, target, source]` bool: which target word translates which source word.
            source_mask: `[batch, source]` bool, True where there is a word; the last one, the end, is not counted.
            target_mask: `[batch, target]` bool, True where a word is written.
        """
        length = aligned.shape[1]
        steps = torch.arange(length, device=aligned.device)[None, :, None]
        first = torch.where(aligned, steps, length).amin(1, keepdim=True)
        last = torch.where(aligned, steps, -1).amax(1, keepdim=True)
        counted = aligned.any(1, keepdim=True) & target_mask[:, :, None]
        before, after = counted & (steps <= first), counted & (steps > last)
        self.words += int(source_mask.sum()) - len(source_mask)
        self.aligned_words += int(aligned.any(1).sum())
        values = torch.cat([torch.ones_like(shares[..., :1]), shares], dim=-1).double()
        self._before += values[before].sum(0).cpu()
        self._after += values[after].sum(0).cpu()
        distances = torch.where(before, steps - first, steps - last)
        near = (before | after) & (distances.abs() <= FARTHEST)
        self._sums.index_add_(0, distances[near].cpu() + FARTHEST, values[near].cpu())

    def result(self) -> dict[str, object]:
        """Means to PAST and FUTURE, None where there is nothing to take one of.

        "before" and "after" translation; and "around" it: by steps from the one that writes the (first or last) word
        that translates it, which is step 0 and before.
        """
        around = {step - FARTHEST: _means(sums) for step, sums in enumerate(self._sums) if sums[0]}
        return {
            "words": self.words,
            "aligned_words": self.aligned_words,
            "before": _means(self._before),
            "after": _means(self._after),
            "around": [{"step": step, **means} for step, means in around.items()],
        }


def _means(sums: Tensor) -> dict[str, float | int | None]:
    count, past, future = sums.tolist()
    mean = (lambda total: total / count) if count else (lambda total: None)
    return {"past": mean(past), "future": mean(future), "assignments": int(count)}
