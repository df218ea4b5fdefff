"""Reads files of Parquet and JSONL in parts of about equal text, and writes their rows with new columns.

The parts follow only from the file. Columns are never converted: a row of Parquet stays in Arrow, and a row of JSONL
keeps its bytes and gets new keys at its end.
"""

import codecs
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hf_capsule_mt.errors import UserError, blamed_on_user, sentence_of
from hf_capsule_mt.files import replaced_file

from .corpus_files import file_format
from .lines import byte_lines, decode, without_compression

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

PART_SIZE = 250_000
"""Characters of text after which a part ends, with the row that reaches them."""
_READ_TOGETHER = 1000
"""Rows of Parquet that are read at a time."""
_WRITTEN = (".gz", ".zst")
_WITH_COLUMNS = ("parquet", "jsonl")

Row = TypeVar("Row")
Columns = Mapping[str, Sequence[Any]]
Write = Callable[[bytes], None]


def in_parts(rows: Iterable[tuple[Row, str | None]]) -> Iterator[list[Row]]:
    """Yield rows, which come with their texts, in parts of about equal text."""
    part: list[Row] = []
    size = 0
    for row, text in rows:
        part.append(row)
        size += len(text or "")
        if size >= PART_SIZE:
            yield part
            part = []
            size = 0

    if part:
        yield part


class RowFile(ABC):
    """A file of rows with a column of text.

    Args:
        path: the file.
        text_column: name of the column.
    """

    def __init__(self, path: Path, text_column: str) -> None:
        self.path = path
        self.text_column = text_column

    def parts(self) -> Iterator[Any]:
        """Yield the rows in parts, in the form in which `texts`, `new_part` and `write` take them."""
        has_parts = False
        for rows in in_parts(self._rows()):
            yield rows
            has_parts = True
        # An empty file has one part, so that its output has the new columns too.
        if not has_parts:
            yield []

    @abstractmethod
    def _rows(self) -> Iterator[tuple[Any, str | None]]:
        """Yield each row with its text, None for null."""

    def texts(self, rows: Sequence[Any]) -> list[str | None]:
        """Return the texts of a part."""
        return self.column(rows, self.text_column)

    @abstractmethod
    def column(self, rows: Sequence[Any], name: str) -> list[Any]:
        """Return a column of a part."""

    @abstractmethod
    def new_part(self, rows: Sequence[Any], columns: Columns, examples: Mapping[str, Any]) -> bytes:
        """Return the rows of a part with new columns, as the bytes of a part of the output.

        Args:
            rows: the rows of the part.
            columns: the new columns, by name.
            examples: a value of each new column. A column with only nulls, or without rows, has the type of it.

        Raises:
            UserError: if there is a column of this name already.
        """

    @contextmanager
    def written(self, output: Path) -> Iterator[Write]:
        """Yield a function that takes the parts of the output one after the other, and writes a whole file."""
        with replaced_file(output) as file:
            yield file.write


class JSONLFile(RowFile):
    """JSON objects, one a line. Blank lines are no rows."""

    def _rows(self) -> Iterator[tuple[bytes, str | None]]:
        lines = byte_lines(self.path, keep_returns=True, keep_mark=True)
        for number, line in enumerate(lines, start=1):
            if not line.removeprefix(codecs.BOM_UTF8).strip():
                continue

            where = f"{self.path}:{number}"
            if decode(line) is None:
                raise UserError(f"{where} is not UTF-8. Convert the file, for example with iconv.")
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{where}: not JSON: {sentence_of(error)}") from error
            if not isinstance(row, dict) or not isinstance(row.get(self.text_column, 0), str | None):
                raise UserError(f"{where} has no text {self.text_column!r}: {row!r:.200}")

            yield line, row[self.text_column]

    def column(self, rows: Sequence[bytes], name: str) -> list[Any]:
        """Return a column of a part."""
        return [json.loads(row)[name] for row in rows]

    def new_part(self, rows: Sequence[bytes], columns: Columns, examples: Mapping[str, Any]) -> bytes:
        """Return the lines of a part with new keys."""
        lines = []
        for number, row in enumerate(rows):
            new = {name: values[number] for name, values in columns.items()}
            existing = json.loads(row).keys() & new.keys()
            if existing:
                raise UserError(f"{self.path} has a key {min(existing)!r} already: {row.decode():.200}")

            # The row itself stays as it is: to read and write numbers again would change some.
            content = row.rstrip()
            space = row[len(content) :]
            begin = content.removesuffix(b"}").rstrip()
            # Without its opening brace.
            added = json.dumps(new, ensure_ascii=False).encode()[1:]
            lines.append(begin + b", " + added + space + b"\n")
        return b"".join(lines)


