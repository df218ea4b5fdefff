"""Errors that a user can cause, apart from faults of the package itself."""


class UserError(ValueError):
    """A mistake of the user: a wrong option, a damaged file, a field that does not fit.

    A command ends with its message in one line. Every other error keeps its traceback, because it may be a fault of the
    package. The message says what is wrong and what to do, in short sentences.
    """
