"""Write a split of a data set of the Hub as a file for each language."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from hf_capsule_mt.files import replace_text


def main(argv: Sequence[str]) -> None:
    """Write the two files."""
    from datasets import load_dataset

    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("dataset_name", "dataset_config_name", "source_lang", "target_lang", "split"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--output_file", nargs=2)
    args = parser.parse_args(argv)
    pairs = load_dataset(args.dataset_name, args.dataset_config_name, split=args.split)["translation"]
    for language, file in zip((args.source_lang, args.target_lang), args.output_file, strict=True):
        # A line break inside a sentence would shift all lines behind it.
        lines = [" ".join(pair[language].splitlines()) for pair in pairs]
        replace_text(Path(file), "".join(f"{line}\n" for line in lines))
