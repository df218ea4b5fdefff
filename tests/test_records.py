"""Records are read as they were written, and what is none is refused."""

import json

import pytest
import torch
from stored_records import records, stored

from hf_capsule_mt.records import (
    DataFile,
    Environment,
    EvaluationRecord,
    RunRecord,
    read,
    write,
)

KINDS = {"run_record": RunRecord, "test_201": EvaluationRecord}
FILES = {name: kind for part, kind in KINDS.items() for name in records("multi30k") if part in name}


@pytest.mark.parametrize("name", FILES)
def test_stored_records(name, tmp_path):
    """Nothing is lost, and nothing is made up."""
    record = read(FILES[name], stored(name))
    write(record, tmp_path / name)
    assert json.loads((tmp_path / name).read_text()) == json.loads(stored(name).read_text())


def test_there_are_records_of_every_kind():
    assert set(FILES.values()) == set(KINDS.values())


def test_environment():
    found = Environment.here("cpu")
    assert found.packages["torch"] == torch.__version__
    assert {"hf-capsule-mt", "transformers", "accelerate", "tokenizers", "sacrebleu"} <= found.packages.keys()
    assert found.python.startswith("3.")
    assert found.cpu_threads == torch.get_num_threads()
    assert str(found).startswith(f"{found.device}, {found.cpu_threads} thread(s), torch {torch.__version__}, transf")
    assert str(found).endswith(f", {found.date}")


def test_the_environment_has_the_gpu_that_works(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index or 0}")
    devices = {"cuda:1": "GPU 1", torch.device("cuda", 2): "GPU 2", None: "GPU 0"}
    assert {device: Environment.here(device).device for device in devices} == devices
    assert not Environment.here("cpu").device.startswith("GPU")


def test_updates_per_second_are_those_of_the_last_call():
    record = read(RunRecord, stored("multi30k_gdr_run_record"))
    assert record.updates_per_second == 3000 / 4878.6
    object.__setattr__(record.training, "resume_from_checkpoint", "run/checkpoint-1000")
    assert record.updates_per_second == 2000 / 4878.6
    object.__setattr__(record.training, "resume_from_checkpoint", f"run/checkpoint-{record.updates}")
    assert record.updates_per_second is None
    object.__setattr__(record.training, "resume_from_checkpoint", "run/good")
    assert record.updates_per_second is None


def nested(found, place):
    *parents, last = place.split("/")
    for parent in parents:
        found = found[parent]
    return found, last


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (
            "parameters",
            None,
            r"has parameters = None, which must be a whole number; give a record that hf-capsule-mt tr",
        ),
        ("parameters", True, "has parameters = True, which"),
        ("data/train_file", "a.en", "has data.train_file = 'a.en', which must be a list; give"),
        ("data/train_file", ["a.en", 3], r"has data.train_file\[1\] = 3"),
        ("environment", [], r"has environment = \[\], which must be an object"),
        ("environment/packages", {"torch": 2}, "has environment.packages.torch = 2"),
        ("environment/colour", "red", "has environment.colour, of which nothing is known; give"),
        ("colour", "red", "has colour, of which nothing is known"),
        ("kind", "speed", "is no record of the kind 'run'; give a record that hf-capsule-mt train wrote"),
        ("version", 3, "is of version 3; this release reads version 2"),
        ("version", None, "is of version None; this release reads version 2"),
    ],
)
def test_fields_that_are_wrong(place, value, message, tmp_path):
    path = tmp_path / "record.json"
    write(read(RunRecord, stored("multi30k_gdr_run_record")), path)
    found = json.loads(path.read_text())
    parent, last = nested(found, place)
    parent[last] = value
    path.write_text(json.dumps(found))
    with pytest.raises(ValueError, match=f"^{path} {message}"):
        read(RunRecord, path)


@pytest.mark.parametrize("place", ["parameters", "pairs", "environment/device", "training/optim", "model/size"])
def test_fields_that_are_missing(place, tmp_path):
    path = tmp_path / "record.json"
    found = json.loads((stored("multi30k_gdr_run_record")).read_text())
    parent, last = nested(found, place)
    del parent[last]
    path.write_text(json.dumps(found))
    with pytest.raises(ValueError, match=f"^{path} lacks {place.replace('/', '.')}; give a record that"):
        read(RunRecord, path)


@pytest.mark.parametrize("kind", KINDS.values())
@pytest.mark.parametrize("text", ["{}", '{"training": 1, "results": [3]}', "[]", "{"])
def test_files_of_something_else(kind, text, tmp_path):
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^{path} is (no record of the kind '{kind.KIND}'|not valid JSON)"):
        read(kind, path)
    with pytest.raises(FileNotFoundError, match="absent"):
        read(kind, tmp_path / "absent.json")


def test_parts_of_an_evaluation_are_optional(tmp_path):
    path = tmp_path / "record.json"
    known = read(EvaluationRecord, stored("multi30k_gdr_test_2016_flickr"))
    assert known.comparison is known.systems is None
    files = [DataFile("a", "0"), DataFile("b", "1")]
    record = EvaluationRecord(
        settings=known.settings,
        comparison={"systems": {"b": {"bleu": {"p_value": 0.5}}}},
        systems=files,
        references=files[:1],
        environment=known.environment,
    )
    write(record, path)
    assert read(EvaluationRecord, path) == record
