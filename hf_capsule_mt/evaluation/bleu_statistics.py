"""The counts of every sentence that BLEU is computed from. With them any two scored systems can be compared later."""

from collections.abc import Mapping, Sequence

import numpy as np
from sacrebleu.metrics import BLEU

ORDERS = 4
_COLUMNS = (*(f"matches of {order}" for order in range(1, ORDERS + 1)), "words", "words of the reference")


def sentence_statistics(
    metric: BLEU, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> list[list[int]]:
    """Return for every sentence its matches of 1 to 4 words, its n-grams, its length and its reference's."""
    statistics = []
    for hypothesis, *sentence_references in zip(hypotheses, *references):
        # `sentence_score` would be another BLEU.
        score = metric.corpus_score([hypothesis], [[reference] for reference in sentence_references])
        statistics.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
    return statistics


def bleu(statistics: np.ndarray) -> np.ndarray:
    """Return BLEU of corpora, 0 to 100, `[...]`, as sacreBLEU computes it with smoothing "exp".

    sacreBLEU's `compute_bleu` takes one corpus at a time, which is a hundred times slower. A comparison of a study
    scores a hundred thousand.

    Args:
        statistics: matches of 1 to 4 words, n-grams, length and that of the reference, `[..., 10]`, float64.
    """
    matches = statistics[..., :ORDERS]
    totals = statistics[..., ORDERS : 2 * ORDERS]
    length = statistics[..., -2]
    reference_length = statistics[..., -1]
    # The first order without a match counts a half, the next one a quarter, and so on.
    smoothing = 2.0 ** np.cumsum(matches == 0, axis=-1)
    smoothed = np.where(matches == 0, 1 / smoothing, matches)
    # What is not defined here is left out below.
    with np.errstate(divide="ignore", invalid="ignore"):
        brevity = np.minimum(1, np.exp(1 - reference_length / length))
        score = 100 * brevity * np.exp(np.log(smoothed / totals).mean(-1))
    # Without a match of any length, or where sentences are too short for 4 words, there is no mean.
    has_match = matches.sum(-1) > 0
    has_all_orders = (totals > 0).all(-1)
    return np.where(has_match & has_all_orders, score, 0.0)


def pack_statistics(statistics: Sequence[Sequence[int]]) -> dict[str, str]:
    """Return the statistics as lines of numbers, one for every sentence, without the n-grams, which lengths tell."""
    indices = (*range(ORDERS), -2, -1)
    packed = {}
    for name, index in zip(_COLUMNS, indices):
        packed[name] = " ".join(str(row[index]) for row in statistics)
    return packed


def unpack_statistics(packed: Mapping[str, str]) -> np.ndarray:
    """Return the statistics that [`pack_statistics`] packed, `[sentences, 10]`, in float64."""
    columns = [packed[name].split() for name in _COLUMNS]
    *matches, words, reference_words = np.array(columns, dtype=np.float64)
    # n words have n - 1 pairs, n - 2 triples, and so on.
    totals = [np.maximum(words - order, 0) for order in range(ORDERS)]
    return np.stack([*matches, *totals, words, reference_words], axis=-1)
