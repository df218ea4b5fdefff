"""The expected quality in answers: only if it is asked for, and only from a calibration of the same model."""

from dataclasses import asdict, replace

import pytest
import torch
from starlette.testclient import TestClient
from tiny_marian import save_tiny_marian

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.calibration_fit import fit_calibration
from hf_capsule_mt.serving.app import build_app
from hf_capsule_mt.serving.models import load_models, with_calibrations
from hf_capsule_mt.translation.generation.model_options import DecodingOptions
from hf_capsule_mt.translation.quality.calibration import calibration_settings
from hf_capsule_mt.translation.quality.judge import judge

DECODING = DecodingOptions(model="", num_beams=2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A checkpoint, and a calibration of it."""
    folder = tmp_path_factory.mktemp("quality")
    checkpoint = save_tiny_marian(folder / "checkpoint")
    options = replace(DECODING, model=str(checkpoint)).pinned()
    scores = [-number / 20 for number in range(100)]
    qualities = [100 + 15 * score for score in scores]
    calibration = fit_calibration(scores, [4] * 100, qualities, settings=calibration_settings(options))
    calibration.write(folder / "calibration.json")
    return checkpoint, folder / "calibration.json"


@pytest.fixture(scope="module")
def models(files):
    checkpoint, calibration = files
    specifications = [f"en-de={checkpoint}", f"en-fr={checkpoint}"]
    loaded = load_models(specifications, DECODING, torch.device("cpu"))
    return with_calibrations(loaded, [f"en-de={calibration}"], DECODING)


def test_the_quality_of_each_sentence(models):
    model = models[0]
    asked = {"q": ["A b c! D e.", "1984"], "source": "en", "target": "de"}
    with TestClient(build_app(models)) as client:
        plain = client.post("/translate", json=asked).json()
        found = client.post("/translate", json={**asked, "quality": True}).json()
        form = client.post("/translate", data={**asked, "q": "A b c!", "quality": "true"}).json()
    assert "quality" not in plain
    assert found["translatedText"] == plain["translatedText"]
    sentences = model.prepare("A b c! D e.").sentences
    expected = []
    for sentence, ranked in zip(sentences, model.decode(sentences, rereads=True), strict=True):
        judgement = judge(model.translator.reader, sentence, ranked[0])
        [quality] = model.calibration.expect([judgement.score], [judgement.source_length])
        expected.append({"source": sentence.segment.text, "metric": "chrf", **asdict(quality)})
    for each in expected:
        each["interval"] = [*each["interval"]]
    # What is copied was not translated.
    assert found["quality"] == [expected, []]
    assert form["quality"] == expected[:1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": "fr", "quality": True}, "quality is not supported, en-fr is not calibrated"),
        ({"quality": "much"}, "quality is neither true nor false"),
    ],
)
def test_mistakes_of_clients(models, change, words):
    with TestClient(build_app(models)) as client:
        found = client.post("/translate", json={"q": "a", "source": "en", "target": "de", **change})
    assert found.status_code == 400
    assert words in found.json()["error"]


def test_mistakes_of_operators(models, files):
    _, calibration = files
    with pytest.raises(UserError, match="'en-es=x' is no pair of --models"):
        with_calibrations(models, ["en-es=x"], DECODING)
    with pytest.raises(UserError, match="num_beams is 3, not 2"):
        with_calibrations(models, [f"en-de={calibration}"], replace(DECODING, num_beams=3))
