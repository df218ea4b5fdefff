"""Blocks that CommonMark does not know: of MkDocs Material, Docusaurus, VitePress, GFM's notes and MDX.

Their texts are blocks of their own afterwards. A title is a block "title". The rest of a head, such as `!!! note`, is
no block, or a block "kept" with the reason why its words stay.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hf_capsule_mt.long_work import next_step

from .base import Reason
from .html_kept import has_words

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

Rule = Callable[["StateBlock", int, int, bool], bool]

_INDENT = 4
"""Spaces in front of what belongs to a head."""
_INTERRUPTED = ["paragraph", "reference", "blockquote", "list"]
"""Blocks that end in front of each of these."""

# Heads whose contents are indented.
_ADMONITION = re.compile(
    r"""\A(?:!!!|\?\?\?\+?)[ ]?(?:[\w-]+(?:[ ]+[\w-]+)*)?(?:[ ]*"(?P<title>.*)")?[ \t]*$""", re.VERBOSE
)
_TAB = re.compile(r"""\A===[+!]{0,2}[ ]+"(?P<title>.*)"[ \t]*$""", re.VERBOSE)
# Labels, whose contents begin in the same line.
_NOTE = re.compile(r"\A\[\^[^\]\s]+\]:[ \t]*")
_DEFINITION = re.compile(r"\A:[ \t]+(?=\S)")
# Lines.
_CONTAINER = re.compile(
    r"""\A:{3,}+[ \t]*+(?:\{[\w.:-]++\}|[\w.-]++)?+[ \t]*+(?:\[(?P<label>[^\[\]]*+)\]|(?P<title>[^\s\[{][^{}]*+))?+"""
    r"""(?P<attributes>[ \t]*+\{[^{}]*+\})?+[ \t]*+$"""
)
_CAPTION = re.compile(r"\A/{3,}+(?:[ \t]*+[\w-]++(?:[ \t]*+\|[ \t]*+(?P<title>\S.*))?+)?+[ \t]*+$")
_ABBREVIATION = re.compile(r"\A\*\[[^\]]+\]:[ \t]*(?P<title>\S.*)$")
# Lists of attributes, instructions of templates, snippets, and places for a list of contents.
_INSTRUCTION = re.compile(
    r"""\A(?:
        \{:?[ ]*(?:[.\#][\w-]|[\w-]+=)[^{}]*\}
        |(?:\{%(?:(?!%\}).)*+%\}[ \t]*+)++
        |-+8<-+[ \t]*["'].*
        |\[TOC\]|\[\[_?toc_?\]\]
    )[ \t]*+$""",
    re.VERBOSE | re.IGNORECASE,
)
# The first and the last line of a formula, and of a list of snippets.
_FENCE = re.compile(r"\A(?:\$\$|-+8<-+[ \t]*$)")
_MARKDOWN_TAG = re.compile(r"""\A<[a-zA-Z][\w-]*+(?=[^<>]*\smarkdown(?:=["']?(?:1|block|span)["']?)?[\s>])""")
_TAG_BEGINNING = re.compile(r"</?(?=[A-Z])[\w.]*[a-z][\w.]*(?=[\s/>]|$)|</?>")
_LONGEST_TAG = 5000
_MDX = re.compile(
    r"""\A(?:import\s+(?:[\w*{].*\sfrom\s+)?["']|import\s+\{\s*$|export\s+(?:const|default|function|let)\s)"""
)
_EDIT = re.compile(r"\{(?:\+\+|--|==|~~|>>)(?=\S)")
_EDIT_ENDS = {"{++": "++}", "{--": "--}", "{==": "==}", "{~~": "~~}", "{>>": "<<}"}
_EDITED_TEXT = ("{++", "{--", "{==")


def add_blocks(parser: "MarkdownIt") -> None:
    """Let a parser of CommonMark know more blocks."""
    rules: dict[str, Rule] = {
        "admonition": partial(_indented, _ADMONITION),
        "content_tab": partial(_indented, _TAB),
        "note": partial(_labelled, "note", _NOTE),
        "definition": partial(_labelled, "definition", _DEFINITION),
        "container": partial(_line, _CONTAINER),
        "caption": partial(_line, _CAPTION),
        "abbreviation": partial(_line, _ABBREVIATION),
        "instruction": partial(_line, _INSTRUCTION),
        "fenced": _fenced,
        "component": _component,
        "mdx": _mdx,
    }
    for name, rule in rules.items():
        parser.block.ruler.before("blockquote", name, rule, {"alt": _INTERRUPTED})


def add_inline(parser: "MarkdownIt") -> None:
    """Let a parser of CommonMark know tags of MDX with values in braces, and insertions, deletions and highlights."""
    parser.inline.ruler.before("html_inline", "component", _inline_component)
    parser.inline.ruler.before("emphasis", "edit", _edit)


def _written(state: "StateBlock", line: int) -> str:
    """Return a line without the marks and the white space in front of it."""
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _column(state: "StateBlock", place: int) -> int:
    """Return how many characters of its line stand in front of a place of the source."""
    return place - state.src.rfind("\n", 0, place) - 1


def _add_title(state: "StateBlock", line: int, start: int, title: str) -> None:
    """Add a block for a text in a line.

    Args:
        state: of the parser.
        line: number of the line.
        start: place of the text in the source.
        title: the text.
    """
    state.push("title_open", "", 1).map = [line, line + 1]
    inline = state.push("inline", "", 0)
    inline.content = title
    inline.map = [line, line + 1]
    inline.children = []
    inline.meta["column"] = _column(state, start)
    state.push("title_close", "", -1)


def _add_kept(state: "StateBlock", start: int, end: int, text: str, reason: Reason) -> None:
    """Add a block for words that stay, from one line to another."""
    kept = state.push("kept", "", 0)
    kept.map = [start, end]
    kept.content = text
    kept.meta["reason"] = reason


def _add_title_of(state: "StateBlock", line: int, head: re.Match) -> None:
    """Add the title of a head as a block, if it has one. Other words in the line are counted as kept."""
    start = state.bMarks[line] + state.tShift[line]
    groups = head.groupdict()
    for group in ("label", "title"):
        if groups.get(group):
            _add_title(state, line, start + head.start(group), head[group].rstrip())
    if has_words(groups.get("attributes") or ""):
        _add_kept(state, line, line + 1, head["attributes"], Reason.ATTRIBUTES)


def _indented(pattern: re.Pattern, state: "StateBlock", start_line: int, end_line: int, silent: bool) -> bool:
    """Read a head with its title, and the lines under it that are indented."""
    if state.is_code_block(start_line):
        return False
    head = pattern.match(_written(state, start_line))
    if head is None:
        return False

    indent = state.sCount[start_line] + _INDENT
    end = start_line + 1
    behind_last = end
    while end < end_line and (state.isEmpty(end) or state.sCount[end] >= indent):
        end += 1
        if not state.isEmpty(end - 1):
            behind_last = end

    if not head["title"] and behind_last == start_line + 1:
        # A sentence may begin with these signs too.
        return False
    if silent:
        return True

    _add_title_of(state, start_line, head)
    _read_contents(state, "contents", start_line + 1, behind_last, indent)
    state.line = behind_last
    return True


def _labelled(
    name: str, pattern: re.Pattern, state: "StateBlock", start_line: int, end_line: int, silent: bool
) -> bool:
    """Read a label, and the blocks behind it, whose later lines are indented."""
    if state.is_code_block(start_line):
        return False
    label = pattern.match(_written(state, start_line))
    if label is None:
        return False
    if silent:
        return True

    num_tokens = len(state.tokens)
    begin_mark = state.bMarks[start_line]
    shift = state.tShift[start_line]
    column = state.sCount[start_line]
    indent = column + _INDENT

    state.bMarks[start_line] = begin_mark + shift + label.end()
    state.tShift[start_line] = 0
    # The text behind the label stands where its next lines stand.
    state.sCount[start_line] = indent
    contents = state.bMarks[start_line]
    _read_contents(state, name, start_line, end_line, indent)

    for token in state.tokens[num_tokens:]:
        if token.type == "inline" and token.map[0] == start_line:
            # The text may stand in the label, too.
            token.meta.setdefault("column", _column(state, contents))

    state.bMarks[start_line] = begin_mark
    state.tShift[start_line] = shift
    state.sCount[start_line] = column
    state.line = max(state.line, start_line + 1)
    return True


def _read_contents(state: "StateBlock", name: str, start_line: int, end_line: int, indent: int) -> None:
    """Read the blocks from one line to another that have at least an indent."""
    opened = state.push(f"{name}_open", "", 1)
    opened.map = [start_line, end_line]

    outer_indent = state.blkIndent
    outer_end = state.lineMax
    outer_type = state.parentType
    outer_tight = state.tight

    state.blkIndent = indent
    state.lineMax = end_line
    state.parentType = "reference"
    state.line = start_line
    state.md.block.tokenize(state, start_line, end_line)

    state.blkIndent = outer_indent
    state.lineMax = outer_end
    state.parentType = outer_type
    state.tight = outer_tight

    opened.map[1] = state.line
    state.push(f"{name}_close", "", -1)


def _line(pattern: re.Pattern, state: "StateBlock", start_line: int, end_line: int, silent: bool) -> bool:
    """Read a line that is a mark. It may have a title."""
    if state.is_code_block(start_line):
        return False
    text = _written(state, start_line)
    head = pattern.match(text)
    # In a table an instruction is a row.
    is_row = pattern is _INSTRUCTION and state.parentType == "table"
    if head is None or is_row:
        return False
    if silent:
        return True

    _add_title_of(state, start_line, head)
    if pattern is _INSTRUCTION and has_words(text):
        _add_kept(state, start_line, start_line + 1, text, Reason.ATTRIBUTES)
    state.line = start_line + 1
    return True


def _fenced(state: "StateBlock", start_line: int, end_line: int, silent: bool) -> bool:
    """Read a formula, or a list of snippets, over several lines."""
    text = _written(state, start_line).rstrip()
    fence = _FENCE.match(text)
    if state.is_code_block(start_line) or fence is None:
        return False
    ends_at_once = fence[0].rstrip() in text[fence.end() :]
    if ends_at_once:
        return False

    for line in range(start_line + 1, end_line):
        next_step()
        if state.isEmpty(line):
            return False
        if _written(state, line).rstrip().endswith(fence[0].rstrip()):
            state.line = line + 1
            return True
    return False


def _component(state: "StateBlock", start_line: int, end_line: int, silent: bool) -> bool:
    """Read a line, or several, with tags of components and nothing else, or a line with a tag around Markdown."""
    text = _written(state, start_line)
    if state.is_code_block(start_line) or not text.startswith("<"):
        return False

    start = state.bMarks[start_line] + state.tShift[start_line]
    limit = min(state.eMarks[end_line - 1], start + _LONGEST_TAG)
    if _MARKDOWN_TAG.match(text):
        is_alone = text.count("<") == 1 and text.rstrip().endswith(">")
        next_is_code = start_line + 1 < end_line and state.sCount[start_line + 1] - state.blkIndent >= _INDENT
        if not is_alone or next_is_code:
            return False
        end = state.eMarks[start_line]
        reason = Reason.ATTRIBUTES
    else:
        end = _end_of_tags(state.src, start, limit)
        reason = Reason.COMPONENTS

    if end is None:
        return False
    if silent:
        return True

    behind = start_line + 1
    while behind < end_line and state.bMarks[behind] < end:
        behind += 1

    state.env["is_mdx"] = state.env.get("is_mdx", False) or reason is Reason.COMPONENTS
    _pass_over(state, start_line, behind, reason)
    return True


def _end_of_tags(source: str, start: int, limit: int) -> int | None:
    """Return the place behind tags of components that fill their last line, or None if there is something else."""
    place = start
    while place < limit and source[place] != "\n":
        tag = _TAG_BEGINNING.match(source, place)
        if tag is None:
            return None
        end = _end_of_tag(source, tag.end(), limit)
        if end is None:
            return None
        place = end
        while place < limit and source[place] in " \t":
            place += 1
    return place


def _end_of_tag(source: str, place: int, limit: int) -> int | None:
    """Return the place behind a tag of JSX, whose values may be in braces, or None if it does not end."""
    if source[place - 1] == ">":
        return place
    depth = 0
    quote = ""
    while place < limit:
        sign = source[place]
        place += 1
        if quote:
            if sign == quote:
                quote = ""
        elif sign in "\"'`":
            quote = sign
        elif sign == "{":
            depth += 1
        elif sign == "}":
            depth -= 1
        elif sign == ">" and depth == 0:
            return place
    return None


def _mdx(state: "StateBlock", start_line: int, end_line: int, silent: bool) -> bool:
    """Read imports and exports of MDX."""
    is_outside = state.level == 0 and state.sCount[start_line] == 0
    if silent or not is_outside or not _MDX.match(_written(state, start_line)):
        return False

    end = start_line
    depth = 0
    # A statement goes on to its last bracket, also behind an empty line.
    while end < end_line and (depth > 0 or _MDX.match(_written(state, end))):
        text = _written(state, end)
        depth += sum(map(text.count, "{[(")) - sum(map(text.count, ")]}"))
        end += 1

    state.env["is_mdx"] = True
    _pass_over(state, start_line, end, Reason.COMPONENTS)
    return True


def _pass_over(state: "StateBlock", start: int, end: int, reason: Reason) -> None:
    """Pass over lines of tags or code. Words in them are counted as kept."""
    text = state.src[state.bMarks[start] : state.eMarks[end - 1]]
    if has_words(text):
        _add_kept(state, start, end, text, reason)
    state.line = end


def _inline_component(state: "StateInline", silent: bool) -> bool:
    """Read a tag of MDX in a paragraph."""
    beginning = _TAG_BEGINNING.match(state.src, state.pos)
    if beginning is None:
        return False
    end = _end_of_tag(state.src, beginning.end(), min(state.posMax, state.pos + _LONGEST_TAG))
    if end is None:
        return False
    if not silent:
        state.push("html_inline", "", 0).content = state.src[state.pos : end]
    state.pos = end
    return True


def _edit(state: "StateInline", silent: bool) -> bool:
    """Read a mark of CriticMarkup. Only what is inserted, deleted or highlighted is text, as in `{++a dog++}`."""
    beginning = _EDIT.match(state.src, state.pos)
    if beginning is None:
        return False
    closing = _EDIT_ENDS[beginning[0]]
    end = state.src.find(closing, beginning.end(), state.posMax)
    if end <= beginning.end():
        return False

    behind = end + len(closing)
    is_text = beginning[0] in _EDITED_TEXT
    if not silent and is_text:
        limit = state.posMax
        state.push("edit_open", "", 1).markup = beginning[0]
        state.pos = beginning.end()
        state.posMax = end
        state.md.inline.tokenize(state)
        state.posMax = limit
        state.push("edit_close", "", -1).markup = closing
    elif not silent:
        state.push("html_inline", "", 0).content = state.src[state.pos : behind]
    state.pos = behind
    return True
