"""What all figures have in common. They need matplotlib, which `pip install "hf-capsule-mt[figures]"` brings."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Those of Okabe and Ito, which the colour-blind can tell apart."""
MARKERS = ("o", "s", "^", "D", "v", "P")


def check_figure_file(path: Path) -> None:
    """Raise a ValueError unless a figure can be drawn to a file of this name."""
    if path.suffix not in FORMATS:
        raise ValueError(f"{path} is no figure; its name must end in {', '.join(FORMATS)}")
    if find_spec("matplotlib") is None:
        raise ValueError('figures need matplotlib; pip install "hf-capsule-mt[figures]"')


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure, whole or not at all, without the time it was made."""
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    dated = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix)
    figure.savefig(temporary, dpi=150, bbox_inches="tight", metadata={dated: None} if dated else None)
    temporary.replace(path)
