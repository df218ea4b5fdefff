"""Pages in HTML: words shaded by what takes them, and the index of a report. All text is escaped."""

from collections.abc import Mapping, Sequence

from jinja2 import Environment, StrictUndefined
from torch import Tensor

from .figures import COLOURS
from .routing_record import Table
from .sentence import SentenceRouting
from .sentence_figures import FUTURE_COLOUR, PAST_COLOUR, past_and_future
from .shaded_words import DARKEST

_STYLE = """
body { font-family: system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #111; }
table { border-collapse: collapse; } td, th { padding: 0.2em 0.6em; text-align: right; vertical-align: top; }
td:first-child, th:first-child, table.words td { text-align: left; } th { border-bottom: 1px solid #888; }
table.words span { padding: 0.1em 0.25em; border-radius: 0.2em; line-height: 1.7; white-space: nowrap; }
tr.first td { border-top: 1px solid #ccc; } figure { margin: 2em 0; } img { max-width: 100%; } p.note { color: #444; }
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
_INDEX = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{{ title }}</title><style>{{ style }}</style></head><body>
<h1>{{ title }}</h1>
<p>{{ summary }}</p>
<ul>{% for name, file in links.items() %}<li><a href="{{ file }}">{{ name }}</a></li>{% endfor %}</ul>
{% for table in tables %}<h2>{{ table.title }}</h2>
<table><tr>{% for cell in table.rows[0] %}<th>{{ cell }}</th>{% endfor %}</tr>
{% for row in table.rows[1:] %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>
<p class="note">{{ table.note }}</p>
{% endfor %}
{% for title, file in figures.items() %}<figure>
<a href="{{ file }}.svg"><img src="{{ file }}.png" alt="{{ title }}"></a>
<figcaption>{{ title }}</figcaption></figure>
{% endfor %}</body></html>
"""


def index_page(
    title: str, summary: str, links: Mapping[str, str], tables: Sequence[Table], figures: Mapping[str, str]
) -> str:
    """The page that everything else is found from.

    Args:
        title: of the page.
        summary: what was measured.
        links: files by what they are.
        tables: shown.
        figures: names of files without their endings, .png (shown) and .svg, by title.
    """
    return _render(_INDEX, title=title, summary=summary, links=links, tables=tables, figures=figures)


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
