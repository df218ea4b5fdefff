# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/weight_hashes.py.
"""Models whose weights are saved with their hashes."""

import hashlib
import os
from pathlib import Path
from typing import Any

WEIGHTS_HASHES = "weights.sha256"
"""Name of the file of hashes beside the weights, as `sha256sum --check` reads it."""


class HashedWeights:
    """For a [`PreTrainedModel`]: `save_pretrained` writes the SHA-256 of the weights beside them."""

    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> None:
        """Save a model as [`PreTrainedModel.save_pretrained`] does, with its arguments, and hashes of its weights."""
        super().save_pretrained(save_directory, *args, **kwargs)
        if args[0] if args else kwargs.get("is_main_process", True):
            write_hashes(Path(save_directory))

    def _upload_modified_files(self, working_dir: str | os.PathLike, *args: Any, **kwargs: Any) -> Any:
        """Let the hashes go to the Hub too, where `save_pretrained` sends what it saved."""
        write_hashes(Path(working_dir))
        return super()._upload_modified_files(working_dir, *args, **kwargs)


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
