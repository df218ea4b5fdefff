"""Transformers' own model tests, of the installed version: they are in its source distribution, not in its wheel.

pip downloads that once into `.cache/`, and the tests become a package there, `transformers_model_tests`. Its test of
models imports two more mixins, which no distribution holds: they get empty stand-ins.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import transformers
from filelock import FileLock

CACHE = Path(__file__).parents[2] / ".cache"
FOLDER = CACHE / f"transformers-{transformers.__version__}-tests"
PACKAGE = "transformers_model_tests"
SUITE = "test_modeling_common.py"
STAND_INS = {"generation/test_utils.py": "GenerationTesterMixin", "exporters/test_export.py": "ExportTesterMixin"}


def import_suite():
    """Put the package on `sys.path`, downloading it if need be.

    Raises:
        RuntimeError: if the tests cannot be downloaded, or if the stored ones are not those that were downloaded.
    """
    CACHE.mkdir(exist_ok=True)
    with FileLock(CACHE / "transformers-tests.lock"):
        if not FOLDER.exists():
            try:
                _download()
            except subprocess.SubprocessError as error:
                lines = (error.stderr or str(error)).strip().splitlines()
                raise RuntimeError(f"Transformers' tests cannot be downloaded: {lines[-1]}") from error
    if _digest((FOLDER / PACKAGE / SUITE).read_bytes()) != (FOLDER / "sha256").read_text():
        raise RuntimeError(f"{FOLDER} is damaged; delete it and it will be downloaded again")
    sys.path.insert(0, str(FOLDER))


def _download():
    with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
        folder = Path(temporary)
        requirement = f"transformers=={transformers.__version__}"
        source_only = ["--no-deps", "--no-binary", "transformers"]
        command = [sys.executable, "-m", "pip", "download", *source_only, "--dest", temporary, requirement]
        subprocess.run(command, check=True, capture_output=True, text=True)
        (sdist,) = folder.glob("transformers-*.tar.gz")
        with tarfile.open(sdist) as archive:
            suite = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/tests/{SUITE}").read()
        _write_package(folder / "tests" / PACKAGE, suite)
        (folder / "tests" / "sha256").write_text(_digest(suite))
        os.replace(folder / "tests", FOLDER)


def _write_package(package, suite):
    files = {"__init__.py": b"", SUITE: suite}
    for name, mixin in STAND_INS.items():
        files[name] = f"class {mixin}:\n    pass\n".encode()
        files[f"{Path(name).parent}/__init__.py"] = b""
    for name, content in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _digest(content):
    return hashlib.sha256(content).hexdigest()
