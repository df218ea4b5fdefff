"""Files that clients send: their texts, as the formats of the command `translate` find them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from regex import Pattern

from hf_capsule_mt.environment import is_installed
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files.whole import byte_order_mark, with_keep
from hf_capsule_mt.translation.formats import FORMATS, FileFormat
from hf_capsule_mt.translation.formats.base import Text, decoded
from hf_capsule_mt.translation.formats.recognition import HEAD_BYTES, recognise_contents
from hf_capsule_mt.translation.preparation import TextOptions
from hf_capsule_mt.translation.tags.segments import keep_pattern
from hf_capsule_mt.translation.terms.glossary import Glossary

from .jobs import ClientJob, SourceText
from .models import ServedModel
from .requests import RequestError, Upload

PLAIN = ".txt"


@dataclass(frozen=True)
class FileJob(ClientJob):
    """A file that is translated."""

    name: str
    written: Callable[[Sequence[str]], bytes]
    """Returns the file with a translation instead of each text."""


def read_file_job(
    upload: Upload, model: ServedModel, keep: Pattern | None = None, glossary: Glossary | None = None
) -> FileJob:
    """Read a file.

    Args:
        upload: the file.
        model: translates it.
        keep: finds parts that are not translated.
        glossary: terms that the translation must have.

    Raises:
        RequestError: if it is of a format that is not supported.
        UserError: if it is damaged.
    """
    # A client may send any path, of which only the last name is used.
    name = PurePosixPath(upload.name.replace("\\", "/")).name
    mark = byte_order_mark(upload.data)
    data = upload.data.removeprefix(mark)
    file_format = _format_of(name, upload.data)
    if file_format is None:
        reading = TextOptions(keep=keep, split="lines", glossary=glossary)
        sources = [SourceText(decoded(data), model, reading)]
        return FileJob(sources, name, lambda translations: mark + translations[0].encode())
    document = file_format.read(data, model.target)
    sources = [SourceText(text.text, model, _reading(text, keep, glossary)) for text in document.texts]
    return FileJob(sources, name, lambda translations: mark + document.written(translations))


def supported_suffixes() -> list[str]:
    """Return the endings of the files that can be translated with the libraries that are installed."""
    suffixes = [PLAIN]
    for file_format in FORMATS.values():
        if _is_readable(file_format):
            suffixes += file_format.suffixes
    return suffixes


def _format_of(name: str, data: bytes) -> FileFormat | None:
    """Return the format of a file, None for plain text."""
    try:
        # In a folder of its own, because names of folders may tell the format, too.
        file_format = recognise_contents(Path("/", name), data[:HEAD_BYTES])
    except UserError as error:
        # Its remedies are options of the command.
        raise _unsupported(name) from error
    if file_format is not None and not _is_readable(file_format):
        raise RequestError(400, f"{file_format.package} is not installed on this server, so {name:.80} cannot be read.")
    if file_format is None and not name.lower().endswith(PLAIN):
        raise _unsupported(name)
    return file_format


def _unsupported(name: str) -> RequestError:
    return RequestError(400, f"{name:.80} is not supported. Files may be {', '.join(supported_suffixes())}.")


def _is_readable(file_format: FileFormat) -> bool:
    return file_format.package is None or is_installed(file_format.package)


def _reading(text: Text, keep: Pattern | None, glossary: Glossary | None) -> TextOptions:
    combined = with_keep(text, None if keep is None else keep.pattern).keep
    pattern = None if combined is None else keep_pattern(combined)
    return TextOptions(tags=text.tags, keep=pattern, split="paragraphs", glossary=glossary)
