"""The metric of the `evaluate` library is `score_translations`, and is found from a command too."""

import subprocess
import sys
from pathlib import Path

import pytest

from hf_capsule_mt.evaluation.scores import score_translations

pytest.importorskip("evaluate")

from hf_capsule_mt.evaluation.metric import TranslationScores

HYPOTHESES = ["a cat sat on the mat", "he says no"]
FIRST = ["the cat sat on the mat", "He said no"]
SECOND = ["a cat was on the mat", "he says yes"]
SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def metric(tmp_path):
    return TranslationScores(cache_dir=str(tmp_path))


def test_one_reference(metric):
    assert metric.compute(predictions=HYPOTHESES, references=FIRST) == score_translations(HYPOTHESES, [FIRST])


def test_several_references_and_options(metric):
    options = {"tokenize": "none", "lowercase": True, "metrics": ["bleu", "ter"]}
    for prediction, references in zip(HYPOTHESES, zip(FIRST, SECOND)):
        metric.add(prediction=prediction, reference=list(references))
    assert metric.compute(**options) == score_translations(HYPOTHESES, [FIRST, SECOND], **options)


def test_different_numbers(metric):
    with pytest.raises(ValueError, match=r"\(2\).*\(1\)"):
        metric.compute(predictions=HYPOTHESES, references=FIRST[:1])


def test_uneven_references(metric):
    with pytest.raises(ValueError, match="1 to 2 references"):
        metric.compute(predictions=HYPOTHESES, references=[FIRST, SECOND[:1]])


@pytest.mark.slow
def test_import_where_the_command_of_that_name_comes_first():
    code = f"import sys; sys.path.insert(0, {str(SCRIPTS)!r}); import hf_capsule_mt.evaluation.metric as m; "
    code += "print(m.evaluate.__file__, sys.path[0])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found, first = result.stdout.split()
    assert Path(found).name == "__init__.py"
    assert first == str(SCRIPTS)
