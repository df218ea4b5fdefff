"""Attacks with valid texts that are hard to read or to write: a refusal, a lost part or a long wait is a fault.

Files go through a translator that copies, or that writes capitals. Parsers that write nothing in the package read them
before and after. Pages of Markdown are rendered as a whole, while the package checks each of their parts by itself.
"""

import ast
import functools
import html
import json
import random
import re
import string
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import lxml.etree
import lxml.html
from markdown_it import MarkdownIt
from outcomes import Finding, Outcome, quiet
from stand_in_translator import Copies, UpperCase
from tiny_checkpoints import tiny_checkpoint

import hf_capsule_mt
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.terms.glossary import Entry, Glossary, placed_forms

MODEL = Path(__file__).parents[2] / "checkpoints" / "tatoeba-en-de-transformer"
BOUND = 60
"""CPU seconds that an attack may take. Most need less than one."""
BEAMS = (1, 2, 4, 8)
LONGEST_TERM = 12
"""Tokens of a term that must be written."""
LONGEST_WORD = 300_000
MOST_SIGNS = 1500
"""Signs of a text. A model reads fewer at once."""


def judged(use: Callable[[], str], about: str, may_be_refused: bool = False) -> Finding:
    """Call `use`, which says what is wrong with a result, or ""."""
    start = time.process_time()
    try:
        with quiet():
            against = use()
    except UserError as error:
        outcome = Outcome.REFUSED if may_be_refused else Outcome.WRONG_REFUSAL
        return Finding(outcome, f"{about}\n{error}")
    except Exception:
        return Finding(Outcome.TRACEBACK, f"{about}\n{traceback.format_exc()}")
    seconds = time.process_time() - start
    if against:
        return Finding(Outcome.SILENT_CHANGE, f"{about}\n{against}")
    if seconds > BOUND:
        return Finding(Outcome.HANG, f"{about}\n{seconds:.0f} CPU seconds")
    return Finding(Outcome.RIGHT)


# Formats.


class Format(NamedTuple):
    """A format of files: how texts become a file, and how another parser than the package's reads it."""

    name: str
    written: Callable[[list[str]], str]
    """Return a file with these texts."""
    read: Callable[[str], list]
    """Return the texts of a file, or its structure. Texts without a translation stand for themselves."""
    option: str | None = None
    """The format, if the name of the file does not tell it."""


def _numbered(before: str, after: str, escape: Callable[[str], str] = str) -> Callable[[list[str]], str]:
    def parts(texts: list[str]) -> str:
        return "".join(
            before.replace("NUMBER", str(number)) + escape(text) + after for number, text in enumerate(texts, start=1)
        )

    return parts


def _around(first: str, parts: Callable[[list[str]], str], last: str) -> Callable[[list[str]], str]:
    return lambda texts: first + parts(texts) + last


def _with_backslashes(signs: str) -> Callable[[str], str]:
    return lambda text: re.sub(f"[{re.escape(signs)}]", r"\\\g<0>", text)


def _cues(page: str) -> list[str]:
    blocks = [block.split("\n") for block in page.split("\n\n")]
    cues = []
    for lines in blocks:
        times = [number for number, line in enumerate(lines) if re.match(r"[\d:.,]+ --> ", line)]
        if times:
            cues.append(html.unescape(" ".join(lines[times[0] + 1 :])))
    return cues


def _messages(catalogue: str) -> list[str]:
    messages = []
    for block in catalogue.split("\n\n")[1:]:
        source, _, target = block.partition("\nmsgstr ")
        translation = _joined_literals(target)
        messages.append(translation or _joined_literals(source.partition("msgid ")[2]))
    return messages


def _joined_literals(lines: str) -> str:
    return "".join(ast.literal_eval(line) for line in lines.splitlines() if line.startswith('"'))


def _units(page: str) -> list[str]:
    texts = []
    for unit in lxml.etree.fromstring(page.encode(), _big()).iter("{*}trans-unit"):
        source, *targets = ["".join(child.itertext()) for child in unit]
        texts.append(targets[0] if targets and targets[0] else source)
    return texts


def _strings(page: str) -> list[str]:
    root = lxml.etree.fromstring(page.encode(), _big())
    return [re.sub(r"\\(.)", r"\1", "".join(element.itertext())) for element in root.iter("string")]


