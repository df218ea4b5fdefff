"""Writing of parallel text, in the formats that are read."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import replaced_files

from .corpus_files import Columns, file_format
from .lines import each_unbroken, text_bytes


def check_parallel_files(files: Sequence[str | Path], source_lang: str | None, target_lang: str | None) -> None:
    """Raise a UserError unless [`write_parallel_text`] can write to files of these names."""
    formats = [file_format(Path(file)) for file in files]
    if formats not in (["text", "text"], ["tsv"], ["jsonl"]):
        raise UserError(
            "Name a source and a target file of plain text, or one .tsv or .jsonl file, not "
            f"{', '.join(map(str, files)) or 'nothing'}."
        )
    if formats == ["jsonl"]:
        Columns(source_lang, target_lang).check(str(files[0]))


def write_parallel_text(
    files: Sequence[str | Path],
    sources: Iterable[str],
    targets: Iterable[str],
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> None:
    """Write pairs as they come, in the formats that are read.

    A line break in a segment becomes a space, with a warning that counts them. So does a tab in a .tsv file. An
    interruption leaves the old files, or the last is missing.

    Args:
        files: two text files, or one .tsv or .jsonl file. A name that ends in .gz is compressed.
        sources: the segments of the source.
        targets: their translations, as many.
        source_lang: the source's name in a .jsonl file.
        target_lang: the target's name.
    """
    paths = [Path(file) for file in files]
    sources = each_unbroken(sources, f"sources for {paths[0]}")
    targets = each_unbroken(targets, f"targets for {paths[-1]}")
    kind = file_format(paths[0])

    with replaced_files(paths) as outputs:
        for source, target in zip(sources, targets, strict=True):
            if kind == "tsv":
                lines = [source.replace("\t", " ") + "\t" + target.replace("\t", " ")]
            elif kind == "jsonl":
                row = {"translation": {source_lang: source, target_lang: target}}
                lines = [json.dumps(row, ensure_ascii=False)]
            else:
                lines = [source, target]
            for output, line in zip(outputs, lines, strict=True):
                output.write(text_bytes([line]))
