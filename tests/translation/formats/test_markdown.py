"""Markdown: prose is translated, its marks follow their words, and everything else stays to the byte."""

import sysconfig
from pathlib import Path

import markdown_it
import pytest
from stand_in_translator import Copies, UpperCase, Writes

from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats import FORMATS

PAGE = """---
title: a dog
---
# A *dog* runs #

A **big dog** runs [through `snow`](x.html "t") & <b>ice</b>, see <https://a.b> and ![alt](a.png).
It has a_b_c 2 * 3 ***very*** ~~bad~~.\x20\x20
Hard break [ref][r] and [r]. {name} https://x.y/z

> A quote
> that goes on.

- [ ] A task
  second line

1. One
   - two

| A | b \\| c |
|---|---|
| `x` | *y* z |

[r]: http://a.b

<details><summary>Click me</summary>
</details>

    code

```python
code = 1
```

<!-- a comment -->

!!! note "Title"
    Foo

Title
=====

&nbsp;

[^1]: A footnote here.
"""
EXPECTED = """---
title: A DOG
---
# A *DOG* RUNS #

A **BIG DOG** RUNS [THROUGH `snow`](x.html "t") & <b>ICE</b>, SEE <https://a.b> AND ![ALT](a.png). IT HAS A_B_C 2 * 3 ***VERY*** ~~BAD~~.\x20\x20
HARD BREAK [REF][r] AND [R][r]. {name} https://x.y/z

> A QUOTE THAT GOES ON.

- [ ] A TASK SECOND LINE

1. ONE
   - TWO

| A | B \\| C |
|---|---|
| `x` | *Y* Z |

[r]: http://a.b

<details><summary>CLICK ME</summary>
</details>

    code

```python
code = 1
```

<!-- a comment -->

!!! note "TITLE"
    FOO

TITLE
=====

&nbsp;

[^1]: A FOOTNOTE HERE.
"""  # noqa: E501


def translated(tmp_path, page, translator=None):
    (tmp_path / "a.md").write_bytes(page.encode())
    translate_file(translator or UpperCase(), tmp_path / "a.md", tmp_path / "b.md", "en")
    return (tmp_path / "b.md").read_bytes().decode()


def test_a_page(tmp_path):
    assert translated(tmp_path, PAGE) == EXPECTED


def test_equal_cells_of_a_row(tmp_path):
    table = "| a | a | b a |\n|---|---|---|\n| c | c | a |\n"
    assert translated(tmp_path, table) == table.upper()


