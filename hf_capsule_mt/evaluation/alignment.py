"""Alignment of target words with source words by eflomal (Östling and Tiedemann 2016).

eflomal learns from the very sentences that it aligns, so the more there are, the better.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

NO_EFLOMAL = 'eflomal is not installed; pip install -e ".[align]" (it needs a C compiler)'


@dataclass(frozen=True)
class Alignment:
    """A sentence and a translation of it.

    Attributes:
        source_words: the number of source words.
        target: the words of the translation; the same form is the same word.
        links: (i, j) where target word j translates source word i. A target word has one source word at most.
    """

    source_words: int
    target: tuple[Hashable, ...]
    links: tuple[tuple[int, int], ...]


def has_eflomal() -> bool:
    """Return whether eflomal is installed."""
    return find_spec("eflomal") is not None


def align_words(
    sources: Sequence[Sequence[str]],
    streams: Sequence[Sequence[Sequence[str]]],
    *,
    more_sources: Sequence[Sequence[str]] = (),
    more_targets: Sequence[Sequence[str]] = (),
) -> list[list[Alignment]]:
    """Align several streams of translations with their sources, all at once, so that one model aligns them all.

    Of eflomal's models this is the HMM, and of its two directions the one in which every target word picks its source
    word or none. Words are compared in lower case. eflomal takes its random numbers from the system: two runs differ
    a little.

    Args:
        sources: the words of every sentence.
        streams: for each system, or reference, the words of every translation.
        more_sources: parallel text to learn from beside these sentences, such as the training data.
        more_targets: its translations.

    Returns:
        For each stream the alignment of every sentence; a sentence of 1,024 words or more, or none, has no links.

    Raises:
        ValueError: if eflomal is not installed, or streams differ in length.
    """
    if not has_eflomal():
        raise ValueError(NO_EFLOMAL)
    for stream in streams:
        if len(stream) != len(sources):
            raise ValueError(f"{len(sources)} sources to align but {len(stream)} translations; align them by line")
    left = [_join(words) for words in sources]
    right = [[_join(words) for words in stream] for stream in streams]
    more = zip(map(_join, more_sources), map(_join, more_targets), strict=True)
    # Each pair once: whoever wrote a translation, it has the same alignment.
    pairs = list(dict.fromkeys([*(pair for stream in right for pair in zip(left, stream)), *more]))
    links = dict(zip(pairs, _run_eflomal(pairs), strict=True))
    return [
        [
            Alignment(len(source.split()), tuple(target.split()), links[source, target])
            for source, target in zip(left, stream)
        ]
        for stream in right
    ]


def _join(words: Sequence[str]) -> str:
    return " ".join(words).lower()


def _run_eflomal(pairs: Sequence[tuple[str, str]]) -> list[tuple[tuple[int, int], ...]]:
    from eflomal import Aligner

    sources, targets = zip(*pairs)
    # IBM model 1 and HMM. The third model expects each word to be translated as often as usual, and hides repetitions.
    aligner = Aligner(model=2)
    with TemporaryDirectory() as folder:
        links_file = Path(folder, "links")
        aligner.align(sources, targets, links_filename_fwd=str(links_file))
        lines = links_file.read_text().splitlines()
    return [tuple(_parse(link) for link in line.split()) for line in lines]


def _parse(link: str) -> tuple[int, int]:
    source, target = link.split("-")
    return int(source), int(target)
