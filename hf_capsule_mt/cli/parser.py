"""The parser of the commands, and the options that several of them have. It imports neither torch nor Transformers."""

import argparse
import difflib
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

_OTHER_NAMES = {
    "--model_name_or_path": "--model",
    "--source_language": "--source_lang",
    "--target_language": "--target_lang",
}
"""Options of Transformers' scripts that have another name here."""
_WRONG_CHOICE = re.compile(r"argument (?P<name>[^/:]+)(?:/[^:]*)?: invalid choice: '(?P<choice>[^']*)' ")
"""How argparse begins its message. Newer versions of Python can suggest a choice there, and are left alone then."""
_VALUE_NAMES = {"int": "N", "float": "NUMBER", "dir": "FOLDER", "lang": "LANGUAGE"}
"""How help calls values, by their type or by the last word of the option."""


def value_name(action: argparse.Action) -> str:
    """Return what stands for the value of an option in its help, such as N, or FILE of `--input_file`."""
    type_name = getattr(action.type, "__name__", "")
    if type_name in ("int", "float"):
        return _VALUE_NAMES[type_name]
    last_word = action.dest.rpartition("_")[2]
    return _VALUE_NAMES.get(last_word, last_word.upper())


class CommandHelp(argparse.RawDescriptionHelpFormatter):
    """Help with the description as it is, in which required options are marked, and values have names that say more.

    argparse has only private methods for this, as its own formatters use them. A test fails if they are gone.
    """

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = super()._get_help_string(action)
        return f"{text} Required." if action.required and text else text

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return value_name(action)


class ErrorsWithRemedies(argparse.ArgumentParser):
    """A parser that ends on a mistake with one line, as commands do, and names the choice that was meant."""

    def error(self, message: str) -> NoReturn:
        """Print the message, and exit with status 2."""
        wrong = _WRONG_CHOICE.match(message)
        if wrong is not None:
            choices = _choices_of(self, wrong["name"])
            similar = difflib.get_close_matches(wrong["choice"], choices, n=1)
            message += f". Did you mean {similar[0]}?" if similar else ""
        self.exit(2, f"error: {message}\n")


def _choices_of(parser: argparse.ArgumentParser, name: str) -> list[str]:
    # argparse has no public list of its options.
    [action] = [action for action in parser._actions if name in action.option_strings]
    return list(map(str, action.choices))


class CommandParser(ErrorsWithRemedies):
    """A parser that wants whole names of options, with hyphens or underscores, and first names one that is unknown."""

    def __init__(self, description: str, **options: Any) -> None:
        options = {"formatter_class": CommandHelp, "allow_abbrev": False} | options
        super().__init__(description=description, **options)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as `argparse` does."""
        words = sys.argv[1:] if args is None else args
        words = [self._with_underscores(word) for word in words]
        check_option_names(self, words)
        return super().parse_known_args(words, namespace)

    def _with_underscores(self, word: str) -> str:
        name, sign, value = word.partition("=")
        name = name[:2] + name[2:].replace("-", "_")
        return name + sign + value if name in _options_of(self) else word


def check_option_names(parser: argparse.ArgumentParser, words: Sequence[str], others: Iterable[str] = ()) -> None:
    """End on the first unknown option, before argparse looks for those that are missing.

    With a wrong name the right option is missing too. Only its absence would be a riddle.

    Args:
        parser: which knows options.
        words: of the command line.
        others: options that the parser does not know, but are right.
    """
    known = [*_options_of(parser), *others]
    for word in words:
        name = word.partition("=")[0]
        if word == "--":
            return
        # argparse takes a word with a space for a value.
        if not name.startswith("--") or " " in name or name in known:
            continue

        wanted = "--" + name.removeprefix("--").replace("-", "_")
        similar = difflib.get_close_matches(wanted, known, n=1)
        right = _OTHER_NAMES.get(wanted) or next(iter(similar), None)
        remedy = f"Did you mean {right}?" if right in known else "See --help."
        parser.error(f"There is no option {name}. {remedy}")


def _options_of(parser: argparse.ArgumentParser) -> list[str]:
    names = []
    # argparse has no public list of them. A test fails if this one is gone.
    for action in parser._actions:
        names += action.option_strings
    return names


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an option that is an integer of at least `least`."""

    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is too small. It must be at least {least}.")
        return int(text)

    number.__name__ = "int"  # argparse's messages show it.
    return number


