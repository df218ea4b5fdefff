"""Long texts of one kind: one character without end, or beginnings of which none ends."""

LONG = 1_000_000
"""Characters of a text that a search in steps of its length reads in seconds, and a quadratic one in hours."""
SHORT = 8_000
"""Characters of a text that shows which kind may be slow."""
_CHARACTERS = " a1%{}<>&\"'-!\n\\$[]()@.:/`*_#=|,;~^+?\té国\u3000"
_BEGINNINGS = (
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "<?",
    "<a ",
    "<a>",
    "</a>",
    "<a b='",
    '="<a" ',
    "<code>",
    "<script>",
    "&a",
    "&#1",
    "&lt;",
    "{{",
    "{{ ",
    "{%",
    "{a",
    "{a}",
    "{\\",
    "%(",
    "%(a",
    "%0",
    "% ",
    "$t(",
    "$a",
    "a@",
    "a@a.",
    "a.",
    "a-",
    "a_",
    "a b ",
    "a. ",
    "a: ",
    "A dog. ",
    "http://",
    "mailto:",
    "[a](",
    "![",
    "[^",
    "[^a]: ",
    "- ",
    "> ",
    "# a\n",
    "a\n",
    "\n\n",
    "\r\n",
    " \n",
    "\\\n",
    "1. ",
    "| a ",
    "**a",
    "a**",
    "_a",
    "'{",
    '"a',
    '\\"',
    "00:00:01,000 --> 00:00:02,000\n",
    "1:1",
    ">>aa_a",
    "<2aa",
    "msgid ",
)
UNITS = (*_CHARACTERS, *_BEGINNINGS)
"""What is repeated."""


def filled(beginning: str, unit: str, length: int) -> str:
    """Return a text of about a length: a beginning, and a unit without end."""
    return beginning + unit * (length // len(unit))
