"""The parser of a command line, which answers a mistyped option with the nearest one."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any


class NearestOptionParser(argparse.ArgumentParser):
    """A parser that refuses an unknown option before anything else, and names the nearest."""

    about_rest = ""
    """What to say beside words that no option takes."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as `argparse` does, hyphens for underscores too, and leave nothing over."""
        words = list(sys.argv[1:] if args is None else args)
        known = [name for action in self._actions for name in action.option_strings]
        for place, word in enumerate(words[: words.index("--")] if "--" in words else words):
            name, sign, value = word.partition("=")
            with_underscores = name[:2] + name[2:].replace("-", "_")
            if name not in known and with_underscores in known:
                name = with_underscores
                words[place] = name + sign + value
            # argparse takes a word with a space for a value, and accepts the beginning of an option.
            if name.startswith("--") and " " not in name and not any(option.startswith(name) for option in known):
                near = get_close_matches(name, known, n=1)
                self.error(f"unrecognized arguments: {name}" + "".join(f", did you mean {one}?" for one in near))
        namespace, rest = super().parse_known_args(words, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}{self.about_rest and f'; {self.about_rest}'}")
        return namespace, rest


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an option that is an integer of at least `least`."""

    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is too small; it must be at least {least}")
        return int(text)

    # What argparse calls it in its messages.
    number.__name__ = "int"
    return number


def between(least: float, most: float) -> Callable[[str], float]:
    """Return the type of an option that is a number from `least` to `most`."""

    def number(text: str) -> float:
        if not least <= float(text) <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most}")
        return float(text)

    number.__name__ = "float"
    return number


def refuse_options(
    args: argparse.Namespace, names: Sequence[str], needed: str, defaults: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Raise a ValueError if one of these options, which serve another, is given.

    Args:
        args: the options.
        names: of those that are refused.
        needed: the option that they serve.
        defaults: of those whose default is not None.
    """
    for name in names:
        if getattr(args, name) != defaults.get(name):
            raise ValueError(f"--{name} is of use with {needed} alone")


class CommandParser(NearestOptionParser):
    """The parser of a command, which shows its description as it is written."""

    def __init__(self, description: str) -> None:
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
