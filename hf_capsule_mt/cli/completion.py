"""`hf-capsule-mt --completion SHELL`: a script that completes commands and options."""

import argparse
import importlib
from collections.abc import Mapping
from importlib.util import find_spec

from .errors import report_user_errors

SHELLS = ("bash", "zsh", "tcsh")


def completion_script(shell: str, commands: Mapping[str, str]) -> str:
    """Return the script for one of `SHELLS`; `commands` has a line about each command by its name.

    Raises:
        ValueError: if the shell is none of them, or shtab is missing.
    """
    if shell not in SHELLS:
        raise ValueError(f"--completion is {shell!r}; there are {', '.join(SHELLS)}")
    if find_spec("shtab") is None:
        raise ValueError('--completion needs shtab; pip install -e ".[completion]"')
    import shtab

    parser = argparse.ArgumentParser(prog="hf-capsule-mt")
    choice = parser.add_subparsers()
    for name, summary in commands.items():
        own = importlib.import_module(f"{__package__}.{name}").build_parser()
        choice.add_parser(name, help=summary, parents=[own], add_help=False)
    return shtab.complete(parser, shell)


def print_completion(words: list[str], commands: Mapping[str, str]) -> None:
    """Print the script for the shell that is the first word."""
    with report_user_errors():
        print(completion_script("".join(words[:1]), commands))
