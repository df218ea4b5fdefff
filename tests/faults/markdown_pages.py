"""Translate real pages of Markdown with stand-in translators, and compare them by parsers that write nothing here.

    python tests/faults/markdown_pages.py --parser gfm /usr/share/doc README.md
    python tests/faults/markdown_pages.py --parser mkdocs docs

A translator that copies must change nothing that a reader sees. A translator that marks each word must leave no word
without a mark, but code, addresses and what the page counts as kept. `gfm` needs the package cmarkgfm, the program of
GitHub. `mkdocs` needs Markdown and pymdown-extensions, which MkDocs Material reads pages with.
"""

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import lxml.html

sys.path.append(str(Path(__file__).parents[1]))

from stand_in_translator import Copies, UpperCase

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats import FORMATS
from hf_capsule_mt.translation.generation.decoder import Decoded

MARK = "\N{LATIN SMALL LETTER PHI}"
"""A letter that pages do not have. It stands behind each word that was translated."""
_WORD = re.compile(r"[^\W\d_]+")
_REST_OF_WORD = re.compile(r"\A[^\W\d_]+")
_CODE = ("code", "pre", "script", "style", "kbd", "samp", "var", "math", "svg", "textarea")
_SEEN_ATTRIBUTES = ("alt", "title", "aria-label")
_INLINE = (
    "a",
    "abbr",
    "b",
    "br",
    "code",
    "del",
    "em",
    "i",
    "img",
    "input",
    "ins",
    "kbd",
    "mark",
    "s",
    "span",
    "strong",
)
_INLINE += ("samp", "small", "sub", "sup", "u", "var")
# Addresses, names of icons and keys, placeholders, formulas, and the marks of containers, which parsers may not know.
_NO_WORDS = re.compile(
    r"\w+://\S+|www\.\S+|\S+@\S+\.\w+|:[a-z0-9_+-]+:|\{\{.*?\}\}|\{%.*?%\}|\{[^{}]*\}|\$\$.*?\$\$|\$[^$\n]+\$|\[\^\S+\]"
    r"|\[![a-zA-Z]+\]|\+\+\S+\+\+|^\s*---\n.*?\n---\n|^[ \t]*[:/]{3,}[ \t]*[\w.-]+|^(?:im|ex)port [^\n]*",
    re.DOTALL | re.MULTILINE,
)

_OF_PLUG_INS = {
    re.compile(r"\A---\n.*?\n(?:---|\.\.\.)\n", re.DOTALL): "",
    # Comments of Jinja.
    re.compile(r"\{#.*?#\}", re.DOTALL): "",
    # Words behind the language of a block of code.
    re.compile(r"^([ \t]*(?:```+|~~~+)[ ]?[\w+-]*)[ {][^`\n]+$", re.MULTILINE): r"\1",
    # Settings of objects that mkdocstrings shows, and of blocks of PyMdown.
    re.compile(r"^([ \t]*):::[ ]\w+[.-][\w.-]+\n(?:\1[ ]{4}.*\n|[ \t]*\n)*", re.MULTILINE): "",
    re.compile(r"^([ \t]*/{3,}[ ].*\n)(?:[ ]{4}\w+:.*\n)+", re.MULTILINE): r"\1",
    # Snippets.
    re.compile(r'^[ \t]*-+8<-+[ ]".*"$', re.MULTILINE): "",
    re.compile(r"^[ \t]*-+8<-+\n.*?\n[ \t]*-+8<-+$", re.MULTILINE | re.DOTALL): "",
    # Statements of MDX, up to an empty line.
    re.compile(r"^(?:import [\w{*].* from|export (?:const|default|function|let)) (?:(?!```).+\n)*", re.MULTILINE): "",
}
"""What plug-ins read that are not here, and what they leave of it."""


class Marks(UpperCase):
    """Writes a letter behind each word."""

    def decode_batches(self, sentences, batches, **options):
        for batch in super().decode_batches(sentences, batches, **options):
            yield {index: (Decoded([], text=_marked(sentences[index].segment)),) for index in batch}


