"""The command `hf-capsule-mt`: lists the commands of the package, and runs one.

It is not in the package: importing the package takes seconds, because it registers models with Transformers. For help,
and to answer a wrong option, that is too long.
"""

import argparse
import ast
import difflib
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

GROUPS = {
    "Every day": ("train_tokenizer", "train", "translate", "serve", "evaluate", "push_to_hub"),
    "First steps": ("quickstart", "demo"),
    "More": (
        "average_checkpoints",
        "distill",
        "shortlist",
        "trim",
        "alignment_heads",
        "analyze",
        "export",
    ),
}
"""The commands, each a module of `hf_capsule_mt.cli`, in the order in which `--help` lists them."""
COMMANDS = tuple(name for names in GROUPS.values() for name in names)
_PACKAGE = Path(__file__).parent / "hf_capsule_mt"
reads_options = False
"""Whether a command reads its options. `hf_capsule_mt` then does not register its models."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first word names, with the words after it; without one, list the commands."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if not words or words[0] in ("-h", "--help"):
            print(usage(), flush=True)
        elif words[0] == "--version":
            print(f"hf-capsule-mt {version()}", flush=True)
        elif words[0] == "--completion":
            print(completion(*words[1:2]), flush=True)
        else:
            _run(words[0], words[1:])
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        # The interpreter writes what is left when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def _run(name: str, options: list[str]) -> None:
    if name not in COMMANDS:
        similar = difflib.get_close_matches(name.replace("-", "_"), COMMANDS, n=1)
        remedy = f"Did you mean {similar[0]}?" if similar else "See hf-capsule-mt --help."
        print(f"error: There is no command {name}. {remedy}", file=sys.stderr)
        raise SystemExit(2)
    # The command's name in its usage and in its records.
    sys.argv = [f"hf-capsule-mt {name}", *options]
    _check_options(name, options)
    # Since Python 3.12 the source of torchao, which Transformers imports if it is there, warns when it is compiled.
    warnings.filterwarnings("ignore", "invalid escape sequence", SyntaxWarning)
    importlib.import_module("hf_capsule_mt.registration")
    importlib.import_module(f"hf_capsule_mt.cli.{name}").main(options)


def _check_options(name: str, options: list[str]) -> None:
    """Show help, or end on a mistake in the options, before anything is imported that takes long."""
    global reads_options
    loaded = set(sys.modules)
    reads_options = True
    try:
        module = importlib.import_module(f"hf_capsule_mt.cli.options.{name}_options")
        module.build_parser().parse_args(options)
    except SystemExit:
        # A program that goes on imports the package again, with its models.
        for module_name in set(sys.modules) - loaded:
            if module_name.split(".")[0] == "hf_capsule_mt":
                del sys.modules[module_name]
        raise
    finally:
        reads_options = False


def usage() -> str:
    """Return the list of commands by group, each with the first line of its description."""
    width = max(map(len, COMMANDS))
    lines = [
        "usage: hf-capsule-mt COMMAND [options]",
        "       hf-capsule-mt --version",
        "       hf-capsule-mt --completion SHELL",
        "",
        "Capsule-routing machine translation in Transformers.",
    ]
    for group, names in GROUPS.items():
        lines += ["", f"{group}:", *(f"  {name:<{width}}  {summary(name)}" for name in names)]
    return "\n".join([*lines, "", "hf-capsule-mt COMMAND --help describes a command."])


def summary(name: str) -> str:
    """Return the first line of a command's description, read without importing it."""
    return (ast.get_docstring(_parse("cli", "options", f"{name}_options.py")) or "").partition("\n")[0]


def completion(shell: str = "bash") -> str:
    """Return the script that completes commands and options in a shell."""
    import shtab  # The extra "completion" has it.

    parser = argparse.ArgumentParser(prog="hf-capsule-mt")
    choice = parser.add_subparsers()
    for name in COMMANDS:
        own = importlib.import_module(f"hf_capsule_mt.cli.{name}").build_parser()
        choice.add_parser(name, help=summary(name), parents=[own], add_help=False)
    return shtab.complete(parser, shell)


def version() -> str:
    """Return the version of the package, read without importing it."""
    assignment = _parse("version.py").body[-1]
    return ast.literal_eval(assignment.value)


def _parse(*path: str) -> ast.Module:
    return ast.parse(_PACKAGE.joinpath(*path).read_text(encoding="utf-8"))


if __name__ == "__main__":
    # The package asks the module of this name whether options are read.
    importlib.import_module("hf_capsule_mt_command").main()
