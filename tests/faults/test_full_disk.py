"""A disk that is full: one line with the file, nothing half-written, and the run goes on when there is room."""

import subprocess

import pytest
import torch
from safetensors.torch import load_file
from tiny_checkpoints import tiny_checkpoint
from tiny_run import arguments, files

from hf_capsule_mt.cli import average_checkpoints, distill, train, translate
from hf_capsule_mt.training.checkpoint_folders import checkpoints, last_checkpoint

CHECKPOINT = tiny_checkpoint("capsule_aggregated_marian")
OPTIONS = {"method": "transformer", "max_steps": 3, "save_strategy": "steps", "save_steps": 1}


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """A run with enough room."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train.main(arguments(corpus, folder, **OPTIONS))
    return folder


@pytest.fixture
def disk(tmp_path):
    """A function that gives a small disk a size, in bytes, and returns its folder."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def resize(size):
        how = "size" if not folder.is_mount() else "remount,size"
        command = ["mount", "-t", "tmpfs", "-o", f"{how}={size}", "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("needs the right to mount a tmpfs")
        return folder

    yield resize
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def size_of(*paths):
    """Bytes of files, in pages, as a tmpfs counts them."""
    return sum(-(-file.stat().st_size // 4096) * 4096 for path in paths for file in [path, *path.rglob("*")])


def error_of(capsys, command, words):
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        command.main(list(map(str, words)))
    assert stop.value.code == 2
    return f"\n{capsys.readouterr().err}".rpartition("\nerror: ")[2]


def up_to(checkpoint, name):
    """Bytes of a checkpoint as it is when half of the file `name` is written."""
    order = sorted((file for file in checkpoint.iterdir() if file.is_file()), key=lambda file: file.stat().st_mtime_ns)
    before = order[: [file.name for file in order].index(name)]
    return size_of(*before) + (checkpoint / name).stat().st_size // 2


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt"])
def test_in_training(corpus, whole, disk, capsys, name):
    first, second = whole / "checkpoint-1", whole / "checkpoint-2"
    folder = disk(size_of(first) + up_to(second, name) + 8192) / "run"
    message = error_of(capsys, train, arguments(corpus, folder, **OPTIONS))
    assert message.count("\n") == 1
    assert last_checkpoint(folder) == folder / "checkpoint-1"
    disk(10 * size_of(whole))
    train.main(arguments(corpus, folder, **OPTIONS, resume_from_checkpoint="last"))
    weights = load_file(folder / "model.safetensors")
    assert all(torch.equal(weights[key], tensor) for key, tensor in load_file(whole / "model.safetensors").items())


def test_at_the_end_of_training(corpus, whole, disk, capsys):
    folder = disk(size_of(*checkpoints(whole)) + 8192 + up_to(whole, "model.safetensors")) / "run"
    assert "No space left" in error_of(capsys, train, arguments(corpus, folder, **OPTIONS))
    assert not (folder / "run_record.json").exists()
    assert last_checkpoint(folder) == folder / "checkpoint-3"


def test_averaging_and_distilling(corpus, whole, disk, capsys):
    size = size_of(whole / "model.safetensors")
    room = disk(size)
    words = ["--run_dir", whole, "--last", 2, "--output_dir", room / "average"]
    message = error_of(capsys, average_checkpoints, words)
    assert message.count("\n") == 1
    assert "No space left on device" in message
    assert not [*room.iterdir()]
    (room / "filler").write_bytes(bytes(size - 4096))
    words = ["--model", CHECKPOINT, "--device", "cpu", "--num_beams", 1, "--train_file", *files(corpus, "train")]
    words += ["--chunk_size", 5, "--output_file", room / "out.tsv"]
    message = error_of(capsys, distill, words)
    assert message.count("\n") == 1
    assert "No space left on device" in message
    (room / "filler").unlink()
    disk(4 * size)
    distill.main(list(map(str, words)))
    assert {path.name for path in room.iterdir()} == {"out.tsv", "out.tsv.manifest.json"}


# The pages that are free: the lines of a window take one, and then the file that tells how far they go.
@pytest.mark.parametrize(("pages", "name"), [(0, "lines"), (1, "state.json")])
def test_in_translating(corpus, tmp_path, disk, capsys, pages, name):
    room = disk(16 * 4096)
    (room / "filler").write_bytes(bytes((16 - pages) * 4096))
    source, _ = files(corpus, "validation")
    words = ["--model", CHECKPOINT, "--device", "cpu", "--num_beams", 1, "--input_file", source, "--output_file"]
    message = error_of(capsys, translate, [*words, room / "out"])
    assert message == f"{room}/out.unfinished/{name} cannot be written: No space left on device\n"
    assert not (room / "out").exists()
    (room / "filler").unlink()
    for file in (room / "out", tmp_path / "whole"):
        translate.main(list(map(str, [*words, file])))
    assert {path.name for path in room.iterdir()} == {"out"}
    assert (room / "out").read_bytes() == (tmp_path / "whole").read_bytes()