def _big() -> lxml.etree.XMLParser:
    return lxml.etree.XMLParser(huge_tree=True)


def _values(page: str) -> list[str]:
    lines = re.sub(r"\\\n[ \t]*", "", page).splitlines()
    characters = [re.sub(r"\\u(....)", lambda code: chr(int(code[1], 16)), line.partition("=")[2]) for line in lines]
    return [re.sub(r"\\(.)", r"\1", value) for value in characters]


def tree_of(page: str) -> list:
    """Return the elements of a page of HTML: their depth, names, attributes, and the texts in and behind them."""
    parser = lxml.html.HTMLParser(huge_tree=True)
    root = lxml.html.document_fromstring(page, parser=parser)
    return [
        (
            len(list(element.iterancestors())),
            str(element.tag),
            dict(element.attrib),
            _plain(element.text),
            _plain(element.tail),
        )
        for element in root.iter()
    ]


def rendered(page: str) -> list[str]:
    """Return the tags and the texts between them of a page of Markdown. A break of lines in a text is a space."""
    parser = MarkdownIt("commonmark", {"maxNesting": 100}).enable(["table", "strikethrough"])
    parts = [_plain(part) for part in re.split("(<[^>]*>)", parser.render(page))]
    return [part for part in parts if part]


def _plain(text: str | None) -> str:
    """Return a text with single spaces."""
    return " ".join((text or "").split())


_PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n'
_XLIFF = (
    '<?xml version="1.0"?>\n<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
    '<file original="a" source-language="en" target-language="de" datatype="plaintext"><body>\n'
)
MARKDOWN = Format("a.md", _numbered("", "\n\n"), rendered)
HTML = Format(
    "a.html",
    _around("<!DOCTYPE html>\n<html><body>\n", _numbered("<p>", "</p>\n", html.escape), "</body></html>\n"),
    tree_of,
)
SRT = Format("a.srt", _numbered("NUMBER\n00:00:01,000 --> 00:00:02,000\n", "\n\n"), _cues)
VTT = Format(
    "a.vtt",
    _around(
        "WEBVTT\n\n",
        _numbered("00:00:01.000 --> 00:00:02.000\n", "\n\n", functools.partial(html.escape, quote=False)),
        "",
    ),
    _cues,
)
PO = Format("a.po", _around(_PO, _numbered('\nmsgid "', '"\nmsgstr ""\n', _with_backslashes('\\"')), ""), _messages)
XLIFF = Format(
    "a.xlf",
    _around(
        _XLIFF,
        _numbered('<trans-unit id="NUMBER"><source>', "</source></trans-unit>\n", html.escape),
        "</body></file></xliff>\n",
    ),
    _units,
)
JSON = Format(
    "a.json",
    lambda texts: json.dumps({f"key{number}": text for number, text in enumerate(texts)}, ensure_ascii=False, indent=2),
    lambda page: list(json.loads(page).values()),
    "i18next",
)
ANDROID = Format(
    "strings.xml",
    _around(
        "<resources>\n",
        _numbered(
            '<string name="sNUMBER">',
            "</string>\n",
            lambda text: html.escape(_with_backslashes("\\'\"@?")(text), quote=False),
        ),
        "</resources>\n",
    ),
    _strings,
)
PROPERTIES = Format("a.properties", _numbered("keyNUMBER=", "\n", _with_backslashes("\\")), _values, "properties")
FORMATS = (MARKDOWN, HTML, SRT, VTT, PO, XLIFF, JSON, ANDROID, PROPERTIES)


def translated(file_format: Format, page: str, folder: Path, translator: Copies | UpperCase) -> str:
    """Return the translation of a file."""
    source = folder / file_format.name
    target = folder / f"translated_{file_format.name}"
    source.write_text(page, newline="")
    translate_file(translator, source, target, "en", file_format=file_format.option)
    return target.read_bytes().decode()


def changes(file_format: Format, page: str, folder: Path) -> str:
    """Return the first difference that a translator that copies makes to a file, or ""."""
    before = file_format.read(page)
    after = file_format.read(translated(file_format, page, folder, Copies()))
    return first_difference(before, after)