def _marked(segment) -> str:
    """Return the text of a segment with a letter behind each word, but for its kept parts."""
    kept = set()
    for word in getattr(segment, "kept", {}):
        kept.update(range(*segment.words[word]))

    def written(word: re.Match) -> str:
        return word[0] if word.start() in kept else word[0] + MARK

    return _WORD.sub(written, segment.text)


def with_gfm(page: str) -> str:
    """Return the HTML that GitHub makes of a page."""
    import cmarkgfm
    from cmarkgfm.cmark import Options

    return cmarkgfm.github_flavored_markdown_to_html(page, Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES)


def with_mkdocs(page: str) -> str:
    """Return the HTML that MkDocs Material makes of a page."""
    import markdown

    extensions = ["abbr", "admonition", "attr_list", "def_list", "footnotes", "md_in_html", "tables"]
    for name in ("betterem", "details", "superfences", "tabbed", "tasklist", "keys", "critic", "arithmatex"):
        extensions.append(f"pymdownx.{name}")
    settings = {"pymdownx.tabbed": {"alternate_style": True}}
    plain = page
    for pattern, replacement in _OF_PLUG_INS.items():
        plain = pattern.sub(replacement, plain)
    return markdown.markdown(plain, extensions=extensions, extension_configs=settings)


PARSERS: dict[str, Callable[[str], str]] = {"gfm": with_gfm, "mkdocs": with_mkdocs}


class Shape(NamedTuple):
    """What translations must leave as it is."""

    blocks: list[str]  # The tags of blocks in their order, with their attributes, and the code in blocks.
    inline: Counter[str]  # Other tags with their attributes.
    code: Counter[str]
    text: str  # All characters but white space.


def shape(html: str) -> Shape:
    """Return the shape of a page."""
    root = lxml.html.fragment_fromstring(html, create_parent="div")
    blocks = []
    inline: Counter[str] = Counter()
    code: Counter[str] = Counter()
    for event, element in _walk(root):
        if not isinstance(element.tag, str):
            continue
        if element.tag in _INLINE and event == "start":
            inline[f"<{element.tag} {_attributes(element)}>"] += 1
        elif event == "start":
            blocks.append(f"<{element.tag} {_attributes(element)}>")
        elif element.tag not in _INLINE:
            blocks.append(f"</{element.tag}>")
        if event == "start" and element.tag in ("code", "pre", "script", "style"):
            code[" ".join((element.text or "").split())] += 1
    return Shape(blocks, inline, code, "".join("".join(root.itertext()).split()))


def _walk(element) -> Iterator[tuple[str, lxml.html.HtmlElement]]:
    yield "start", element
    for child in element:
        yield from _walk(child)
    yield "end", element


def _attributes(element) -> dict[str, str]:
    """Return the attributes of a tag without words, and without names that are made of words."""
    return {
        name: value for name, value in element.attrib.items() if name not in (*_SEEN_ATTRIBUTES, "id", "for", "name")
    }


def words_without_mark(html: str) -> Counter[str]:
    """Return the words of a page that a reader sees and that have no mark."""
    root = lxml.html.fragment_fromstring(html, create_parent="div")
    for element in list(root.iter("*")):
        classes = element.get("class", "").split()
        # MkDocs writes titles by itself, and both write links back from notes.
        is_own_title = "admonition-title" in classes or element.tag == "summary"
        is_own = (is_own_title and " " not in element.text_content().strip()) or "footnote-backref" in classes
        is_own = is_own or "MathJax_Preview" in classes
        if element.tag in _CODE and element.tail:
            # Letters right behind a word that stays are part of it, such as those of its plural.
            element.tail = _REST_OF_WORD.sub("", element.tail)
        if element.tag in _CODE or is_own:
            element.drop_tree()
    texts = [" ".join(root.xpath(".//text()"))]
    for element in root.iter():
        texts += [value for name, value in element.attrib.items() if name in _SEEN_ATTRIBUTES]
    words: Counter[str] = Counter()
    for text in texts:
        words.update(word for word in _WORD.findall(_NO_WORDS.sub(" ", text)) if MARK not in word)
    return words


