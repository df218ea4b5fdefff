"""The marks in a paragraph of Markdown, with their places, which markdown-it-py does not tell.

Each of its rules that finds a mark is called by one of ours, which notes where the mark begins and ends.
"""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.markup import read_markup

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_NAME = re.compile(r"<(/?)([a-zA-Z][\w-]*)")
_VOID = ("br", "hr", "img", "input", "wbr")
# Elements of HTML whose contents stay.
_CODE = ("code", "kbd", "samp", "var", "math", "svg", "script", "style")


@dataclass
class Mark:
    """A part of a paragraph.

    It is "text", a mark that is "open", "close" or a "point", a "break" of the line, or a part that is "kept".
    """

    kind: str
    raw: str  # As it is written.
    text: str = ""  # What the model reads of a text or a kept part.
    number: int = 0  # Of an element, of both of its marks.
    alt: str = ""  # What stands for an image, if it is translated.
    before: str = ""  # What stands in front of the image and is part of the mark.
    target: str = ""  # What follows the text of the image.

    def as_tag(self) -> str:
        """Return the mark as a tag with its number, or the text with references."""
        text = html.escape(self.text, quote=False)
        if self.kind == "text":
            return text
        if self.kind == "kept":
            return f'<code m="{self.number}">{text}</code>'
        if self.kind == "break":
            # Words on both sides are separate texts.
            return f'<br m="{self.number}">'
        if self.kind == "close":
            return f"</m{self.number}>"
        return f"<m{self.number}>" if self.kind == "open" else f"<m{self.number}/>"

    def with_alt(self, alt: str) -> str:
        """Return the image with another text, of plain characters."""
        escaped = re.sub(r"([\\`*_\[\]<])", r"\\\1", " ".join(alt.split()))
        return f"{self.before}![{escaped}]{self.target}"


@dataclass
class _Found:
    """What a rule of markdown-it-py found."""

    rule: str
    start: int
    end: int
    tokens: "Sequence[Token]"
    label_end: int  # Of a link or an image.

    @property
    def is_break(self) -> bool:
        """Whether it ends a line in the middle of a paragraph."""
        return any(token.type == "hardbreak" for token in self.tokens)


def make_parser() -> "MarkdownIt":
    """Return a parser that notes the places of marks in `env["found"]`, if that is a list."""
    from markdown_it import MarkdownIt, rules_inline

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    rules = {
        "escape": rules_inline.escape,
        "newline": rules_inline.newline,
        "backticks": rules_inline.backtick,
        "strikethrough": rules_inline.strikethrough.tokenize,
        "emphasis": rules_inline.emphasis.tokenize,
        "link": rules_inline.link,
        "image": rules_inline.image,
        "autolink": rules_inline.autolink,
        "html_inline": rules_inline.html_inline,
        "entity": rules_inline.entity,
    }
    for name, rule in rules.items():
        parser.inline.ruler.at(name, _noting(name, rule))
    return parser


def _noting(name: str, rule: Callable) -> Callable:
    """Return a rule of the parser that does what another one does, and notes what that has found."""

    def noting(state: "StateInline", silent: bool) -> bool:
        found = state.env.get("found")
        if silent or found is None:
            return rule(state, silent)
        start = state.pos
        before = len(state.tokens)
        label_end = -1
        if name == "link" and state.src[start] == "[":
            label_end = state.md.helpers.parseLinkLabel(state, start, True)
        elif name == "image" and state.src.startswith("![", start):
            label_end = state.md.helpers.parseLinkLabel(state, start + 1, False)
        matches = rule(state, silent)
        if matches:
            found.append(_Found(name, start, state.pos, state.tokens[before:], label_end))
        return matches

    return noting


def marks_of(parser: "MarkdownIt", source: str, references: Mapping[str, Any]) -> list[Mark]:
    """Return the parts of a paragraph, in their order. Joined, their `raw` is a paragraph with the same meaning.

    Args:
        parser: of [`make_parser`].
        source: the paragraph.
        references: the targets of links that the page defines.
    """
    found: list[_Found] = []
    parser.parseInline(source, {"references": references, "found": found})
    # An element comes before what is in it.
    found.sort(key=lambda one: (one.start, -one.end))
    marks = _between(source, 0, len(source), found)
    _number(marks)
    try:
        read_markup("".join(mark.as_tag() for mark in marks))
    except UserError:
        # Elements of HTML that end in another paragraph, or cross marks of Markdown.
        for mark in marks:
            if mark.kind in ("open", "close") and mark.raw.startswith("<"):
                mark.kind = "point"
        _number(marks)
    return marks