def first_difference(expected: list, actual: list) -> str:
    """Return the first difference between two lists, or ""."""
    for number, (one, other) in enumerate(zip(expected, actual)):
        if isinstance(one, str):
            one, other = _plain(one), _plain(other)
        if one != other:
            return f"part {number}: {str(other)[:300]!r} instead of {str(one)[:300]!r}"
    return "" if len(expected) == len(actual) else f"{len(actual)} parts instead of {len(expected)}"


# Kinds of texts.


WORDS = ("dog", "cats", "run", "old", "green", "house", "see", "trees", "why", "water")


def _sentence(rng: random.Random) -> str:
    """Return a few words in small letters."""
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 6)))


def underlined_headings(rng: random.Random, folder: Path) -> Finding:
    """Headings of Markdown over a line of signs, whose first characters would make another block of them."""
    beginnings = (
        *(r"1\. ", r"1\) ", r"\- ", r"\+ ", r"\* ", r"\> ", r"\# ", r"\## ", r"\~~~", r"\```", r"\=", r"\---", r"\| "),
        *("&#45; ", "&gt; ", "&#35; ", "&#42; ", "&#49;. ", "", "", "**", "`x` ", r"\[a]: ", r"\<b> ", r"\![", r"\_"),
    )
    parts = []
    for _ in range(rng.randint(1, 6)):
        beginning = rng.choice(beginnings)
        end = "**" if beginning == "**" else ""
        heading = f"{beginning}{_sentence(rng)}{end}"
        if rng.random() < 0.2:
            heading += f"\n{rng.choice(beginnings[:11])}{_sentence(rng)}"
        underline = rng.choice("-=") * rng.randint(1, 12)
        part = f"{heading}\n{underline}\n"
        around = rng.random()
        if around < 0.15:
            part = re.sub("(?m)^", "> ", part.rstrip("\n")) + "\n"
        elif around < 0.3:
            part = f"* {part.replace(chr(10), chr(10) + '  ').rstrip()}\n"
        parts += [part, f"{_sentence(rng).capitalize()}.\n"]
    page = "\n".join(parts)
    return judged(lambda: changes(MARKDOWN, page, folder), page)


def comments_before_the_root(rng: random.Random, folder: Path) -> Finding:
    """Comments, instructions and white space in front of the first element, which tells what file it is."""
    file_format = rng.choice((HTML, XLIFF, ANDROID))
    page = file_format.written([_sentence(rng) for _ in range(2)])
    # What must be the first in a file.
    declaration = "" if file_format is ANDROID else page[: page.index(">\n") + 2]
    traps = ["", " ", "\n", "<html>", "<resources>", "<xliff>", "> ", "- ->", "a - b", "<!", "?>", "]]>"]
    parts = []
    size = 0
    for _ in range(rng.choice((1, 3, 24, 60, 200))):
        kinds = [f"<!--{rng.choice(traps)} {_sentence(rng)} -->", rng.choice(["\n", "  ", "\r\n", "\t\n"])]
        if file_format is not HTML:
            kinds.append(f"<?program {_sentence(rng)}?>")
        part = rng.choice(kinds)
        size += len(part)
        # The first 8 KB tell the format.
        if size > 7000:
            break
        parts.append(part)
    page = declaration + "".join(parts) + page.removeprefix(declaration)
    if file_format is not HTML and rng.random() < 0.5:
        # The first element must tell the format.
        file_format = file_format._replace(name="other.xml")
    return judged(lambda: changes(file_format, page, folder), f"{file_format.name}\n{page}")


UNITS = (
    *"aAé7漢%{}<&$@./-_\\*`[(!'\"~=|:#",
    *("{{", "![", "](", "[a](", "%(", "<!--", "<a ", "<b>", "a.", "a@", "a@b.", "a/", "https://", "'{", "$t(", "&#"),
    *("a_", "AAAA+/", "--", "%1$", "e\u0301", "``", "**a", "a:", "a-", "/*", "{a", "${", "..", "a'", "&amp;", "~~"),
)
"""What is repeated in an endless word."""


