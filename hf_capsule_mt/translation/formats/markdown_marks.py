"""The marks in a paragraph of Markdown, such as `**` and links, as they are written there."""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hf_capsule_mt.long_work import next_step
from hf_capsule_mt.translation.tags.markup import BLOCKS, kind_of_whole, read_markup
from hf_capsule_mt.translation.text.words import has_letters

from .base import Text, xml_text
from .markdown_blocks import add_blocks, add_inline

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_NAME = re.compile(r"</?([a-zA-Z][\w-]*)")
_VOID = ("br", "hr", "img", "input", "wbr")
_COMPONENT = re.compile(r"<[A-Z][a-z]")
"""The beginning of a tag of MDX."""
_CODE = re.compile(r"`[^`]*`")
_TARGET = re.compile(r"\(|\[[^\]]")
_NOTE = re.compile(r"\[\^[^\[\]\s`*<\\]+\]|(?<=\S)\[\d{1,3}\]")
# A comment of Jinja, or a formula in round or square brackets, with the text in them.
_KEPT = re.compile(
    r"""\{\#[-\s](?:(?!\#\}).)*+\#\}
    |\\\((?P<round>(?:[^\\]|\\[^)]){1,2000}+)\\\)
    |\\\[(?!\^)(?P<square>(?:[^\\]|\\[^\]]){1,2000}+)\\\]""",
    re.DOTALL | re.VERBOSE,
)
# Signs of a formula. Words in brackets with a backslash are text.
_FORMULA = re.compile(r"[\\^_=+<>|{]")
_WORD = re.compile(r"[^\W\d_]{2}")
_SPECIAL = re.compile(r"([\\`*_\[\]<])")
MARKS_IN_ALT = re.compile(r"[\\`*_\[\]<&]")
"""What keeps the text of an image as it is."""


@dataclass
class Mark:
    """A part of a paragraph.

    It is "text", a mark that is "open", "close" or a "point", a "break" of the line, or a part that is "kept".
    """

    kind: str
    raw: str  # As it is written.
    text: str = ""  # What the model reads of a text or a kept part.
    alt: str = ""  # The text of an image, if it is translated.
    number: int = 0  # Of an element, of both of its marks.

    def as_tag(self) -> str:
        """Return the mark as a tag with its number, or the text with references."""
        text = html.escape(self.text, quote=False)
        tags = {
            "text": text,
            "kept": f'<code m="{self.number}">{text}</code>',
            # Words on both sides are separate texts, and stand on different lines.
            "break": f'<br m="{self.number}"\n>',
            "open": f"<m{self.number}>",
            "close": f"</m{self.number}>",
            "point": f"<m{self.number}/>",
        }
        return tags[self.kind]

    def with_alt(self, alt: str) -> str:
        """Return the image, or a link around it, with another text of plain characters."""
        before, _, target = self.raw.partition(f"![{self.alt}]")
        if _TARGET.match(target) is None:
            # The text is the name of its target too, and will be another one.
            target = f"[{self.alt}]{target.removeprefix('[]')}"
        escaped = _SPECIAL.sub(r"\\\1", " ".join(alt.split()))
        return f"{before}![{escaped}]{target}"


def make_parser() -> "MarkdownIt":
    """Return a parser that notes in `meta["raw"]` of a token how it is written, where the token does not tell."""
    from markdown_it import MarkdownIt, rules_inline

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    add_blocks(parser)
    add_inline(parser)
    # Characters with a backslash, and references, are tokens of their own then.
    parser.disable("text_join")

    rules = {
        "escape": rules_inline.escape,
        "newline": rules_inline.newline,
        "backticks": rules_inline.backtick,
        "link": rules_inline.link,
        "image": rules_inline.image,
        "autolink": rules_inline.autolink,
    }
    for name, rule in rules.items():
        parser.inline.ruler.at(name, _noting(name, rule))

    parser.inline.ruler.after("image", "number", _number_of_note)
    parser.inline.ruler.before("escape", "kept", _kept_part)
    return parser


def _number_of_note(state: "StateInline", silent: bool) -> bool:
    """Read the number of a note, such as `[^1]`, or `[1]` right behind a word or a full stop."""
    # Silent, the parser looks for the end of a link, and would take these brackets for another link in it.
    if silent:
        return False
    number = _NOTE.match(state.src, state.pos, state.posMax)
    if number is None:
        return False
    token = state.push("note_number", "", 0)
    token.meta["raw"] = number[0]
    state.pos = number.end()
    return True


def _kept_part(state: "StateInline", silent: bool) -> bool:
    """Read a formula such as `\\(x\\)`, or a comment of Jinja. Nothing in them is a mark, and lines stay."""
    part = _KEPT.match(state.src, state.pos, state.posMax)
    if part is None:
        return False

    formula = part["round"] or part["square"]
    # Text such as "[x]" gets backslashes too. In round brackets a letter is enough.
    needs_sign = part["square"] or (formula and _WORD.search(formula))
    if needs_sign and not _FORMULA.search(formula):
        return False

    if not silent:
        token = state.push("kept_part", "", 0)
        token.content = token.meta["raw"] = part[0]
    state.pos = part.end()
    return True


