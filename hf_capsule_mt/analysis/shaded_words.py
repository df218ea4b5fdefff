"""Words shaded by how much of each a capsule takes (Wang et al. 2019, Table 4), as a figure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from .figures import COLOURS, shades, word_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DARKEST = 0.8
"""Largest opacity of the background of a word; black letters can be read on it."""
_LETTERS_A_LINE = 84
# In inches.
_LETTER, _LINE = 0.092, 0.27


def draw_shaded_words(
    words: Sequence[str], shares: Tensor, title: str = "Source words in sentence capsules"
) -> "Figure":
    """Draw the sentence once for each capsule, its words the darker the more of them the capsule takes.

    Args:
        words: the pieces of the sentence.
        shares: `[words, capsules]`, from 0 (white) to 1 ([`DARKEST`]).
        title: over the figure.
    """
    from matplotlib.figure import Figure

    lines = _lines(words)
    capsules = shares.shape[1]
    height = _LINE * len(lines)
    widest = max(sum(_width(words[place]) for place in line) for line in lines)
    size = (_LETTER * max(widest + 14, len(title)), capsules * (height + 0.12) + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, parse_math=False, family=word_fonts())
    for number, axes in enumerate(figure.subplots(capsules, 1, squeeze=False)[:, 0]):
        axes.set_xlim(0, widest)
        axes.set_ylim(len(lines), 0)
        axes.set_axis_off()
        axes.text(-1, len(lines) / 2, f"capsule {number + 1}", ha="right", va="center", fontsize=9)
        _write(axes, words, lines, shares[:, number].tolist(), COLOURS[number % len(COLOURS)])
    return figure


def _width(word: str) -> float:
    """In letters, with the space after it; those of some scripts are twice as wide."""
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in word) + 1.2


def _lines(words: Sequence[str]) -> list[list[int]]:
    """Places of the words, line by line."""
    lines, filled = [[]], 0.0
    for place, word in enumerate(words):
        if lines[-1] and filled + _width(word) > _LETTERS_A_LINE:
            lines.append([])
            filled = 0.0
        lines[-1].append(place)
        filled += _width(word)
    return lines


def _write(axes: "Axes", words: Sequence[str], lines: list[list[int]], shares: list[float], colour: str) -> None:
    from matplotlib.patches import Rectangle

    shade = shades(colour)
    for row, line in enumerate(lines):
        left = 0.0
        for place in line:
            width = _width(words[place])
            axes.add_patch(
                Rectangle((left + 0.1, row + 0.05), width - 0.2, 0.9, facecolor=shade(DARKEST * shares[place]))
            )
            axes.text(
                left + width / 2,
                row + 0.5,
                words[place],
                ha="center",
                va="center",
                fontsize=9,
                color="black",
                family=word_fonts(),
                parse_math=False,
            )
            left += width
