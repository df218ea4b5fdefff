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
    # `sentence_score` would be another BLEU.
    scores = (
        metric.corpus_score([text], [[other] for other in group]) for text, *group in zip(hypotheses, *references)
    )
    return [[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores]


def bleu(statistics: np.ndarray) -> np.ndarray:
    """Return BLEU of corpora, 0 to 100, `[...]`, as sacreBLEU computes it with smoothing "exp".

    Statistics are the matches of 1 to 4 words, n-grams, length and that of the reference, `[..., 10]`.
    """
    matches, totals = statistics[..., :ORDERS], statistics[..., ORDERS : 2 * ORDERS]
    length, reference = statistics[..., -2], statistics[..., -1]
    # The first order without a match counts a half, the next one a quarter, and so on.
    smoothing = 2.0 ** np.cumsum(matches == 0, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(matches == 0, 1 / smoothing, matches) / totals
        score = 100 * np.minimum(1, np.exp(1 - reference / length)) * np.exp(np.log(precision).mean(-1))
    # Without a match of any length, or where sentences are too short for 4 words, there is no mean.
    defined = (matches.sum(-1) > 0) & (totals > 0).all(-1)
    return np.where(defined, score, 0.0)


def pack_statistics(statistics: Sequence[Sequence[int]]) -> dict[str, str]:
    """Return the statistics as lines of numbers, one for every sentence, without the n-grams, which lengths tell."""
    columns = [[row[index] for row in statistics] for index in (*range(ORDERS), -2, -1)]
    return {name: " ".join(map(str, column)) for name, column in zip(_COLUMNS, columns)}


def unpack_statistics(packed: Mapping[str, str]) -> np.ndarray:
    """Return the statistics that [`pack_statistics`] packed, `[sentences, 10]`, in float64."""
    *matches, words, reference = np.array([packed[name].split() for name in _COLUMNS], dtype=np.float64)
    totals = [np.maximum(words - order, 0) for order in range(ORDERS)]
    return np.stack([*matches, *totals, words, reference], axis=-1)