def endless_words(rng: random.Random, folder: Path) -> Finding:
    """One word of up to 300,000 characters among others, in every format."""
    file_format = rng.choice((*FORMATS, None))
    unit = rng.choice(UNITS)
    size = int(10 ** rng.uniform(3, 5.5))
    word = (unit * size)[: min(size, LONGEST_WORD)]
    # The translator that copies links each word with each other one, and every sign is a word.
    words_of_unit = max(1, len(re.findall(r"[^\W\d_]+|[^\w\s]", unit)))
    if re.search(r"[^\w\s]|漢", unit):
        word = word[: MOST_SIGNS // words_of_unit * len(unit)]
    text = rng.choice(["{} dog", "See {} dogs.", "{}", "a{}b", "({}"]).replace("{}", word)
    about = f"{file_format.name if file_format else 'pipeline'}: {text[:60]!r}, {len(text)} characters of {unit!r}"

    def use() -> str:
        if file_format is None:
            for options in ({"documents": "en"}, {"keep": r"\{\w+\}"}, {}):
                _letters()(text, max_new_tokens=4, num_beams=1, truncation=True, **options)
            return ""
        return changes(file_format, file_format.written(["dogs run.", text, "cats run."]), folder)

    return judged(use, about)


@functools.cache
def _letters() -> hf_capsule_mt.TranslationPipeline:
    return hf_capsule_mt.pipeline(tiny_checkpoint("capsule_aggregated_marian"), device="cpu")


def prices(rng: random.Random, folder: Path) -> Finding:
    """Amounts of money in Markdown, which are no formulas. What stands between them is translated."""
    parts = []
    for _ in range(rng.randint(2, 6)):
        price = rng.choice(["$5", "$6", "$5.99", "$1,000", "$20", "$7", "$0.5", "$12"])
        parts.append(f"{_sentence(rng)} {price}{rng.choice(['', '', '.', ',', ' and', ' each', '/month'])}")
    page = f"{' '.join(parts)}\n"
    if rng.random() < 0.3:
        page = f"# {page}"
    if rng.random() < 0.3:
        page = f"| a |\n|---|\n| {page.strip('# ').strip()} |\n"
    formula = rng.choice(["$x$", "$x + y$", r"$\alpha$", "$a_1$", "$2x$"])
    with_formula = rng.random() < 0.3
    if with_formula:
        page += f"\nhere is {formula} now\n"

    def use() -> str:
        # Translated sentences need no other spaces or marks, so the page in capitals is known.
        expected = page.upper()
        if with_formula:
            expected = expected.replace(formula.upper(), formula)
        written = translated(MARKDOWN, page, folder, UpperCase())
        return first_difference(rendered(expected), rendered(written))

    return judged(use, page)


READ_BY_USERS = ("title", "alt", "placeholder", "aria-label")


def attributes_in_attributes(rng: random.Random, folder: Path) -> Finding:
    """Values of attributes in HTML that look like other attributes, tags or comments."""
    expected = []
    parts = []
    for _ in range(rng.randint(1, 5)):
        names = rng.sample(
            ["onclick", "data-x", "style", "id", "href", "data-title", *READ_BY_USERS], rng.randint(1, 5)
        )
        attributes = []
        values = {}
        for name in names:
            quote = rng.choice("\"'")
            other = "'" if quote == '"' else '"'
            inner = f"{rng.choice([' ', '', ';', ' a '])}{rng.choice(READ_BY_USERS)} = {other}{_sentence(rng)}{other}"
            value = rng.choice([_sentence(rng), inner, f"{_sentence(rng)} {inner} b", f"a > {inner}", "=", "a=b", ""])
            values[name] = value.upper() if name in READ_BY_USERS else value
            # Translated sentences have single spaces.
            values[name] = _plain(values[name])
            space = rng.choice([" ", "\n", "  ", "\t"])
            equals = rng.choice(["=", " = ", "= "])
            attributes.append(f"{space}{name}{equals}{quote}{value}{quote}")
        tag, text = rng.choice([("b", _sentence(rng)), ("img", ""), ("input", "")])
        parts.append(f"<p>{_sentence(rng)} <{tag}{''.join(attributes)}>{text}{f'</{tag}>' if text else ''} now</p>")
        expected.append(values)
    page = f"<!DOCTYPE html>\n<html><body>\n{chr(10).join(parts)}\n</body></html>\n"

    def use() -> str:
        tree = tree_of(translated(HTML, page, folder, UpperCase()))
        found = [
            {name: _plain(value) for name, value in attributes.items()}
            for _, tag, attributes, _, _ in tree
            if tag in ("b", "img", "input")
        ]
        return first_difference(expected, found)

    return judged(use, page)


def addresses(rng: random.Random, folder: Path) -> Finding:
    """Addresses of pages and of people, in every format. They stay, and the words around them do not."""
    file_format = rng.choice(FORMATS)
    host = rng.choice(["example.org", "www.example.org", "mail.example.co.uk", "x-y.de", "sub.a.io"])
    kinds = [
        f"https://{host}/{rng.choice(['', 'a/b_c', 'a-b/c.html', '~tom/x', 'a,b;c'])}",
        f"http://{host}:8080/x?q=1&r=a_b#top",
        f"https://{host}",
        f"{rng.choice(['tom', 'first.last', 'a_b', 'a-b', 'tom+news'])}@{host}",
    ]
    texts = []
    wanted = []
    for _ in range(rng.randint(1, 4)):
        address = rng.choice(kinds)
        before = _sentence(rng)
        after = _sentence(rng)
        alone = rng.random() < 0.3
        wanted.append(("", address, "") if alone else (before, address, after))
        around = rng.choice(["{}", "{},", "({})", "'{}'", "{}."]) if file_format is not MARKDOWN else "{}"
        texts.append(address if alone else f"{before} {around.replace('{}', address)} {after}")

    def use() -> str:
        page = file_format.written(texts)
        written = " ".join(map(str, file_format.read(translated(file_format, page, folder, UpperCase()))))
        if file_format is MARKDOWN:
            written = html.unescape(written)
        for before, address, after in wanted:
            for part in (before.upper(), address, after.upper()):
                if part not in written:
                    return f"{part!r} is not in {written[:1000]!r}"
        return ""

    return judged(use, f"{file_format.name} {texts}")


# Terms.

SENTENCES = (
    "The house is old.",
    "Where did you buy that coat?",
    "The printer in the kitchen does not work.",
    "He has been waiting for the train at the station for two hours.",
    "My brother sold his car and bought a bicycle.",
    "Three men were playing in a concert.",
    "The teacher gave the children a book about animals.",
    "I like music.",
    "Tom forgot his umbrella in the restaurant yesterday evening, so he went back to the city with his sister.",
    "The old dog sleeps under the table because the cat took his place on the sofa near the window this morning.",
)
NO_TERMS = "the is that did you where a in not for at has been two of his my and he about so with to i"


@functools.cache
def _german() -> hf_capsule_mt.TranslationPipeline:
    return hf_capsule_mt.pipeline(MODEL, device="cpu")


def _target(rng: random.Random) -> str:
    """Return a word or name that a model would not write by itself."""

    def syllables(count: int) -> str:
        return "".join(rng.choice("bdfgklmnprst") + rng.choice("aeiou") for _ in range(count))

    kind = rng.choice(["short", "long", "product", "words", "letters"])
    if kind == "short":
        return syllables(2).capitalize()
    if kind == "long":
        return syllables(rng.randint(4, 7)).capitalize()
    if kind == "product":
        letters = "".join(rng.choices(string.ascii_uppercase, k=2))
        return f"{letters}-{syllables(2).capitalize()} {rng.randint(10, 9999)}{rng.choice(['', 'dtn', 'x'])}"
    if kind == "words":
        return " ".join(syllables(2).capitalize() for _ in range(rng.randint(2, 3)))
    return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(4, 8))).capitalize()


