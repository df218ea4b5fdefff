"""Write Tatoeba's pairs as plain text to train on, with noise that users' texts have.

    python benchmarks/tatoeba/tatoeba.py tatoeba/en-de/train.en.gz tatoeba/en-de/train.de.gz --output_dir corpus

Every pair is kept, and noisy copies are added. 12% of the pairs have no capitals in the source there, 2% only
capitals, and 8% no full stop on either side, if both had one. The rest of 30% are two to five pairs in a row, because
sentences of Tatoeba have only six words.
"""

import argparse
import gzip
import random
from pathlib import Path

Pair = tuple[str, str]
"""A source and its target."""


def main() -> None:
    """Read two aligned files and write two others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs=2, type=Path, help="two aligned text files (.gz)")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    source_file, target_file = args.text
    clean = list(zip(read_lines(source_file), read_lines(target_file), strict=True))
    noisy = noise(clean, random.Random(args.seed))
    pairs = clean + noisy
    args.output_dir.mkdir(parents=True, exist_ok=True)
    write_lines(args.output_dir / source_file.stem, [source for source, _ in pairs])
    write_lines(args.output_dir / target_file.stem, [target for _, target in pairs])
    print(f"{len(pairs):,} pairs, of which {len(clean):,} are Tatoeba's")


def read_lines(path: Path) -> list[str]:
    """Return the lines of a compressed file."""
    text = gzip.decompress(path.read_bytes()).decode()
    return text.rstrip("\n").split("\n")


def write_lines(path: Path, lines: list[str]) -> None:
    """Write a text file."""
    text = "".join(f"{line}\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def noise(pairs: list[Pair], draw: random.Random) -> list[Pair]:
    """Return changed copies of some pairs."""
    added = []
    for source, target in pairs:
        number = draw.random()
        if number < 0.12:
            source = source.lower()
        elif number < 0.14:
            source = source.upper()
            target = target.upper()
        elif number < 0.22 and source.endswith(".") and target.endswith("."):
            source = source.rstrip(".")
            target = target.rstrip(".")
            if draw.random() < 0.5:
                source = source.lower()
        elif number < 0.30:
            number_of_others = draw.randint(1, 4)
            for other_source, other_target in draw.sample(pairs, number_of_others):
                source = f"{source} {other_source}"
                target = f"{target} {other_target}"
        else:
            continue
        added.append((source, target))
    return added


if __name__ == "__main__":
    main()
