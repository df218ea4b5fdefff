"""The wheel, installed where nothing else of the project can be found: its command, from a tokenizer to a report."""

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from hf_capsule_mt import __version__
from hf_capsule_mt.quickstart import read_corpus

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "hf_capsule_mt_command.py", "hf_capsule_mt")
TINY = [
    f"{name}={value}"
    for name, value in {"d_model": 16, "dropout": 0.1, "encoder_layers": 2, "decoder_layers": 1}.items()
]
FEW = ["--max_steps", "4", "--save_strategy", "steps", "--save_steps", "2", "--warmup_steps", "2", "--use_cpu"]
# As `hf-capsule-mt` runs each, the last one as `python -m hf_capsule_mt`, in one process that imports everything once.
EACH = """
import gc, json, runpy, sys
gc.disable()  # It would look through all that is imported, again and again.
from hf_capsule_mt_command import main

*commands, last = json.loads(sys.argv[1])
for words in commands:
    main(words)
sys.argv[1:] = last
runpy.run_module("hf_capsule_mt", run_name="__main__")
"""


def call(*words, cwd=None):
    """Run a command to its end, without what tells Python where this checkout is; returns what it printed.

    Other libraries warn of nothing: Transformers imports torchao, which would warn of its own parts.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run([*map(str, words)], cwd=cwd, env=environment, text=True, capture_output=True, check=False)
    assert ended.returncode == 0, f"{ended.args}\n{ended.stdout}\n{ended.stderr}"
    assert "torchao" not in ended.stderr
    assert "pytree" not in ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory):
    """The commands of a new environment that has the wheel, and of this one only what it depends on."""
    folder = tmp_path_factory.mktemp("wheel")
    # A build leaves files beside its sources.
    (folder / "sources").mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / "sources" / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    call(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, folder / "sources")
    shutil.rmtree(folder / "sources")
    venv.create(folder / "environment", symlinks=True)
    python = folder / "environment" / "bin" / "python"
    call(*pip, "--python", python, "install", "--no-deps", "--no-index", *folder.glob("*.whl"))
    [site_packages] = (folder / "environment").glob("lib/python*/site-packages")
    # The .pth files in these folders, such as that of an editable install, are not read.
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (site_packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in others))
    return python.parent


@pytest.fixture
def empty_folder(tmp_path):
    """A folder with nothing but a corpus."""
    pairs = read_corpus(130)
    for name, part in (("train", pairs[:120]), ("test", pairs[120:])):
        for language, side in zip(("en", "de"), zip(*part, strict=True), strict=True):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{line}\n" for line in side))
    return tmp_path


@pytest.mark.slow
def test_from_a_tokenizer_to_a_report(bin_folder, empty_folder):
    def command(*words):
        return call(bin_folder / "hf-capsule-mt", *words, cwd=empty_folder)

    names = "('hf_capsule_mt', 'hf_capsule_mt_command')"
    where = f"from importlib.util import find_spec; [print(find_spec(name).origin) for name in {names}]"
    files = call(bin_folder / "python", "-c", where, cwd=empty_folder).split()
    assert all(Path(file).is_relative_to(bin_folder.parent) for file in files)
    assert (Path(files[0]).parent / "py.typed").is_file()
    assert command("--version") == f"hf-capsule-mt {__version__}\n"
    assert "train_tokenizer" in command("--help")

    call(bin_folder / "python", "-c", EACH, json.dumps(commands()), cwd=empty_folder)
    # Of a template, which is no Python.
    assert (empty_folder / "run" / "README.md").is_file()
    assert json.loads((empty_folder / "scores.json").read_text())["scores"].keys() >= {"bleu", "chrf"}
    assert (empty_folder / "report" / "index.html").is_file()
    assert not list(bin_folder.parent.glob("lib/python*/site-packages/benchmarks"))


def commands():
    """From a tokenizer to a report; one process imports once what they need."""
    train_files = ["--train_file", "train.en", "train.de"]
    model = ["--method", "em-routing", "--size", "tiny", "--config_overrides", *TINY, "--tokenizer_name", "tokenizer"]
    decoding = ["--input_file", "test.en", "--device", "cpu"]
    none_drawn = ["--lines"]
    short = ["--num_beams", "1", "--max_new_tokens", "8"]
    return [
        ["train_tokenizer", *train_files, "--vocab_size", "300", "--output_dir", "tokenizer"],
        ["train", *model, *train_files, *FEW, "--output_dir", "run", "--report_to", "none"],
        ["average_checkpoints", "--run_dir", "run", "--last", "2", "--output_dir", "average"],
        ["translate", "--model", "average", *decoding, *short, "--output_file", "out.de"],
        ["evaluate", "--hypotheses", "out.de", "--references", "test.de", "--output_file", "scores.json"],
        ["analyze", "--model", "average", *decoding, "--references", "test.de", *none_drawn, "--output_dir", "report"],
    ]
