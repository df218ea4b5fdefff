"""Markup is read without a loss, and comes back around the words it belongs to, whatever the alignment."""

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from hf_capsule_mt.marked_segments import keep_pattern, marked_segments
from hf_capsule_mt.markup import read_markup

TAG = re.compile(r"<[^>]*>")
PAGE = """<!doctype html>
<html><head><title>A dog</title><style>b > i { color: red }</style></head>
<body class="a>b"><h1>A dog</h1><p>A <b>dog</b> runs &amp; <i>a <u>child</u></i> jumps.<br>See <a href='x?a&amp;b'>this</a><!-- c -->
<pre>x  <b>
</pre><script>if (a<b) {}</script> Run <code>pip &lt;x&gt;</code>&nbsp;now &foo; AT&T a < b<li>one<li>two</body></html>
"""


def align_at_random(seed):
    generator = random.Random(seed)
    return lambda source, target: [[generator.choice((0, 0.1, 1)) for _ in source] for _ in target]


def in_order(source, target):
    """Word i of one side belongs to word i of the other."""
    return [[float(i == j) for j in range(len(source))] for i in range(len(target))]


def backwards(source, target):
    return in_order(source, target)[::-1]


def translated(source, translate=str, align=in_order, tags=True, keep=None, cut=None):
    segments = marked_segments(source, tags, keep and keep_pattern(keep), cut)
    parts = [segment.put_back(translate(segment.text), align) if segment.text else "" for segment in segments]
    return "".join(segment.around(part) for segment, part in zip(segments, parts, strict=True))


def tree(markup):
    """The tags in each element, as a multiset, by the path to it; raises if they are not nested."""
    found, stack = [], []
    for tag in TAG.findall(markup):
        name = re.sub(r"\W", "", tag.split()[0])
        if tag.startswith("</"):
            assert stack.pop() == name, markup
        else:
            found.append((*stack, tag))
            if not tag.endswith("/>"):
                stack.append(name)
    assert not stack, markup
    return sorted(found)


def backward_words(text):
    return " ".join(text.split()[::-1])


words = st.sampled_from(["a", "bc", "d,", "e.", "f<g", "&", "42", "  ", ". D"])
inline = st.recursive(
    words | st.just("<x/>"),
    lambda inner: st.tuples(st.sampled_from("bius"), st.lists(inner, max_size=4)).map(lambda pair: (pair[0], pair[1])),
    max_leaves=12,
)


def written(part, number):
    if isinstance(part, str):
        return part if part == "<x/>" else f" {part.replace('&', '&amp;').replace('f<', 'f&lt;')} "
    return f'<{part[0]} n="{next(number)}">{"".join(written(one, number) for one in part[1])}</{part[0]}>'


sources = st.lists(inline, max_size=6).map(
    lambda parts: "".join(written(part, iter(range(99))) for part in parts).replace("  ", " ")
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(inline, max_size=6).map(
        lambda parts: (lambda number: "".join(written(p, number) for p in parts))(iter(range(999)))
    ),
    st.integers(0, 99),
    st.sampled_from([str, backward_words, lambda text: "", lambda text: text * 2, lambda text: "x y 42 x<b>"]),
    st.sampled_from([None, lambda text: re.split(r"(?<=[.,])", text), lambda text: list(text) or [""]]),
    st.sampled_from([None, r"\d+", r"[a-z]*"]),
)
def test_every_tag_comes_back_once_where_it_was_in(source, seed, translate, cut, keep):
    found = translated(source, translate, align_at_random(seed), keep=keep, cut=cut)
    assert tree(found) == tree(source)
    # What is no tag is text that is written as such.
    assert "<" not in TAG.sub("", found)
    read_markup(found)