def _noting(name: str, rule: Callable) -> Callable:
    """Return a rule of the parser that does what another one does, and notes what that has read."""

    def noting(state: "StateInline", silent: bool) -> bool:
        next_step()
        start = state.pos
        before = len(state.tokens)
        matches = rule(state, silent)

        if matches and len(state.tokens) > before:
            # The token of an address stands between two of its link.
            token = state.tokens[-2 if name == "autolink" else -1]
            if token.type == "hardbreak" and name == "newline":
                # The spaces that make the break are in front of it.
                start = len(state.src[:start].rstrip(" "))
            token.meta["raw"] = state.src[start : state.pos]
            if name == "link":
                label_end = state.md.helpers.parseLinkLabel(state, start, True)
                token.meta["label"] = state.src[start + 1 : label_end]
        return matches

    return noting


def marks_of(parser: "MarkdownIt", source: str, references: Mapping[str, Any], keep: str) -> tuple[list[Mark], Text]:
    """Return the parts of a paragraph, in their order, and the paragraph with tags instead of marks.

    Args:
        parser: of [`make_parser`].
        source: the paragraph.
        references: the targets of links that the page defines.
        keep: a regular expression for parts of the text that are not translated.
    """
    [inline] = parser.parseInline(source, {"references": references})
    marks: list[Mark] = []
    # The numbers of opening marks whose end was not met yet.
    opened: list[int] = []

    for token in inline.children:
        # The address itself stands between two of them.
        if token.markup == "autolink":
            continue
        mark = _mark(token)
        marks.append(mark)
        if mark.kind == "open":
            opened.append(len(marks) - 1)
        elif mark.kind == "close" and opened:
            first = opened.pop()
            marks[first:] = _element(marks[first:])

    _number(marks)
    text = xml_text(_with_tags(marks), keep)
    if text is None:
        # Elements of HTML that end in another paragraph, or cross marks of Markdown.
        for mark in marks:
            if mark.kind in ("open", "close") and mark.raw.startswith("<"):
                mark.kind = "point"
        _number(marks)
        tagged = _with_tags(marks)
        text = Text(tagged, read_markup(tagged), keep)
    return marks, text


def _with_tags(marks: Sequence[Mark]) -> str:
    return "".join(mark.as_tag() for mark in marks)


def _mark(token: "Token") -> Mark:
    raw = token.meta.get("raw", "")
    if token.type == "hardbreak":
        return Mark("break", raw)
    if token.type == "softbreak":
        return Mark("text", raw, "\n")
    is_address = token.type == "text" and raw != ""
    if token.type in ("code_inline", "kept_part") or is_address:
        return Mark("kept", raw, token.content.strip() or raw)
    if token.type == "image":
        return _image(raw, token.content)
    if token.type == "note_number":
        return Mark("point", raw)
    if token.type == "html_inline":
        return _html_tag(token.content)
    if token.type == "link_open":
        return Mark("open", "[")
    if token.type == "link_close":
        return Mark("close", _end_of_link(raw, token.meta["label"]))
    if token.nesting:
        return Mark("open" if token.nesting == 1 else "close", token.markup)
    return Mark("text", raw or token.markup or token.content, token.content)


def _element(marks: list[Mark]) -> list[Mark]:
    """Return the marks of an element from its beginning to its end. They are one if no words are translated in it."""
    first = marks[0].raw
    raw = "".join(mark.raw for mark in marks)
    if [mark.kind for mark in marks] == ["open", "point", "close"]:
        # A link that has only an image, so no words that it could stand around.
        return [Mark("point", raw, alt=marks[1].alt)]

    is_html = first.startswith("<") and _COMPONENT.match(first) is None
    if not is_html or _tag_name(marks[-1].raw) != _tag_name(first):
        return marks

    text = "".join(mark.text for mark in marks)
    kind = kind_of_whole(first, text)
    if kind is None:
        return marks
    if kind == "kept":
        return [Mark("kept", raw, text)]
    return [Mark("point", raw)]


def _image(raw: str, alt: str) -> Mark:
    """Return the mark of an image. A text with marks in it stays."""
    has_words = has_letters(alt) and MARKS_IN_ALT.search(alt) is None
    return Mark("point", raw, alt=alt if has_words else "")


def _end_of_link(raw: str, label: str) -> str:
    end = raw.removeprefix(f"[{label}")
    if end in ("]", "][]") and has_letters(_CODE.sub("", label)):
        # The text is the name of its target too, and will be another one.
        return f"][{label}]"
    return end


def _html_tag(raw: str) -> Mark:
    """Return the mark of a tag of HTML: a break if it is one of a block, else a point if it has no end."""
    name = _tag_name(raw)
    if name in BLOCKS and kind_of_whole(f"<{name}>", "") is None:
        return Mark("break", raw)
    if name is None or raw.endswith("/>") or name in _VOID:
        return Mark("point", raw)
    return Mark("close" if raw.startswith("</") else "open", raw)


def _tag_name(raw: str) -> str | None:
    """Return the name of a tag of HTML in lower case. None for other marks, such as comments."""
    name = _NAME.match(raw)
    if name is None:
        return None
    return name[1].lower()


def _number(marks: Sequence[Mark]) -> None:
    """Number the marks. Both marks of an element get one number."""
    opened: list[int] = []
    for number, mark in enumerate(marks):
        mark.number = number
        if mark.kind == "open":
            opened.append(number)
        elif mark.kind == "close" and opened:
            mark.number = opened.pop()
