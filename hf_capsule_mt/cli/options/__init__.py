"""The options of each command, without torch and Transformers. Their docstrings are what `--help` shows."""
