"""Write Tatoeba's pairs as plain text to train on, with noise that users' texts have.

    python benchmarks/tatoeba.py tatoeba/en-de/train.en.gz tatoeba/en-de/train.de.gz --output_dir corpus

Every pair is kept, and noisy copies are added. 12 % of the pairs have no capitals in the source there, 2 % only
capitals, and 8 % no full stop on either side, if both had one. The rest of 30 % are two to five pairs in a row, because
sentences of Tatoeba have only six words.
"""

import argparse
import gzip
import random
from pathlib import Path


def main() -> None:
    """Read two aligned files and write two others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs=2, type=Path, help="two aligned text files (.gz)")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sides = [gzip.decompress(path.read_bytes()).decode().rstrip("\n").split("\n") for path in args.text]
    pairs = list(zip(*sides, strict=True))
    pairs += noise(pairs, random.Random(args.seed))
    args.output_dir.mkdir(parents=True, exist_ok=True)
    for path, lines in zip(args.text, zip(*pairs, strict=True), strict=True):
        (args.output_dir / path.stem).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(pairs):,} pairs, of which {len(sides[0]):,} are Tatoeba's")


def noise(pairs: list[tuple[str, str]], draw: random.Random) -> list[tuple[str, str]]:
    """Return changed copies of some pairs."""
    added = []
    for source, target in pairs:
        number = draw.random()
        if number < 0.12:
            source = source.lower()
        elif number < 0.14:
            source, target = source.upper(), target.upper()
        elif number < 0.22 and source.endswith(".") and target.endswith("."):
            source, target = source.rstrip("."), target.rstrip(".")
            if draw.random() < 0.5:
                source = source.lower()
        elif number < 0.30:
            more = draw.sample(pairs, draw.randint(1, 4))
            source, target = (" ".join(lines) for lines in zip((source, target), *more, strict=True))
        else:
            continue
        added.append((source, target))
    return added


if __name__ == "__main__":
    main()
