"""BPE-dropout, Algorithm 1 of Provilkov et al. 2020, as the probability of every segmentation."""

from collections import Counter


def segmentations(pieces, ranks, dropout):
    """The probability of each segmentation of a word, by its pieces; `ranks` has the order of the merges."""
    places = sorted(range(len(pieces) - 1), key=lambda place: (ranks.get(pieces[place : place + 2], 1e9), place))
    possible = [place for place in places if pieces[place : place + 2] in ranks]
    probabilities = Counter({pieces: dropout ** len(possible)})
    for number, place in enumerate(possible):
        merged = (*pieces[:place], pieces[place] + pieces[place + 1], *pieces[place + 2 :])
        # Those before it are left out, and it is not.
        chosen = dropout**number * (1 - dropout)
        for end, probability in segmentations(merged, ranks, dropout).items():
            probabilities[end] += chosen * probability
    return probabilities