def _room(text: str) -> int:
    """Return how many tokens of terms surely fit into the translation of a text, which has a limit."""
    return len(_german().tokenizer(text)["input_ids"]) + 6


def terms_of_many_tokens(rng: random.Random, folder: Path) -> Finding:
    """Terms of 1 to 12 tokens. Each is written, whatever the number of beams."""
    sentence = rng.choice(SENTENCES)
    words = [word for word in dict.fromkeys(re.findall(r"\w+", sentence)) if word.lower() not in NO_TERMS.split()]
    rng.shuffle(words)
    terms: dict[str, str] = {}
    room = _room(sentence)
    for word in words[: rng.choice([1, 1, 2, 15])]:
        target = _target(rng)
        length = len(_german().tokenizer(text_target=target, add_special_tokens=False)["input_ids"])
        is_new = not any(target in other or other in target for other in terms.values())
        if is_new and length <= min(room, LONGEST_TERM):
            terms[word] = target
            room -= length
    return judged(lambda: _unwritten(sentence, terms, terms.values(), folder), f"{sentence} {terms}")


def _unwritten(sentence: str, glossary: dict[str, str], wanted: object, folder: Path) -> str:
    """Return which of the wanted terms translations lack."""
    file = folder / "terms.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in glossary.items()))
    if not glossary:
        return ""
    for num_beams in BEAMS:
        [result] = _german()(sentence, glossary=str(file), num_beams=num_beams)
        written = result["translation_text"]
        lost = [target for target in wanted if target not in written]
        if lost:
            return f"{num_beams} beams: {lost} not in {written!r}"
    return ""


