"""The commands of `hf-capsule-mt`: one module each, with `build_parser()` and `main(argv)`.

To read a command, begin with its docstring, which `--help` shows, and then `main`, which names its steps. common.py has
what all commands share: the parser, the checks of files, and how a command ends on an error. decoding.py has the
options of the commands that decode.

Three modules are parts of evaluate: evaluate_options.py, quality.py for calibrations and trained metrics, and heads.py.
corpora.py is a part of translate.
"""
