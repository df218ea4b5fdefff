"""Checks of the weights in checkpoints: that they are those that were saved."""

from pathlib import Path

from transformers.utils import cached_file

from .files import hash_file
from .modeling.checkpoint_files import check_no_adapter
from .modeling.weight_hashes import WEIGHTS_HASHES


def check_hashes(folder: str | Path) -> None:
    """Check the weights in a folder against the SHA-256 that were written when they were saved.

    Raises:
        FileNotFoundError: if there are no hashes, or a file that they name is missing.
        OSError: if a file has another hash, or none.
    """
    folder = Path(folder)
    if not (folder / WEIGHTS_HASHES).is_file():
        raise FileNotFoundError(
            f"{folder} holds no {WEIGHTS_HASHES}, which save_pretrained and training write beside the weights; without "
            "it they cannot be verified"
        )
    expected = read_hashes(folder)
    for name in sorted({*expected, *(file.name for file in folder.glob("*.safetensors"))}):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} lacks {name}, which {WEIGHTS_HASHES} names; copy it again")
        if expected.get(name) != hash_file(folder / name):
            raise OSError(f"{folder / name} is not what was saved: its SHA-256 is another; copy or download it again")


def verify_weights(name: str | Path, revision: str = "main") -> None:
    """Check the weights of a checkpoint, a folder or a name on the Hub, as [`check_hashes`] does.

    Raises:
        OSError: if there are no hashes, the weights have others, or an adapter would replace or change them.
    """
    check_no_adapter(name, {"revision": revision})
    if Path(name).is_dir():
        check_hashes(name)
        return
    folder = Path(cached_file(name, WEIGHTS_HASHES, revision=revision)).parent
    for file in read_hashes(folder):
        cached_file(name, file, revision=revision)
    check_hashes(folder)


def read_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of weights, as written when they were saved; empty if that was not done."""
    file = folder / WEIGHTS_HASHES
    if not file.is_file():
        return {}
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
