"""The parser of a command line, which answers a mistyped option with the nearest one."""

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any


class NearestOptionParser(argparse.ArgumentParser):
    """A parser that refuses an unknown option before anything else, and names the nearest."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as `argparse` does, and leave nothing over."""
        words = list(sys.argv[1:] if args is None else args)
        known = [name for action in self._actions for name in action.option_strings]
        for word in words[: words.index("--")] if "--" in words else words:
            name = word.partition("=")[0]
            # To argparse, a word with a space is a value, and the beginning of an option stands for it.
            if name.startswith("--") and " " not in name and not any(option.startswith(name) for option in known):
                near = get_close_matches(name, known, n=1)
                self.error(f"unrecognized arguments: {name}" + "".join(f", did you mean {one}?" for one in near))
        namespace, rest = super().parse_known_args(words, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return namespace, rest


def refuse_options(args: argparse.Namespace, names: Sequence[str], needed: str) -> None:
    """Raise a ValueError if one of these options, which serve another, is given."""
    for name in names:
        if getattr(args, name) is not None:
            raise ValueError(f"--{name} is of use with {needed} alone")


class CommandParser(NearestOptionParser):
    """The parser of a command, which shows its description as it is written."""

    def __init__(self, description: str) -> None:
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
