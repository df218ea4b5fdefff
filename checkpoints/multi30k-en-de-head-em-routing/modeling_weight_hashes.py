# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/weight_hashes.py.
"""The hashes that weights are saved with."""

import hashlib
from pathlib import Path

WEIGHTS_HASHES = "weights.sha256"
"""Name of the file of hashes beside the weights, as `sha256sum --check` reads it."""


def write_hashes(folder: Path) -> None:
    """Write the SHA-256 of every file of weights in a folder to `weights.sha256` beside them."""
    lines = [f"{hash_file(file)}  {file.name}\n" for file in sorted(folder.glob("*.safetensors"))]
    (folder / WEIGHTS_HASHES).write_text("".join(lines), encoding="utf-8")


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