class Check:
    """What becomes of pages."""

    def __init__(self, parser: Callable[[str], str]) -> None:
        self._parser = parser
        self._copies = Copies()
        self._marks = Marks()
        self._folder = Path(tempfile.mkdtemp(prefix="pages"))
        self.reasons: Counter[str] = Counter()

    def problems(self, path: Path) -> Iterator[str]:
        """Yield what is wrong with the translations of a page."""
        source = path.read_bytes().replace(b"\r\n", b"\n")
        page = source.decode()
        before = shape(self._parser(page))
        copied = self._translated(source, self._copies)
        for difference in _differences(before, shape(self._parser(copied))):
            yield f"changed by copying: {difference}"
        marked = self._translated(source, self._marks)
        html = self._parser(marked)
        for difference in _differences(before._replace(text=""), shape(html)._replace(text="")):
            yield f"changed by marking: {difference}"
        left = words_without_mark(html) - Counter(_WORD.findall(self._kept(source)))
        if left:
            yield f"not translated: {' '.join(left)[:300]}"

    def _translated(self, source: bytes, translator: UpperCase) -> str:
        (self._folder / "a.md").write_bytes(source)
        translated = translate_file(translator, self._folder / "a.md", self._folder / "b.md", "en")
        if translator is self._marks:
            self.reasons["units"] += translated.units
            self.reasons["lost marks"] += len(translated.left)
            self.reasons.update({reason: len(lines) for reason, lines in translated.kept.items()})
        return (self._folder / "b.md").read_bytes().decode()

    def _kept(self, source: bytes) -> str:
        """Return all words that are counted as kept."""
        document = FORMATS["markdown"].read(source)
        document.written([text.text for text in document.texts])
        texts = [kept.text for kept in document.kept]
        return " ".join(texts + [document.texts[number].text for number in document.left])


def _differences(expected: Shape, actual: Shape) -> Iterator[str]:
    """Yield what differs between two pages."""
    if expected.blocks != actual.blocks:
        number = next(
            (number for number, (one, other) in enumerate(zip(expected.blocks, actual.blocks)) if one != other), -1
        )
        yield f"blocks {actual.blocks[number:][:4]} instead of {expected.blocks[number:][:4]}"
    for kind in ("inline", "code"):
        more = getattr(actual, kind) - getattr(expected, kind)
        fewer = getattr(expected, kind) - getattr(actual, kind)
        if more or fewer:
            yield f"{kind} {list(more)[:3]} instead of {list(fewer)[:3]}"
    if expected.text != actual.text:
        signs = enumerate(zip(expected.text, actual.text))
        place = next((number for number, (one, other) in signs if one != other), len(actual.text))
        around = slice(max(0, place - 20), place + 40)
        yield f"text {actual.text[around]!r} instead of {expected.text[around]!r}"


def pages(paths: list[Path]) -> Iterator[Path]:
    """Yield the pages of Markdown among files, and in folders."""
    for path in paths:
        if path.is_dir():
            yield from sorted([*path.rglob("*.md"), *path.rglob("*.mdx")])
        else:
            yield path


def main() -> int:
    """Check pages, print what is wrong with each, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="pages, and folders with pages")
    parser.add_argument("--parser", choices=PARSERS, default="gfm", help="what reads the pages (default: %(default)s)")
    args = parser.parse_args()
    check = Check(PARSERS[args.parser])
    counts: Counter[str] = Counter()
    for path in pages(args.paths):
        try:
            problems = list(check.problems(path))
        except (ValueError, UserError, lxml.etree.ParserError) as error:
            counts["not read"] += 1
            print(f"{path}: not read: {error}", flush=True)
            continue
        counts["pages"] += 1
        counts["pages with problems"] += bool(problems)
        for problem in problems:
            counts[problem.partition(":")[0]] += 1
            print(f"{path}: {problem}", flush=True)
    print(dict(counts))
    print(dict(check.reasons))
    return int(counts["pages with problems"] > 0)


if __name__ == "__main__":
    sys.exit(main())
