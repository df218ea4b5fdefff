"""No remote code is run unasked."""

import contextlib
import json

import pytest
from tiny_marian import save_tiny_marian
from transformers import pipeline

from hf_capsule_mt.cli import train, translate


@pytest.fixture
def marian(tmp_path):
    return save_tiny_marian(tmp_path / "marian")


def fails(command, arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        command.main([str(argument) for argument in arguments])
    assert exit_.value.code == 2
    return capsys.readouterr().err


@pytest.fixture
def stranger(tmp_path):
    """A checkpoint of a type that Transformers does not know, with code of its own."""
    folder = save_tiny_marian(tmp_path / "stranger")
    trace = tmp_path / "exploded"
    code = f"from pathlib import Path\nPath({str(trace)!r}).touch()\n"
    (folder / "configuration_own.py").write_text(code)
    config = (folder / "config.json").read_text().replace('"model_type": "marian"', '"model_type": "own"')
    references = (
        '{"auto_map": {"AutoConfig": "configuration_own.Own", "AutoModelForSeq2SeqLM": "configuration_own.Own"},'
    )
    (folder / "config.json").write_text(config.replace("{", references, 1))
    return folder, trace


def test_commands_run_no_remote_code(stranger, tmp_path, capsys, monkeypatch):
    folder, trace = stranger
    # Nobody is asked either.
    monkeypatch.setattr("builtins.input", lambda *prompt: "y")
    (tmp_path / "in").write_text("a b\n")
    error = fails(translate, ["--model", folder, "--input_file", tmp_path / "in"], capsys)
    assert "trust_remote_code" in error
    files = [tmp_path / "in", tmp_path / "in"]
    options = ["--output_dir", tmp_path / "run", "--use_cpu", "--max_steps", 1]
    fails(train, ["--model", folder, "--train_file", *files, *options], capsys)
    assert not trace.exists()


OWN = {"custom_generate": "FOLDER", "trust_remote_code": True}
DOORS = [
    ("config.json", {"task_specific_params": {"translation": OWN}}),
    ("generation_config.json", OWN),
    ("config.json", {"custom_pipelines": {"translation": {"impl": "evil.Pipeline", "pt": "AutoModel"}}}),
    ("tokenizer_config.json", {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["evil.Own", "evil.Own"]}}),
    ("config.json", {"attn_implementation": "somebody/evil"}),
]


@pytest.mark.parametrize(("name", "fields"), DOORS)
def test_the_pipeline_runs_no_code_of_a_checkpoint(name, fields, marian, tmp_path):
    trace = tmp_path / "exploded"
    code = f"from pathlib import Path\nPath({str(trace)!r}).touch()\ndef generate(model, **_): return None\n"
    (marian / "custom_generate").mkdir()
    for file in (marian / "custom_generate" / "generate.py", marian / "evil.py"):
        file.write_text(code)
    settings = json.loads((marian / name).read_text())
    (marian / name).write_text(json.dumps({**settings, **fields}).replace("FOLDER", str(marian)))
    with contextlib.suppress(ValueError, ImportError):
        pipeline("translation", model=str(marian), trust_remote_code=False)("a b")
    assert not trace.exists()
