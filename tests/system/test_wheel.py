"""What a release publishes: both archives as `build` makes them, and the wheel installed where nothing else is."""

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
FILES = ["--train_file", "train.en", "train.de"]
TINY = ["--size", "tiny", "--config_overrides", "d_model=16", "encoder_layers=1", "decoder_layers=1"]
FEW = ["--max_steps", "1", "--report_to", "none", "--use_cpu"]
FAST = ["--num_beams", "1", "--max_new_tokens", "8", "--device", "cpu"]
COMMANDS = [
    ["train_tokenizer", *FILES, "--vocab_size", "300", "--output_dir", "tokenizer"],
    ["train", "--method", "em-routing", *TINY, "--tokenizer_name", "tokenizer", *FILES, *FEW, "--output_dir", "run"],
    ["translate", "--model", "run", *FAST, "--input_file", "test.en", "--output_file", "out.de"],
]
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
def archives(tmp_path_factory):
    """The archives of the sources, and the wheel, which is built from them."""
    folder = tmp_path_factory.mktemp("archives")
    # A build leaves files beside its sources.
    (folder / "sources").mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / "sources" / name)
    # Without isolation, so that it needs no network.
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, folder / "sources")
    shutil.rmtree(folder / "sources")
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def bin_folder(archives, tmp_path_factory):
    """The commands of a new environment that has the wheel, and of this one only what it depends on."""
    folder = tmp_path_factory.mktemp("wheel")
    venv.create(folder / "environment", symlinks=True)
    python = folder / "environment" / "bin" / "python"
    [site_packages] = (folder / "environment").glob("lib/python*/site-packages")
    # The .pth files in these folders, such as that of an editable install, are not read.
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (site_packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in others))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    wheel = next(path for path in archives if path.suffix == ".whl")
    call(*pip, "install", "--no-deps", "--no-index", wheel)
    return python.parent


@pytest.fixture
def empty_folder(tmp_path):
    """A folder with nothing but a corpus."""
    pairs = read_corpus(42)
    for name, part in (("train", pairs[:40]), ("test", pairs[40:])):
        for language, side in zip(("en", "de"), zip(*part, strict=True), strict=True):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{line}\n" for line in side))
    return tmp_path


def test_the_index_takes_the_archives(archives):
    names = [f"hf_capsule_mt-{__version__}-py3-none-any.whl", f"hf_capsule_mt-{__version__}.tar.gz"]
    assert [path.name for path in archives] == names
    call(sys.executable, "-m", "twine", "check", "--strict", *archives)


@pytest.mark.slow
def test_every_file_is_there_and_commands_run(bin_folder, empty_folder):
    def command(*words):
        return call(bin_folder / "hf-capsule-mt", *words, cwd=empty_folder)

    names = "('hf_capsule_mt', 'hf_capsule_mt_command')"
    where = f"from importlib.util import find_spec; [print(find_spec(name).origin) for name in {names}]"
    files = call(bin_folder / "python", "-c", where, cwd=empty_folder).split()
    assert all(Path(file).is_relative_to(bin_folder.parent) for file in files)
    found, wanted = (
        {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
        for folder in (Path(files[0]).parent, ROOT / "hf_capsule_mt")
    )
    assert found == wanted
    assert not list(bin_folder.parent.glob("lib/python*/site-packages/benchmarks"))
    assert command("--version") == f"hf-capsule-mt {__version__}\n"
    assert "train_tokenizer" in command("--help")

    call(bin_folder / "python", "-c", EACH, json.dumps(COMMANDS), cwd=empty_folder)
    # The card of the run is made from a template, which is no Python.
    assert (empty_folder / "run" / "README.md").is_file()
    assert len((empty_folder / "out.de").read_text().splitlines()) == 2
