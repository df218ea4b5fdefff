"""Top-5 overlap rates: how many of their words PAST and FUTURE know (Zheng et al. 2019, section 4.3)."""

import torch
from torch import Tensor, nn


@torch.no_grad()
def bag_overlaps(
    losses: nn.Module, capsules: Tensor, embedding: Tensor, targets: Tensor, target_mask: Tensor
) -> Tensor:
    """The rates r_OL^P and r_OL^F of every sentence, `[batch, 2]` float64; NaN where every bag is empty.

    At a step with n words in the bag, it is the fraction of the bag's words that are among the 5 n which the capsules
    find most likely; the mean is over the steps whose bag is not empty. A word that is in a bag twice counts once. As
    in training, the bag of PAST is of the words before the one that is written, that of FUTURE of this one and those
    after, the end of the sentence included. (In the paper's formula the word that is written is PAST.)

    Args:
        losses: the [`GuidedLosses`] of the model, with a weight for the bag-of-words loss.
        capsules: PAST, then FUTURE, `[batch, target, capsules, width]`.
        embedding: of the output words, `[vocabulary, d]`.
        targets: ids of the words written, `[batch, target]`.
        target_mask: `[batch, target]` bool, True where a word is written.
    """
    past, future = (part.flatten(-2) for part in capsules.tensor_split([losses.num_past], dim=2))
    queries = torch.stack([losses.past_bow(past), losses.future_bow(future)], dim=1)
    rates = torch.empty(len(targets), 2, dtype=torch.float64)
    for row, length in enumerate(target_mask.sum(1).tolist()):
        words = targets[row, :length]
        for column, bags in enumerate(_bags(words)):
            rates[row, column] = _rate(queries[row, column, :length] @ embedding.t(), words, *bags)
    return rates


def _bags(words: Tensor) -> list[tuple[Tensor, Tensor]]:
    """For PAST and for FUTURE: which steps have which words in their bag, and those of them that are no repetition."""
    every = torch.ones(len(words), len(words), dtype=torch.bool, device=words.device)
    same = words[:, None] == words
    past, future = every.tril(-1), every.triu()
    repeated_before, repeated_after = ((same & part).any(1) for part in (every.tril(-1), every.triu(1)))
    return [(past, past & ~repeated_before), (future, future & ~repeated_after)]


def _rate(logits: Tensor, words: Tensor, bags: Tensor, distinct: Tensor) -> Tensor:
    """The overlap of one sentence, from logits `[target, vocabulary]`."""
    ranks = logits.argsort(-1, descending=True).argsort(-1)[:, words]
    found = distinct & (ranks < 5 * bags.sum(1, keepdim=True))
    sizes = distinct.sum(1)
    return (found.sum(1)[sizes > 0].double() / sizes[sizes > 0]).mean()
