"""Errors that a user can cause, apart from faults of the package itself."""

from collections.abc import Iterator
from contextlib import contextmanager

Kinds = type[Exception] | tuple[type[Exception], ...]


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

    Use it only around a call that gets what a user gave, such as an option or a file. An error of the package itself
    would lose its traceback.

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
        raise UserError(": ".join(filter(None, (about, sentence_of(error))))) from error


def sentence_of(error: Exception) -> str:
    """Return what an error says. A single word, such as the key of a KeyError, says something only with the class."""
    text = str(error)
    if " " in text:
        return text
    return f"{type(error).__name__}: {text}"
