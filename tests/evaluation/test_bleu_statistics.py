"""BLEU from statistics of sentences is sacreBLEU's, also of statistics that were written to a record."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from hf_capsule_mt.evaluation.bleu_statistics import bleu, pack_statistics, sentence_statistics, unpack_statistics


@pytest.mark.parametrize(
    "statistics",
    [
        [50, 30, 20, 10, 80, 70, 60, 50, 80, 85],
        [50, 30, 20, 10, 80, 70, 60, 50, 80, 60],
        [5, 3, 0, 0, 8, 7, 6, 5, 8, 8],
        [0, 0, 0, 0, 8, 7, 6, 5, 8, 8],
        [2, 1, 0, 0, 2, 1, 0, 0, 2, 2],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 4],
    ],
)
def test_bleu_is_sacrebleus(statistics):
    expected = BLEU.compute_bleu(statistics[:4], statistics[4:8], *statistics[8:], smooth_method="exp").score
    found = bleu(np.array([statistics, statistics], dtype=float))
    assert found == pytest.approx([expected] * 2, rel=1e-12)


def test_packed_and_unpacked():
    hypotheses = ["the cat sat on the mat", "a dog", "", "on the mat sat a cat ."]
    references = [["the cat sat on a mat", "the dog ran", "a", "a cat sat on the mat ."]] * 2
    metric = BLEU(tokenize="none")
    statistics = sentence_statistics(metric, hypotheses, references)
    found = unpack_statistics(pack_statistics(statistics))
    assert found.tolist() == statistics
    assert bleu(found.sum(0)) == pytest.approx(metric.corpus_score(hypotheses, references).score, rel=1e-12)