class ParquetFile(RowFile):
    """A Parquet file. Each part is a row group of the output."""

    @cached_property
    def _file(self) -> "parquet.ParquetFile":
        import pyarrow as pa
        from pyarrow import parquet

        with blamed_on_user(pa.ArrowInvalid, about=f"{self.path} cannot be read"):
            return parquet.ParquetFile(self.path)

    def _rows(self) -> Iterator[tuple["pa.RecordBatch", str | None]]:
        import pyarrow as pa

        self._check_schema(self._file.schema_arrow)
        with blamed_on_user(pa.ArrowInvalid, about=f"{self.path} cannot be read"):
            for batch in self._file.iter_batches(_READ_TOGETHER):
                texts = batch.column(self.text_column).to_pylist()
                for number, text in enumerate(texts):
                    yield batch.slice(number, 1), text

    def _check_schema(self, schema: "pa.Schema") -> None:
        import pyarrow as pa

        if self.text_column not in schema.names:
            raise UserError(f"{self.path} has no column {self.text_column!r}. It has {', '.join(schema.names)}.")
        kind = schema.field(self.text_column).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            raise UserError(f"The column {self.text_column!r} of {self.path} is of type {kind}, not of text.")

    def column(self, rows: Sequence["pa.RecordBatch"], name: str) -> list[Any]:
        """Return a column of a part."""
        return [row.column(name)[0].as_py() for row in rows]

    def new_part(self, rows: Sequence["pa.RecordBatch"], columns: Columns, examples: Mapping[str, Any]) -> bytes:
        """Return the rows of a part with new columns, as a stream of Arrow."""
        import pyarrow as pa

        table = pa.Table.from_batches(rows, schema=self._file.schema_arrow).combine_chunks()
        for name, values in columns.items():
            if name in table.schema.names:
                raise UserError(f"{self.path} has a column {name!r} already.")
            table = table.append_column(name, pa.array(values, pa.scalar(examples[name]).type))

        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue()

    @contextmanager
    def written(self, output: Path) -> Iterator[Write]:
        """Yield a function that takes the parts of the output."""
        import pyarrow as pa
        from pyarrow import parquet

        writer = None
        with replaced_file(output) as file:

            def write(part: bytes) -> None:
                nonlocal writer
                table = pa.ipc.open_stream(part).read_all()
                if writer is None:
                    writer = parquet.ParquetWriter(file, table.schema, compression=self._compression())
                writer.write_table(table)

            yield write
            if writer is not None:
                writer.close()

    def _compression(self) -> str:
        metadata = self._file.metadata
        if not metadata.num_row_groups:
            return "snappy"
        name = metadata.row_group(0).column(0).compression.lower()
        return "none" if name == "uncompressed" else name


def has_columns(path: Path) -> bool:
    """Return whether a file is of a format with columns, by its name."""
    return file_format(path) in _WITH_COLUMNS


def open_rows(path: Path, text_column: str) -> RowFile:
    """Return the reader of a file of rows. Raise a UserError for a format that is not read and written."""
    kind = file_format(path)
    is_compressed = without_compression(path) != path
    can_be_written = not is_compressed or path.suffix in _WRITTEN
    if kind == "parquet" and not is_compressed:
        return ParquetFile(path, text_column)
    if kind == "jsonl" and can_be_written:
        return JSONLFile(path, text_column)
    raise UserError(f"{path}: rows are read from .parquet and .jsonl files. The latter may be .gz or .zst.")