def overlapping_terms(rng: random.Random, folder: Path) -> Finding:
    """Terms that share words, on both sides. The longest from the left are written, and the choice is made soon."""
    if rng.random() < 0.5:
        return _many_overlapping(rng)
    sentence = rng.choice(SENTENCES)
    words = re.findall(r"\w+", sentence)
    names = [_target(rng).split()[0] for _ in range(4)]
    glossary: dict[str, str] = {}
    for _ in range(rng.randint(2, 8)):
        start = rng.randrange(len(words))
        source = " ".join(words[start : start + rng.randint(1, 4)])
        if source in sentence:
            glossary[source] = " ".join(rng.sample(names, rng.randint(1, 2)))
    wanted = []
    index = 0
    while index < len(words):
        sources = [" ".join(words[index : index + length]) for length in range(4, 0, -1)]
        known = [source for source in sources if source in glossary and source in sentence]
        if known:
            wanted.append(glossary[known[0]])
            index += len(known[0].split())
        else:
            index += 1
    lengths = [len(_german().tokenizer(text_target=target, add_special_tokens=False)["input_ids"]) for target in wanted]
    if sum(lengths) > _room(sentence):
        glossary = {}
    return judged(lambda: _unwritten(sentence, glossary, wanted, folder), f"{sentence} {glossary}")


def _many_overlapping(rng: random.Random) -> Finding:
    """Many terms of a few words, or one that is longer than a text, which a client of a server may send."""
    letters = rng.choice(["ab", "abc", "abcdef"])

    def some(most: int) -> str:
        return " ".join(rng.choices(letters, k=rng.randint(1, most)))

    terms = {some(5): (some(4), some(4)) for _ in range(rng.choice([5, 20, 60]))}
    text = " ".join(rng.choices(letters, k=rng.choice([20, 100, 2000])))
    is_long = rng.random() < 0.3
    if is_long:
        # No model reads such a term.
        length = rng.choice([50, 500, 5000])
        terms[" ".join(["a"] * length + ["b"])] = ("a", "b")
        text = " ".join(["a"] * 20_000)
    translation = " ".join(rng.choices(letters, k=rng.choice([20, 60, 120])))

    def use() -> str:
        glossary = Glossary([Entry((source,), tuple(set(targets))) for source, targets in terms.items()])
        found = glossary.terms(text)
        behind = 0
        for term in found:
            if term.start < behind or text[term.start : term.end] not in terms:
                return f"{term} is no term, or overlaps the one before"
            behind = term.end
        for term, form in zip(found[:60], placed_forms(translation, found[:60]), strict=True):
            if form is not None and (form not in term.entry.targets or form.lower() not in translation):
                return f"{form!r} is not in {translation!r}"
        return ""

    about = f"{len(terms)} terms of {letters}, {len(text)} characters, {translation[:100]}"
    return judged(use, about, may_be_refused=is_long)


AREAS = {
    function.__name__.replace("_", " "): function
    for function in (
        underlined_headings,
        comments_before_the_root,
        endless_words,
        terms_of_many_tokens,
        overlapping_terms,
        prices,
        attributes_in_attributes,
        addresses,
    )
}
