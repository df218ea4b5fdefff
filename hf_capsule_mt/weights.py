"""Checks of the weights in checkpoints: that they are those that were saved."""

from pathlib import Path

from transformers.utils import cached_file

from .checkpoints import WEIGHTS
from .files import hash_file, read_json
from .modeling.checkpoint_files import WEIGHTS_INDEX, check_no_adapter, check_weight_map, find_file
from .modeling.weight_hashes import WEIGHTS_HASHES


def check_hashes(folder: str | Path) -> None:
    """Check the weights in a folder against the SHA-256 that were written when they were saved.

    Raises:
        FileNotFoundError: if there are no hashes, or a file that they name is missing.
        OSError: if a file has another hash, or none, or the list of hashes is empty or damaged.
    """
    folder = Path(folder)
    if not (folder / WEIGHTS_HASHES).is_file():
        raise FileNotFoundError(
            f"{folder} holds no {WEIGHTS_HASHES}, which save_pretrained and training write beside the weights; without "
            "it they cannot be verified"
        )
    expected = _listed(folder)
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
    where = {"revision": revision}
    check_no_adapter(name, where)
    if Path(name).is_dir():
        check_hashes(name)
        return
    folder = Path(cached_file(name, WEIGHTS_HASHES, **where)).parent
    for file in {*_listed(folder), *_loaded(name, where)}:
        cached_file(name, file, **where)
    check_hashes(folder)


def _loaded(name: str | Path, where: dict[str, str]) -> set[str]:
    """Return the names of the files of weights that are loaded from the Hub."""
    index = find_file(name, WEIGHTS_INDEX, where)
    # With all weights in one file an index is of no use.
    if index is None or find_file(name, WEIGHTS, where) is not None:
        return {WEIGHTS}
    check_weight_map(index)
    return set(read_json(index)["weight_map"].values())


def _listed(folder: Path) -> dict[str, str]:
    """Return the hashes in a folder; raise an OSError if there are none, or not of files of weights beside them."""
    hashes = read_hashes(folder)
    if not hashes or not all(name.endswith(".safetensors") and name == Path(name).name for name in hashes):
        raise OSError(
            f"{folder / WEIGHTS_HASHES} is damaged: its lines must be a SHA-256, two spaces, and a file of weights "
            "beside it; copy or download it again"
        )
    return hashes


def read_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of weights, as written when they were saved; empty if that was not done."""
    file = folder / WEIGHTS_HASHES
    if not file.is_file():
        return {}
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