def test_ends_of_lines_stay(tmp_path):
    assert translated(tmp_path, "# a\r\n\r\n- b\r\n\r\n> c\r\n> d\r\n") == "# A\r\n\r\n- B\r\n\r\n> C D\r\n"
    assert translated(tmp_path, "a\n\nb") == "A\n\nB"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("> A dog  \n> runs.\n", "> A DOG  \n> RUNS.\n"),
        ("- A dog\\\n  runs.\n", "- A DOG\\\n  RUNS.\n"),
        # Tabs in front of lines.
        ("- [ ] A dog\n\truns.\n", "- [ ] A DOG RUNS.\n"),
        ("- a  \n\tb\n\n\t*\tc\n\t\td\n\n\te\n", "- A  \n\t  B\n\n\t*\tC D\n\n\tE\n"),
        ("> [!NOTE]\n> A dog.\n", "> [!NOTE]\n> A DOG.\n"),
        ("a <u>b</u> <br> c</i>\n", "A <u>B</u> <br> C</i>\n"),
        ("the <code>dog</code> runs\n", "THE <code>dog</code> RUNS\n"),
        ("<kbd>Ctrl</kbd>+<kbd>S</kbd> a\n", "<kbd>Ctrl</kbd>+<kbd>S</kbd> A\n"),
        ("a <samp>b **c** `d`\n\\* e</samp> f\n", "A <samp>b **c** `d`\n\\* e</samp> F\n"),
        ("> a <var>b\n> c</var> <TT>d</tt>\n", "> A <var>b\n> c</var> <TT>d</tt>\n"),
        ("a <pre>b</pre> <i translate=no>c</i> d\n", "A <pre>b</pre> <i translate=no>c</i> D\n"),
        ("| a <code>b \\| c</code> |\n|--|\n", "| A <code>b \\| c</code> |\n|--|\n"),
        ("*a <code>b* c</code>\n", "*A <code>B* C</code>\n"),
        ("a <code>b\n", "A <code>B\n"),
        ("a [[1]](b) [c [^2] d](e)\n", "A [[1]](b) [C [^2] D](e)\n"),
        ("a 1\\. b \\* c\n", "A 1. B * C\n"),
        ("[a `b`][] [`b`]\n\n[a `b`]: x\n[`b`]: y\n", "[A `b`][a `b`] [`b`]\n\n[a `b`]: x\n[`b`]: y\n"),
        ("*a <b>c* d</b>\n", "*A <b>C* D</b>\n"),
        ("    code\n\na\tb\n", "    code\n\nA B\n"),
        ('![a *b*](c) ![d][] ![e "f"](g "h")\n\n[d]: i\n', '![a *b*](c) ![D][d] ![E "F"](g "h")\n\n[d]: i\n'),
        ("a [![b](c)](d)\n", "A [![B](c)](d)\n"),
        ("[![b]](c) [![d](e)][f]\n\n[b]: g\n[f]: h\n", "[![B][b]](c) [![D](e)][f]\n\n[b]: g\n[f]: h\n"),
        ('<h1 a="b">\n  <a href="c">\n    d\n  </a>\n</h1>\n', '<h1 a="b">\n    <a href="c">D</a>\n</h1>\n'),
        ("- a\n  1. b\n\n     ```sh\n     c d\n     ```\n", "- A\n  1. B\n\n     ```sh\n     c d\n     ```\n"),
        ("a[^1] b[^2]\n\n[^1]: c d\n    e\n\n[^2]: f\n", "A[^1] B[^2]\n\n[^1]: C D E\n\n[^2]: F\n"),
        ("| a \\| b | [c\\|d](e) |\n|--|--|\n", "| A \\| B | [C\\|D](e) |\n|--|--|\n"),
        ('import A from "./a"\n\n<Ab b={["c"]}>\nd\n</Ab>\n', 'import A from "./a"\n\n<Ab b={["c"]}>\nD\n</Ab>\n'),
        ("C:\\\\a\\b \\* c\n", "C:\\A\\B * C\n"),
        ("a dog\\!\n", "A DOG!\n"),
        ("<Tip>\n  a dog\n</Tip>\n", "<Tip>\n  A DOG\n</Tip>\n"),
        ("a {b.c} <D e={1} /> f\n", "A {b.c} <D e={1} /> F\n"),
        ("a $b + c$ d $e$, $$ f $$\n", "A $b + c$ D $e$, $$ f $$\n"),
        ("a costs $5 and b costs $6, or $7/$8 a day\n", "A COSTS $5 AND B COSTS $6, OR $7/$8 A DAY\n"),
        ("# a\\#b \\#\n", "# A\\#B \\#\n"),
        ("# a \\# ##\n", "# A \\# ##\n"),
        ("1\\. a\n-----\n", "1\\. A\n-----\n"),
        ("\\- a\n===\n", "\\- A\n===\n"),
    ],
)
def test_marks(tmp_path, page, expected):
    assert translated(tmp_path, page) == expected


@pytest.mark.parametrize(
    "note", ["[^1]", "[^note]", "[^1][^2]", "[1]", "<sup>1</sup>", "<sup>[1](#n)</sup>", "[[1]](#n)", " [^1]"]
)
@pytest.mark.parametrize("ending", [" It", "\nIt"], ids=["space", "line"])
def test_a_note_behind_a_full_stop(tmp_path, note, ending):
    translator = Writes("Wort.")
    page = f"I like snow.{note}{ending} is late.\n"
    assert translated(tmp_path, page, translator) == f"Wort.{note} Wort.\n"
    assert translator.seen == ["I like snow.", "It is late."]


def test_a_note_in_a_sentence_follows_its_word(tmp_path):
    translator = UpperCase()
    page = "Snow[^1] is cold[2], they[^a] say[^b]. Is it [1]?\n"
    assert translated(tmp_path, page, translator) == page.upper().replace("[^A]", "[^a]").replace("[^B]", "[^b]")
    assert translator.seen == ["Snow is cold, they say.", "Is it [1]?"]


