"""The commands of `hf-capsule-mt`: one module each, with `build_parser()` and `main(argv)`.

To read a command, begin with its docstring, which `--help` shows, and then `main`, which names its steps. common.py has
what all commands share: the parser, the checks of files, and how a command ends on an error. decoding.py has the
options of the commands that decode.

evaluate_options.py is a part of evaluate, and corpora.py of translate. quality.py has what evaluate and calibrate
share: trained metrics, and which translations are bad.
"""