def _between(source: str, start: int, end: int, found: Sequence[_Found]) -> list[Mark]:
    """Return the marks between two places of a paragraph, and the texts between them.

    Args:
        source: the paragraph.
        start: the first place.
        end: the place behind the last one.
        found: what rules found anywhere in the paragraph, in the order of its places.
    """
    marks: list[Mark] = []
    place = start
    for one in found:
        # Marks in a link were found already.
        if one.start < place or one.end > end:
            continue
        begin = one.start
        if one.is_break:
            # The spaces that make the break are in front of it.
            begin = len(source[:begin].rstrip(" "))
        marks += _text(source[place:begin])
        if one.is_break:
            marks.append(Mark("break", source[begin : one.end]))
        else:
            marks += _marks(source, one, found)
        place = one.end
    return marks + _text(source[place:end])


def _text(raw: str, text: str | None = None) -> list[Mark]:
    """Return a text, unless it is empty. The model may read it in another way than it is written."""
    if not raw:
        return []
    return [Mark("text", raw, raw if text is None else text)]


def _marks(source: str, one: _Found, found: Sequence[_Found]) -> list[Mark]:
    """Return the marks of what a rule found."""
    raw = source[one.start : one.end]
    if one.rule == "link":
        return _link(source, one, found)
    if one.rule in ("emphasis", "strikethrough"):
        return _delimiters(raw, one.tokens)
    if one.rule == "image":
        return [_image(source, one)]
    if one.rule == "newline":
        return _text(raw, " ")
    if one.rule == "escape":
        # In front of a letter, as in a path of Windows, it is a character.
        return _text(raw, raw if raw[1].isalnum() else raw[1:])
    if one.rule == "entity":
        return _text(raw, html.unescape(raw))
    if one.rule == "html_inline":
        return [_html_tag(raw)]
    if any(token.type == "code_inline" for token in one.tokens):
        return [Mark("kept", raw, raw.strip("`").strip() or raw)]
    if one.rule == "autolink":
        return [Mark("kept", raw, raw[1:-1])]
    return _text(raw)


def _link(source: str, one: _Found, found: Sequence[_Found]) -> list[Mark]:
    """Return the marks of a link, around those of its text."""
    label = _between(source, one.start + 1, one.label_end, found)
    end = source[one.label_end : one.end]
    if all(mark.kind == "point" for mark in label):
        return [_badge(source[one.start : one.end], label, end)]
    if end in ("]", "][]") and any(mark.kind == "text" for mark in label):
        # The text is the name of its target too, and will be another one.
        end = f"][{source[one.start + 1 : one.label_end]}]"
    return [Mark("open", "["), *label, Mark("close", end)]


def _image(source: str, one: _Found) -> Mark:
    """Return the mark of an image. A text with marks in it stays."""
    raw = source[one.start : one.end]
    alt = source[one.start + 2 : one.label_end]
    if not any(map(str.isalpha, alt)) or re.search(r"[\\`*_\[\]<&]", alt):
        return Mark("point", raw)
    target = source[one.label_end + 1 : one.end]
    if target in ("", "[]"):
        # The text is the name of its target too, and will be another one.
        target = f"[{alt}]"
    return Mark("point", raw, alt=alt, target=target)


def _badge(raw: str, label: Sequence[Mark], end: str) -> Mark:
    """Return the mark of a link that has no words to stand around. The text of its only image is translated."""
    if len(label) != 1 or not label[0].alt or end in ("]", "][]"):
        return Mark("point", raw)
    [image] = label
    return Mark("point", raw, alt=image.alt, before="[", target=f"{image.target}{end}")


def _delimiters(raw: str, tokens: "Sequence[Token]") -> list[Mark]:
    """Return the marks of a run of `*`, `_` or `~`, each of which has a token. Some may be plain characters."""
    marks: list[Mark] = []
    # A text before the run may have got its token at the same time.
    tokens = tokens[len(tokens) - _number_of_delimiters(raw) :]
    width = len(raw) // len(tokens)
    index = 0
    while index < len(tokens):
        token = tokens[index]
        count = 1
        # A strong mark is two delimiters. The parser gives its type to the second one in front of the words, and to
        # the first one behind them.
        if token.type == "strong_close":
            count = 2
        elif index + 1 < len(tokens) and tokens[index + 1].type == "strong_open":
            token = tokens[index + 1]
            count = 2
        characters = raw[index * width : (index + count) * width]
        kind = {1: "open", -1: "close", 0: "text"}[token.nesting]
        marks.append(Mark(kind, characters, characters if kind == "text" else ""))
        index += count
    return marks


def _number_of_delimiters(raw: str) -> int:
    # `~~` is one delimiter.
    return len(raw) // 2 if raw.startswith("~") else len(raw)


def _html_tag(raw: str) -> Mark:
    """Return the mark of a tag of HTML, a point if it has no end."""
    name = _NAME.match(raw)
    if name is None or raw.endswith("/>") or name[2].lower() in _VOID:
        return Mark("point", raw)
    return Mark("close" if name[1] else "open", raw)


def _number(marks: Sequence[Mark]) -> None:
    """Number the marks. Both marks of an element get one number."""
    opened: list[int] = []
    for number, mark in enumerate(marks):
        mark.number = number
        if mark.kind == "open":
            opened.append(number)
        elif mark.kind == "close" and opened:
            mark.number = opened.pop()
