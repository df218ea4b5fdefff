"""The commands of `hf-capsule-mt`: one module each, with `build_parser()` and `main(argv)`.

To read a command, begin with its docstring, which `--help` shows, and then `main`, which names its steps. parser.py
has the parser, and the options that several commands have. common.py has the checks of files, and how a command ends on
an error. decoding.py makes the model, the files and the processes of those options.

evaluate_options.py is a part of evaluate, and corpora.py of translate. quality.py has what evaluate and calibrate
share: trained metrics, and which translations are bad.
"""