@pytest.mark.parametrize("line", ["-", "---", "------"])
def test_a_heading_does_not_become_a_table(tmp_path, line):
    """A bar in its only line would make it one, also behind a backslash."""
    page = f"\\| A dog\n1\\) runs\n{line}\n"
    written = translated(tmp_path, page, Copies())
    parser = markdown_it.MarkdownIt("commonmark").enable("table")
    assert parser.parse(written)[0].type == "heading_open"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- x", "\\- x"),
        ("1. x", "1\\. x"),
        ("# x", "\\# x"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("*x*", "\\*x*"),
        ("`x`", "\\`x`"),
        ("[x](y)", "\\[x\\](y)"),
        ("<b>x</b>", "\\<b>x\\</b>"),
    ],
)
def test_what_a_model_writes_makes_no_marks(tmp_path, text, expected):
    assert translated(tmp_path, "A dog.\n", Writes(text)) == f"{expected}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- x", "\\- x"),
        ("2. x", "2\\. x"),
        ("> x", "\\> x"),
        ("```x", "\\```x"),
        ("# x", "\\# x"),
        ("[x]: y", "\\[x\\]: y"),
        ("C #", "C #"),
    ],
)
def test_a_heading_stays_one(tmp_path, text, expected):
    page = "A dog\n-----\n\n# A dog\n"
    written = translated(tmp_path, page, Writes(text))
    assert written.startswith(f"{expected}\n-----\n")
    parser = markdown_it.MarkdownIt("commonmark")
    for heading, tag in zip(parser.parse(written)[::3], ("h2", "h1"), strict=True):
        assert (heading.type, heading.tag) == ("heading_open", tag)
    assert [token.children[0].content for token in parser.parse(written) if token.type == "inline"] == [text, text]


def test_a_backslash_stays(tmp_path):
    # In front of a sign, in front of a mark, and where none is needed.
    page = 'A *"\\\\"* or **a\\\\** in C:\\dir runs.\n'
    assert translated(tmp_path, page, Copies()) == page


@pytest.mark.parametrize(
    "page",
    [
        "If \\(x_1 * y_2\\) holds, so does \\[a \\\\ b^*\\] here.\n",
        "> The sum\n>\n> \\[\n> x = y\n> \\]\n",
        "[A \\(x\\) here](b) *and \\(f(x)\\)*\n",
        "A dog {# a cat\n  and *a* {{ fish }}\n#} runs.\n",
        "Write \\&copy; or \\&#38; for R&D; here.\n",
    ],
    ids=["formulas", "formula-in-a-quote", "in-marks", "comment-of-jinja", "references"],
)
def test_a_copy_is_the_same(tmp_path, page):
    assert translated(tmp_path, page, Copies()) == page


@pytest.mark.parametrize("page", ["A dog \\(so he said\\) runs.\n", "A dog \\(x runs.\n", "A \\[sic\\] dog\n"])
def test_brackets_that_are_no_formula(tmp_path, page):
    assert translated(tmp_path, page, UpperCase()).replace("\\", "") == page.replace("\\", "").upper()


def test_brackets_do_not_become_a_box(tmp_path):
    written = translated(tmp_path, "* \\[ ] a dog\n* [ ] a cat\n", UpperCase())
    assert written == "* \\[ \\] A DOG\n* [ ] A CAT\n"


def test_a_list_right_under_a_note(tmp_path):
    page = "A dog[^a].\n\n[^a]: A cat\n    runs.\n\n[^b]: Dogs have:\n    - a house\n    1. a tree\n"
    assert translated(tmp_path, page) == (
        "A DOG[^a].\n\n[^a]: A CAT RUNS.\n\n[^b]: DOGS HAVE:\n    - A HOUSE\n    1. A TREE\n"
    )


