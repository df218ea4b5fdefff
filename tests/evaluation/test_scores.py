"""Scores against BLEU as multi-bleu.perl defines it, and the conventions behind the papers' numbers."""

import json
import math
from collections import Counter

import pytest

from hf_capsule_mt.evaluation.scores import score_translations

HYPOTHESES = ["the cat sat on the mat today", "", "He said : no , it is 3.5 % more .", "a b c d e"]
REFERENCES = [
    ["the cat sat on a mat", "nothing", "he said : no , it was 3.5 % more .", "a b c d e f"],
    ["a cat was on the mat today again", "there is nothing", "He says no , it is 3.5 % more", "a b x d"],
]


def multi_bleu(hypotheses, references):
    """multi-bleu.perl: clipped n-gram precisions, brevity against the closest reference (of two, the shorter)."""
    correct, total = [0] * 4, [0] * 4
    hypothesis_length = reference_length = 0
    for hypothesis, group in zip(hypotheses, zip(*references)):
        words, groups = hypothesis.split(), [reference.split() for reference in group]
        hypothesis_length += len(words)
        reference_length += min((abs(len(other) - len(words)), len(other)) for other in groups)[1]
        for n in range(1, 5):
            counts, *limits = (
                Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1)) for text in (words, *groups)
            )
            total[n - 1] += sum(counts.values())
            correct[n - 1] += sum(min(count, max(limit[gram] for limit in limits)) for gram, count in counts.items())
    precision = math.prod(c / t for c, t in zip(correct, total)) ** 0.25
    return 100 * min(1, math.exp(1 - reference_length / hypothesis_length)) * precision


@pytest.mark.parametrize("references", [REFERENCES[:1], REFERENCES], ids=["one reference", "two references"])
def test_tokenize_none_is_multi_bleu(references):
    score = score_translations(HYPOTHESES, references, tokenize="none", metrics=["bleu"])["bleu"]
    assert score["score"] == pytest.approx(multi_bleu(HYPOTHESES, references), rel=1e-12)
    assert score["signature"].startswith(f"nrefs:{len(references)}|case:mixed|eff:no|tok:none|smooth:exp|version:")


def test_lowercase_is_multi_bleu_of_lowercased_text():
    score = score_translations(HYPOTHESES, REFERENCES, tokenize="none", lowercase=True)
    lowered = [[text.lower() for text in stream] for stream in (HYPOTHESES, *REFERENCES)]
    assert score["bleu"]["score"] == pytest.approx(multi_bleu(lowered[0], lowered[1:]), rel=1e-12)
    assert score["bleu"]["score"] != pytest.approx(multi_bleu(HYPOTHESES, REFERENCES), rel=1e-3)
    assert score["chrf"]["score"] == score_translations(lowered[0], lowered[1:])["chrf"]["score"]
    assert "case:lc" in score["bleu"]["signature"]


def test_every_metric_has_its_score_and_signature():
    # TER: one shift-free edit (a substitution) in five words of the closest reference.
    scores = score_translations(["a b x d e"], [["A b c d e"]], metrics=["bleu", "chrf", "chrf++", "ter"])
    assert scores["ter"] == {"score": 20.0, "signature": scores["ter"]["signature"]}
    assert "case:lc" in scores["ter"]["signature"]
    assert "nw:0" in scores["chrf"]["signature"]
    assert "nw:2" in scores["chrf++"]["signature"]
    assert scores["chrf++"]["score"] != scores["chrf"]["score"]
    assert json.loads(json.dumps(scores)) == scores
