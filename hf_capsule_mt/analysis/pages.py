"""Pages in HTML: words shaded by what takes them, and reports. All text is escaped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment, StrictUndefined
from torch import Tensor

from .figures import COLOURS
from .sentence import SentenceRouting
from .sentence_figures import FUTURE_COLOUR, PAST_COLOUR, past_and_future
from .shaded_words import DARKEST

_STYLE = """
body { font-family: system-ui, sans-serif; line-height: 1.5; margin: 2em auto; max-width: 75em; padding: 0 1em; }
body { color: #222; } table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto; }
td, th { padding: 0.3em 0.8em; text-align: left; vertical-align: top; border-bottom: 1px solid #ccc; }
th { border-bottom: 2px solid #444; } .about { white-space: pre-line; }
table.words td { border: 0; padding: 0.2em 0.6em; } table.words tr.first td { border-top: 1px solid #ccc; }
table.words span { padding: 0.1em 0.25em; border-radius: 0.2em; line-height: 1.7; white-space: nowrap; }
figure { margin: 2em 0; } img { max-width: 100%; }
"""
_SENTENCES = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{{ title }}</title><style>{{ style }}</style></head><body>
<h1>{{ title }}</h1>
<p>The darker a source word, the more of it the capsules take. Rest the pointer on a word to read how much.</p>
{% for name, sentence in sentences.items() %}<h2>{{ name }}</h2>
<p dir="auto">{{ sentence.source }}<br>{{ sentence.translation }}</p>
{% for table in sentence.tables %}<h3>{{ table.title }}</h3>
<table class="words">
{% for row in table.rows %}<tr{% if row.begins %} class="first"{% endif %}>
<td>{{ row.name }}</td><td>{{ row.label }}</td><td dir="auto">
{% for word in row.words -%}
<span style="background: rgb({{ row.colour }} / {{ word.shade }})" title="{{ word.share }}">{{ word.text }}</span>
{% endfor %}</td></tr>
{% endfor %}</table>
{% endfor %}{% endfor %}</body></html>
"""
_REPORT = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title><style>{{ style }}</style></head><body>
<h1>{{ title }}</h1>
<p class="about">{{ about }}</p>
{% for section in sections %}<h2>{{ section.title }}</h2>
{% if section.text %}<p>{{ section.text }}</p>
{% endif %}{% for table in section.tables %}<table>
<thead><tr>{% for cell in table[0] %}<th>{{ cell }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in table[1:] %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table>
{% endfor %}{% for name, caption in section.figures %}<figure>
<img src="{{ name }}.png" alt="{{ caption }}">
<figcaption>{{ caption }} (<a href="{{ name }}.png">PNG</a>, <a href="{{ name }}.svg">SVG</a>)</figcaption></figure>
{% endfor %}{% if section.links %}<ul>
{% for file, name in section.links %}<li><a href="{{ file }}">{{ name }}</a></li>
{% endfor %}</ul>
{% endif %}{% endfor %}</body></html>
"""


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
    return _render(_REPORT, title=title, about=about, sections=sections)


def sentences_page(title: str, sentences: Mapping[str, SentenceRouting]) -> str:
    """Source words shaded by the capsules that take them, in one file.

    Of sentence capsules, a line for each (Wang et al. 2019, Table 4); of guided routing, lines for PAST and FUTURE
    while each target word is written (Zheng et al. 2019, Fig. 4).

    Args:
        title: of the page.
        sentences: by what they are called.
    """
    described = {name: _describe(routing) for name, routing in sentences.items()}
    return _render(_SENTENCES, title=title, sentences=described)


def _render(template: str, **values: object) -> str:
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(template).render(style=_STYLE, **values)


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