BLOCKS = {
    "admonition": ("!!! note\n    a dog\n    runs\n", "!!! note\n    A DOG RUNS\n"),
    "title": ('??? tip "a dog"\n    a cat\n', '??? tip "A DOG"\n    A CAT\n'),
    "title like its kind": ('!!! note "note"\n    a\n', '!!! note "NOTE"\n    A\n'),
    "admonition under text": ("a\n!!! note\n    b\nc\n", "A\n!!! note\n    B\nC\n"),
    "a sentence with its sign": ("!!! see a dog\n\nb\n", "!!! SEE A DOG\n\nB\n"),
    "tab": ('=== "a dog"\n\n    a cat\n\n        code\n', '=== "A DOG"\n\n    A CAT\n\n        code\n'),
    "tab in a list": ('- a\n\n    === "b"\n\n        c\n', '- A\n\n    === "B"\n\n        C\n'),
    "in a quote": ('> !!! note "a"\n>     b\n', '> !!! note "A"\n>     B\n'),
    "ends of lines": ('!!! note "a"\r\n    b\r\n    c\r\n', '!!! note "A"\r\n    B C\r\n'),
    "container": (":::note\na dog\n:::\n", ":::note\nA DOG\n:::\n"),
    "container with a title": ("::: tip a dog\nb\n:::\n", "::: tip A DOG\nB\n:::\n"),
    "container with a label": (":::tip[a *dog*]{#a}\nb\n:::\n", ":::tip[A *DOG*]{#a}\nB\n:::\n"),
    "caption": ("/// caption\na dog\n///\n", "/// caption\nA DOG\n///\n"),
    "definitions": ("a dog\n:   an animal\n:   a friend\n", "A DOG\n:   AN ANIMAL\n:   A FRIEND\n"),
    "two terms": ("a dog\na cat\n:   an animal\n    of a house\n", "A DOG\nA CAT\n:   AN ANIMAL OF A HOUSE\n"),
    "note of several blocks": ("[^a]: a\n\n    b\n\n        code\n", "[^a]: A\n\n    B\n\n        code\n"),
    "abbreviations": ("*[HTML]: a language\n*[A]: a\n", "*[HTML]: A LANGUAGE\n*[A]: A\n"),
    "a class": ("a dog\n{ .big }\n", "A DOG\n{ .big }\n"),
    "snippet": ('a\n--8<-- "b.md"\n', 'A\n--8<-- "b.md"\n'),
    "template": ("{{ name }} is a dog.\n", "{{ name }} IS A DOG.\n"),
    "rows of a template": (
        "| a |\n|---|\n{% for b in c %}\n| d |\n| e |\n{% endfor %}\n",
        "| A |\n|---|\n{% for b in c %}\n| D |\n| E |\n{% endfor %}\n",
    ),
    "keys": ("press ++ctrl+s++ now\n", "PRESS ++ctrl+s++ NOW\n"),
    "summary": (
        "<details>\n<summary>a dog</summary>\n\nb\n\n</details>\n",
        "<details>\n<summary>A DOG</summary>\n\nB\n\n</details>\n",
    ),
    "html in a quote": ("> <div>\n> a dog\n> </div>\n", "> <div>\n> A DOG\n> </div>\n"),
    "links of a menu": (
        "<nav>\n<a href='a'>a dog</a>\n<a href='b'>a cat</a>\n</nav>\n",
        "<nav>\n<a href='a'>A DOG</a>\n<a href='b'>A CAT</a>\n</nav>\n",
    ),
    "html around markdown": ("<div markdown>\n![a](b.png)\n</div>\n", "<div markdown>\n![A](b.png)\n</div>\n"),
    "half a tag": ("<div>\na <br\n\nb\n", "<div>\na <br\n\nB\n"),
    "component on lines": ('<Ab\n  b={() => "c"}\n/>\nd\n', '<Ab\n  b={() => "c"}\n/>\nD\n'),
    "component in a line": ("<Tip>a dog</Tip> b <Ab c={[1]} />\n", "<Tip>A DOG</Tip> B <Ab c={[1]} />\n"),
    "indented in a component": (
        "<Tab>\n  <Item>\n\n    a dog\n\n  </Item>\n</Tab>\n",
        "<Tab>\n  <Item>\n\n    A DOG\n\n  </Item>\n</Tab>\n",
    ),
    "exports": (
        "export const a = {\n  b: 1,\n\n  c: 2,\n};\n\na\n",
        "export const a = {\n  b: 1,\n\n  c: 2,\n};\n\nA\n",
    ),
    "markdown in html": (
        "<figure markdown>\n    ![a](b.png)\n</figure>\n",
        "<figure markdown>\n    ![A](b.png)\n</figure>\n",
    ),
    "tags of blocks in a cell": (
        "|a|\n|-|\n|<ul><li>b</li><li>c</li></ul>|\n",
        "|A|\n|-|\n|<ul><li>B</li><li>C</li></ul>|\n",
    ),
    "edits": ("a {++big *dog*++}{>>why<<} runs\n", "A {++BIG *DOG*++}{>>why<<} RUNS\n"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_other_dialects(tmp_path, name):
    page, expected = BLOCKS[name]
    assert translated(tmp_path, page) == expected


def test_comments_of_templates_and_elements_that_stay_are_counted():
    page = (
        "{# a dog\nruns #}\n\na {# cat #} b\n\na <i translate=no>*big* dog</i>\n\n"
        "<div>\n<p class='notranslate'>a cat</p>\n<code translate=no>c</code><p>b</p>\n</div>\n"
    )

    kept = FORMATS["markdown"].read(page.encode()).kept

    assert [(part.reason.value, part.line) for part in kept] == [
        ("comments", 1),
        ("comments", 4),
        ("marked to stay", 6),
        ("marked to stay", 9),
    ]


def test_terms_and_links_are_read_by_themselves(tmp_path):
    translator = UpperCase()
    translated(tmp_path, "a dog\n:   an animal\n\n<nav><a>a cat</a> <a>a bird</a></nav>\n", translator)
    assert translator.seen == ["a dog", "an animal", "a cat", "a bird"]


@pytest.mark.parametrize("text", ["!!! note\n    x", ": x", ":::x", "[^x]: y", '=== "x"', "/// x", "$$", "{ .x }"])
def test_what_a_model_writes_makes_no_block(tmp_path, text):
    written = translated(tmp_path, "A dog.\n", Writes(text))
    document = FORMATS["markdown"].read(written.encode())
    assert [" ".join(part.text.replace("\\", "").split()) for part in document.texts] in ([" ".join(text.split())], [])


def test_a_part_that_would_lose_a_mark_stays(tmp_path, caplog):
    # An emphasis of nothing is none, and a paragraph without text is none.
    page = "# A\n\nA *dog* runs.\n\nA dog.\n"
    assert translated(tmp_path, page, Writes("")) == page.replace("# A", "# ")
    assert "would get lost or be another one: 2. Their lines: 3, 5\n" in caplog.text
    caplog.clear()
    # Lines are counted from the beginning of the file.
    front = "---\ntitle: a\n---\n"
    assert translated(tmp_path, front + page, Writes("")) == front + page.replace("# A", "# ")
    assert "Their lines: 2, 6, 8\n" in caplog.text


def shape(page):
    """Everything but the words."""
    parser = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    blocks = []
    for token in parser.parse(page):
        blocks.append((token.type, token.markup, token.info))
        if token.type == "inline":
            marks = [
                (child.type, str(child.attrs.get("href")), child.content if child.type == "code_inline" else "")
                for child in token.children
                if child.type not in ("text", "softbreak")
            ]
            blocks.append(sorted(marks))
        elif token.type in ("fence", "code_block"):
            blocks.append(token.content)
    return blocks


def real_pages():
    """Manuals of installed packages."""
    pages = sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*.md"))
    return [page for page in pages if 2000 < page.stat().st_size < 20_000][:8]


@pytest.mark.parametrize("path", real_pages(), ids=lambda path: path.parent.name)
def test_pages_of_other_packages(path, tmp_path):
    translator = UpperCase()
    translate_file(translator, path, tmp_path / "b.md", "en")
    page = path.read_bytes().decode()
    translation = (tmp_path / "b.md").read_bytes().decode()
    assert shape(translation) == shape(page)
    assert len(translator.seen) > 5
    assert sum(map(str.isupper, translation)) > 2 * sum(map(str.isupper, page))


def test_it_is_known_by_its_name():
    assert FORMATS["markdown"].suffixes[0] == ".md"
