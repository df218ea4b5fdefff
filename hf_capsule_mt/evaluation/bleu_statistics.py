"""The counts of every sentence that BLEU is computed from. With them any two scored systems can be compared later."""

from collections.abc import Mapping, Sequence

import numpy as np
from sacrebleu.metrics import BLEU

ORDERS = 4
_COLUMNS = (
    "matches of 1",
    "matches of 2",
    "matches of 3",
    "matches of 4",
    "words",
    "words of the reference",
)


def sentence_statistics(
    metric: BLEU,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
) -> list[list[int]]:
    """Return for every sentence its matches of 1 to 4 words, its n-grams, its length and its reference's."""
    statistics = []
    for hypothesis, *sentence_references in zip(hypotheses, *references):
        # A corpus of one sentence, because `sentence_score` would be another BLEU.
        streams = [[reference] for reference in sentence_references]
        score = metric.corpus_score([hypothesis], streams)
        counts = [*score.counts, *score.totals]
        counts.append(score.sys_len)
        counts.append(score.ref_len)
        statistics.append(counts)
    return statistics


def bleu(statistics: np.ndarray) -> np.ndarray:
    """Return BLEU of corpora, 0 to 100, `[...]`, as sacreBLEU computes it with smoothing "exp".

    sacreBLEU's `compute_bleu` takes one corpus at a time, which is a hundred times slower. A comparison of a study
    scores a hundred thousand.

    Args:
        statistics: matches of 1 to 4 words, n-grams of 1 to 4 words, length of the translation, and length of the
            reference, `[..., 10]`, float64.
    """
    matches = statistics[..., :ORDERS]
    totals = statistics[..., ORDERS : 2 * ORDERS]
    length = statistics[..., -2]
    reference_length = statistics[..., -1]

    # The first order without a match counts a half, the next one a quarter, and so on.
    is_missing = matches == 0
    smoothing = 2.0 ** np.cumsum(is_missing, axis=-1)
    smoothed = np.where(is_missing, 1 / smoothing, matches)

    # Divisions by zero are replaced by a score of 0 below.
    with np.errstate(divide="ignore", invalid="ignore"):
        length_ratio = reference_length / length
        brevity = np.minimum(1, np.exp(1 - length_ratio))
        mean_log_precision = np.log(smoothed / totals).mean(-1)
        score = 100 * brevity * np.exp(mean_log_precision)

    # Without a match of any length, or where sentences are too short for 4 words, there is no mean.
    has_match = matches.sum(-1) > 0
    has_all_orders = (totals > 0).all(-1)
    return np.where(has_match & has_all_orders, score, 0.0)


def pack_statistics(statistics: Sequence[Sequence[int]]) -> dict[str, str]:
    """Return by name the statistics as a line with one number for every sentence.

    The numbers of n-grams are left out, because they follow from the lengths.
    """
    indices = (*range(ORDERS), -2, -1)
    packed = {}
    for name, index in zip(_COLUMNS, indices):
        numbers = [str(row[index]) for row in statistics]
        packed[name] = " ".join(numbers)
    return packed


def unpack_statistics(packed: Mapping[str, str]) -> np.ndarray:
    """Return the statistics that [`pack_statistics`] packed, `[sentences, 10]`, in float64."""
    columns = [packed[name].split() for name in _COLUMNS]
    *matches, words, reference_words = np.array(columns, dtype=np.float64)
    # n words have n - 1 pairs, n - 2 triples, and so on.
    totals = []
    for shorter_by in range(ORDERS):
        ngrams = np.maximum(words - shorter_by, 0)
        totals.append(ngrams)
    return np.stack([*matches, *totals, words, reference_words], axis=-1)