def finite(text: str) -> float:
    """Return the number of an option. "nan" and "inf" are numbers too, and would change results without a word."""
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is no finite number.")
    return value


finite.__name__ = "float"  # argparse's messages show it.


class OptionHolder(Protocol):
    """A parser, or a group of its options. argparse has no public class for both."""

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        """Add an option."""


def add_decoding(parser: OptionHolder, max_tokens_per_batch: int | None = None) -> None:
    """Add the options that say how a model decodes.

    Args:
        parser: the parser, or a group of it.
        max_tokens_per_batch: the default of this option. None depends on the device, see [`check_options`].
    """
    parser.add_argument("--num_beams", type=at_least(1), help="Beam size (default: the model's own).")
    parser.add_argument(
        "--length_penalty", type=finite, help="Above 0: longer translations (default: the model's own)."
    )
    parser.add_argument(
        "--max_new_tokens",
        type=at_least(1),
        help="Longest translation, in tokens (default: 20 more than twice the source, and at most what "
        "generation_config.json allows).",
    )

    parser.add_argument(
        "--dtype",
        choices=["auto", "float32", "bfloat16", "float16", "int8"],
        default="auto",
        help="Precision of decoding. auto (default): the checkpoint's on a GPU, float32 on a CPU. int8 is fastest on a "
        "CPU for models of OPUS-MT's size, and needs --engine fast.",
    )
    parser.add_argument(
        "--engine",
        choices=["fast", "transformers"],
        help="Decoder to use. fast (default): the decoder of this package, which gives the same output as "
        "transformers, but faster. It switches to transformers for options that it does not support.",
    )
    add_batches(parser, max_tokens_per_batch)


def add_batches(parser: OptionHolder, max_tokens_per_batch: int | None = None) -> None:
    """Add the options that say where a model computes, and how much at a time. Arguments are as of [`add_decoding`]."""
    default = max_tokens_per_batch or "4096, on a GPU 16384"
    parser.add_argument(
        "--max_tokens_per_batch",
        type=at_least(1),
        default=max_tokens_per_batch,
        help=f"Batch size, in source tokens with padding (default: {default}). A batch that does not fit in memory is "
        "halved.",
    )
    add_device(parser)


def add_device(parser: OptionHolder) -> None:
    """Add the option that names the device."""
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one).")


def add_model(parser: OptionHolder, *, required: bool = True) -> None:
    """Add the options that name the model."""
    parser.add_argument("--model", required=required, help="Folder of a checkpoint, or name of a model on the Hub.")
    parser.add_argument("--revision", help="Branch, tag or commit of a model on the Hub (default: main).")
    add_import(parser)


def add_import(parser: OptionHolder) -> None:
    """Add the option that names Python code of the user, which [`import_code`] imports."""
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="CODE",
        help="Run this Python file, or import this module, before the model is made, such as my_routing.py with a "
        "routing of your own. May be given several times.",
    )


def add_languages(parser: OptionHolder) -> None:
    """Add the options that name the languages, for models that have several."""
    parser.add_argument(
        "--source_lang", help="Source language, for NLLB (eng_Latn), M2M-100 (en) and mBART (en_XX). Others need none."
    )
    parser.add_argument(
        "--target_lang",
        help="Language to write, for the same models, and for multilingual OPUS-MT and MADLAD: pt stands for >>pt<< "
        "and <2pt>.",
    )


def add_vocabulary(parser: OptionHolder) -> None:
    """Add the option that names a shortlist."""
    parser.add_argument(
        "--vocabulary",
        type=Path,
        metavar="FILE",
        help="Words that translations may have, by hf-capsule-mt shortlist. Models with many words are faster with it.",
    )


def add_glossary_languages(parser: OptionHolder) -> None:
    """Add the option that names the languages of a glossary."""
    parser.add_argument(
        "--glossary_languages",
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="The languages of a glossary that has several, such as en de. A .tbx file needs them.",
    )


def add_columns(parser: OptionHolder) -> None:
    """Add the options that say where rows of parallel text have their two sides."""
    parser.add_argument("--source_column", help="Name of the source column, if it is not the language code.")
    parser.add_argument("--target_column", help="Name of the target column, if it is not the language code.")
