"""The commands of `hf-capsule-mt`: one module each, with `main(argv)`.

To read a command, begin with its file in options/. It has what `--help` shows: a docstring, and `build_parser()`. Then
`main` names the steps. Files in options/ import neither torch nor Transformers, so that help and mistakes are answered
at once. Nor does parser.py, with the parser and the options that several commands have.

common.py has the checks of files, and how a command ends on an error. decoding.py makes the model, the files and the
processes of options. evaluate_checks.py and evaluate_metrics.py are parts of evaluate.
"""
