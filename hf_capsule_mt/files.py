"""Files that are written whole or not at all."""

import os
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write `text` to `path` in UTF-8; an interruption leaves the old file, or none."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path`; an interruption leaves the old file, or none."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)
