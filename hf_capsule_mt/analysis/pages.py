"""Pages in HTML: words shaded by what takes them, and reports. All text is escaped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from torch import Tensor

from .figures import COLOURS, DARKEST
from .sentence import SentenceRouting
from .sentence_figures import FUTURE_COLOUR, PAST_COLOUR, past_and_future

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Section:
    """A part of a report: a heading and under it what there is of text, tables, figures and links."""

    title: str
    text: str = ""
    tables: Sequence[Sequence[Sequence[str]]] = ()
    """Cells, row by row; the first row is the head."""
    figures: Sequence[tuple[str, str]] = ()
    """Names of files without their endings, .png (shown) and .svg, and captions."""
    links: Sequence[tuple[str, str]] = ()
    """Files, and what they are."""


def report_page(title: str, about: str, sections: Sequence[Section]) -> str:
    """The page that all of a report is found from."""
    return _render("report.html", title=title, about=about, sections=sections)


def sentences_page(title: str, sentences: Mapping[str, SentenceRouting]) -> str:
    """Source words shaded by the capsules that take them, in one file.

    Of sentence capsules, a line for each (Wang et al. 2019, Table 4); of guided routing, lines for PAST and FUTURE
    while each target word is written (Zheng et al. 2019, Fig. 4).

    Args:
        title: of the page.
        sentences: by what they are called.
    """
    described = {name: _describe(routing) for name, routing in sentences.items()}
    return _render("sentences.html", title=title, sentences=described)


def _render(template: str, **values: object) -> str:
    style = (_FOLDER / "pages.css").read_text(encoding="utf-8")
    environment = Environment(loader=FileSystemLoader(_FOLDER), undefined=StrictUndefined, autoescape=True)
    return environment.get_template(template).render(style=style, **values)


def _describe(routing: SentenceRouting) -> dict[str, object]:
    words, tables = routing.source_words, []
    if routing.sentence is not None:
        rows = [
            _row(str(number + 1), "", COLOURS[number % len(COLOURS)], words, shares)
            for number, shares in enumerate(routing.sentence[-1].t())
        ]
        tables.append({"title": "Sentence capsules", "rows": rows})
    if routing.guided is not None:
        rows = []
        for target, past, future in zip(routing.target_words, *past_and_future(routing)):
            rows.append({**_row(target, "PAST", PAST_COLOUR, words, past), "begins": True})
            rows.append(_row("", "FUTURE", FUTURE_COLOUR, words, future))
        tables.append({"title": "PAST and FUTURE while each target word is written", "rows": rows})
    return {"source": " ".join(words), "translation": routing.translation, "tables": tables}


def _row(name: str, label: str, colour: str, words: Sequence[str], shares: Tensor) -> dict[str, object]:
    """A line of shaded words."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    cells = [
        {"text": word, "share": f"{share:.2f}", "shade": f"{DARKEST * share:.3f}"}
        for word, share in zip(words, shares.tolist(), strict=True)
    ]
    return {"name": name, "label": label, "colour": f"{red} {green} {blue}", "words": cells, "begins": False}
