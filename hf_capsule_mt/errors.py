"""Errors that a user can cause, apart from faults of the package itself."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError

Kinds = type[Exception] | tuple[type[Exception], ...]


_PACKAGE = Path(__file__).parent


class UserError(ValueError):
    """A mistake of the user: a wrong option, a damaged file, a field that does not fit.

    A command ends with its message in one line. Every other error keeps its traceback, because it may be a fault of the
    package. The message says what is wrong and what to do, in short sentences.
    """


@contextmanager
def blamed_on_user(
    kinds: type[Exception] | tuple[type[Exception], ...] = ValueError, about: str = ""
) -> Iterator[None]:
    """Raise errors of other code as [`UserError`], with the same sentence.

    Use it only around a call that gets what a user gave, such as an option or a file. An error that Python finds in a
    line of the package, such as a wrong number of arguments, is a fault of the package, and stays what it is.

    Args:
        kinds: the class of errors, or several. A UserError and an OSError stay what they are.
        about: begins the message, such as "The tokenizer of NAME cannot be read".

    Raises:
        UserError: for an error of these kinds.
    """
    try:
        yield
    except (UserError, OSError):
        raise
    except kinds as error:
        if _is_fault_of_package(error):
            raise
        raise UserError(": ".join(filter(None, (about, sentence_of(error))))) from error


def _is_fault_of_package(error: Exception) -> bool:
    """Return whether an error comes from a line of the package that does not raise one on purpose."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    is_ours = Path(place.filename).is_relative_to(_PACKAGE)
    return is_ours and not (place.line or "").startswith("raise ")


def sentence_of(error: Exception) -> str:
    """Return what an error says. A single word, such as the key of a KeyError, says something only with the class."""
    if isinstance(error, StrictDataclassError) and error.__cause__ is not None:
        # Its own text begins with the name of the method that found a wrong value.
        error = error.__cause__
    text = str(error)
    if " " in text:
        return text
    return f"{type(error).__name__}: {text}"
