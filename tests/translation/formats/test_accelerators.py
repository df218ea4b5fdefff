"""Accelerators: the model gets labels without their sign, and translations have it on a letter that is free."""

import json
import re

import pytest
from lxml import etree
from stand_in_translator import UpperCase

from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats.accelerators import Accelerators
from hf_capsule_mt.translation.generation.decoder import Decoded


class Knows(UpperCase):
    """Writes the translations of a dictionary."""

    def __init__(self, words):
        super().__init__()
        self._words = words

    def decode_batches(self, sentences, batches, **options):
        for batch in batches:
            translations = {}
            for index in batch:
                text = sentences[index].segment.text
                self.seen.append(text)
                translations[index] = (Decoded([], text=self._words[text]),)
            yield translations


GERMAN = {
    "Save": "Speichern",
    "Save as...": "Speichern unter...",
    "Quit": "Schließen",
    "Exit": "Beenden",
    "Find %s": "%s suchen",
    "Search && replace": "Suchen && ersetzen",
    "Find and replace": "Suchen & ersetzen",
    "Open": "Öffnen",
    "R&D": "F&E",
    "done": "fertig",
    "Answers": "Q & A < B",
    "Questions": "&& & Q",
}


@pytest.mark.parametrize(
    ("label", "words", "letter"),
    [
        ("&Save", "Save", "S"),
        ("_Quit", "Quit", "Q"),
        ("&save", "save", "s"),
        ("Save (&S)", "Save", "S"),
        ("保存(&S)...", "保存...", "S"),
        ("(_S)", "", "S"),
        ("E&xit", "Exit", "x"),
        ("F_ormat", "Format", "o"),
        ("Cu&t", "Cut", "t"),
        ("Save _As...", "Save As...", "A"),
        ("<b>_Name</b>", "<b>Name</b>", "N"),
        ("Download F_older(s)", "Download Folder(s)", "o"),
        ("Stop seed at _ratio:", "Stop seed at ratio:", "r"),
        ("&Save\tCtrl+S", "Save\tCtrl+S", "S"),
        ("<b>&Save</b>", "<b>Save</b>", "S"),
        ("_Use this", "Use this", "U"),
        ("Save &As…", "Save As…", "A"),
        ("Print Pre_view", "Print Preview", "v"),
        ("&Übernehmen", "Übernehmen", "Ü"),
        ("&1 day", "1 day", "1"),
        ("_Show all feeds of public chat rooms in the list.", "Show all feeds of public chat rooms in the list.", "S"),
    ],
)
def test_labels(label, words, letter):
    text, accelerator = Accelerators([label]).split(label)
    assert text == words
    assert accelerator.letter == letter


@pytest.mark.parametrize("label", ["&File", "E&xit", "打开(&O)", "<b>&Name</b>", "Save &As..."])
@pytest.mark.parametrize(
    ("later", "words", "letter"),
    [
        ("Select &All", "Select All", "A"),
        ("Open &recent", "Open recent", "r"),
        ("Save && &Quit", "Save && Quit", "Q"),
    ],
)
def test_a_later_word_in_a_file_with_labels(label, later, words, letter):
    text, accelerator = Accelerators([later, label]).split(later)
    assert text == words
    assert accelerator.letter == letter


@pytest.mark.parametrize(
    "label", ["", "Save", "R&D", "&&", "_File", "_id", "&lt; and &gt;", "Tom &Jerry", "Watch Tom &Jerry."]
)
def test_a_later_word_in_a_file_without_labels(label):
    assert Accelerators([label, "Tom &Jerry"]).split("Tom &Jerry") == ("Tom &Jerry", None)


@pytest.mark.parametrize(
    "message",
    [
        "&&",
        "Fish && Chips",
        "&amp;",
        "&copy; 2026",
        "&#38;Save",
        "snake_case",
        "Snake_Case",
        "MAX_SIZE",
        "_(",
        "_italic_",
        "An _italic_ word",
        "__init__",
        "_id",
        "the _id field",
        "Open the file Some_file.txt",
        "Call Some_function()",
        "Set x.Fo_rmat",
        "R&D",
        "Q&A",
        "Q&a",
        "AT&T",
        "a & b",
        "Tom & Jerry",
        "drag&drop",
        "x&y",
        "&",
        "Save &",
        "Use the _source field to find it.",
        "In the settings of the server you find the _source of it",
        "Use _config to set",
        "Borrow &mut self",
        "Tom &Jerry",
        "<b>the</b> _id field:",
        "Some words\nand &more",
        "See https://a.org/?a=1&b=2",
        "%(file_name)s",
        "{some_name}",
        "$some_name",
        "&Save &As",
        "_Save & _quit",
        "~Save",
    ],
)
def test_other_messages(message):
    assert Accelerators([message]).split(message) == (message, None)


@pytest.mark.parametrize(
    ("translations", "expected"),
    [
        (["Speichern", "Suchen", "Spulen", "Schnee"], ["&Speichern", "S&uchen", "S&pulen", "S&chnee"]),
        # Without a free letter it is on the first one.
        (["Aa", "Aa"], ["&Aa", "&Aa"]),
        (["%s öffnen", "{name} <b>ab</b>", "$word &amp; c"], ["%s &öffnen", "{name} <b>&ab</b>", "$word &amp; &c"]),
        (["Suchen & ersetzen", "A && B"], ["&Suchen && ersetzen", "&A && B"]),
        # Only the words are shown.
        (["1\tStrg"], ["1\tStrg"]),
        (["123"], ["123"]),
        (["Сохранить"], ["&Сохранить"]),
        (["保存", "保存...", "저장 :"], ["保存(&S)", "保存(&S)...", "저장(&S) :"]),
    ],
)
def test_where_the_sign_goes(translations, expected):
    accelerators = Accelerators([])
    accelerator = accelerators.split("&Save")[1]
    assert [accelerators.put(translation, accelerator) for translation in translations] == expected


def catalogue_of(labels):
    """A catalogue whose first message is translated already."""
    first = f'msgid "{labels[0]}"\nmsgstr "Xy"\n'
    return "\n".join([first, *(f'msgid "{label}"\nmsgstr ""\n' for label in labels[1:])])


def xliff_of(labels):
    """A file whose first unit is translated already."""
    sources = [f"<source>{label.replace('&', '&amp;')}</source>" for label in labels]
    sources[0] += "<target>Xy</target>"
    units = "".join(f"<trans-unit>{source}</trans-unit>" for source in sources)
    return f'<xliff version="1.2">{units}</xliff>'


def properties_of(labels):
    return "".join(f"key{number}={label}\n" for number, label in enumerate(labels))


@pytest.mark.parametrize(
    ("labels", "read"),
    [
        (["Chips", "Tom &Jerry"], "Tom &Jerry"),
        (["Chips", "Borrow &mut self"], "Borrow &mut self"),
        (["&Fish", "Select &All"], "Select All"),
        (["E&xit", "Tom &Jerry"], "Tom Jerry"),
        (["Chips", "Save &As..."], "Save As..."),
        (["Chips", "&Fish"], "Fish"),
    ],
    ids=["name", "code", "begins-a-label", "in-a-word", "menu-ending", "first-word"],
)
@pytest.mark.parametrize(
    ("name", "content"),
    [("a.po", catalogue_of), ("a.xlf", xliff_of), ("messages.properties", properties_of)],
    ids=["po", "xliff", "properties"],
)
def test_what_the_model_reads_of_a_sign(tmp_path, name, content, labels, read):
    """Whether a sign in front of a later word is an accelerator is seen in the other labels of the file."""
    (tmp_path / name).write_text(content(labels))
    translator = UpperCase()
    translate_file(translator, tmp_path / name, tmp_path / "out", "en")
    assert read in translator.seen


@pytest.mark.parametrize(
    ("labels", "read"),
    [
        (["Fish", "Use _config to set"], "Use _config to set"),
        (["_Open", "Show _hidden files"], "Show hidden files"),
    ],
    ids=["name", "label"],
)
@pytest.mark.parametrize(("name", "content"), [("a.po", catalogue_of), ("a.xlf", xliff_of)], ids=["po", "xliff"])
def test_what_the_model_reads_of_a_sign_of_gtk(tmp_path, name, content, labels, read):
    (tmp_path / name).write_text(content(labels))
    translator = UpperCase()
    translate_file(translator, tmp_path / name, tmp_path / "out", "en")
    assert read in translator.seen


def test_a_catalogue(tmp_path):
    catalogue = (
        'msgid "&Open"\nmsgstr "Ö&ffnen"\n\nmsgid "&Save"\nmsgstr ""\n\nmsgid "Save &as..."\nmsgstr ""\n\n'
        'msgid "_Quit"\nmsgstr ""\n\nmsgid "E&xit"\nmsgstr ""\n\nmsgid "&Find %s"\nmsgstr ""\n\n'
        'msgid "Find and _replace"\nmsgstr ""\n\nmsgid "R&D"\nmsgstr ""\n\nmsgid "done"\nmsgstr ""\n'
    )
    (tmp_path / "de.po").write_text(catalogue)
    translator = Knows(GERMAN)
    translate_file(translator, tmp_path / "de.po", tmp_path / "new.po", "en")
    written = (tmp_path / "new.po").read_text()
    targets = [line.removeprefix('msgstr "')[:-1] for line in written.splitlines() if line.startswith("msgstr")]
    # The letter of the message that was translated before is taken, too.
    assert targets == [
        "Ö&ffnen",
        "&Speichern",
        "S&peichern unter...",
        "S_chließen",
        "&Beenden",
        "%s s&uchen",
        "Suc_hen & ersetzen",
        "F&E",
        "fertig",
    ]
    assert not any(text.startswith(("&", "_")) for text in translator.seen)


@pytest.mark.parametrize("label", ["~Save", "Save ~all"])
def test_a_header_names_the_sign(tmp_path, label):
    catalogue = (
        f'msgid ""\nmsgstr ""\n"X-Accelerator-Marker: ~\\n"\n\nmsgid "{label}"\nmsgstr ""\n\nmsgid "&Quit"\nmsgstr ""\n'
    )
    (tmp_path / "de.po").write_text(catalogue)
    words = {**GERMAN, "Save all": "Speichern", "&Quit": "&Schließen"}
    translate_file(Knows(words), tmp_path / "de.po", tmp_path / "new.po", "en")
    written = (tmp_path / "new.po").read_text()
    assert 'msgstr "~Speichern"' in written
    assert 'msgstr "&Schließen"' in written


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("&amp;Save", "&amp;Speichern"),
        ("_Quit", "_Schließen"),
        ("Find and &amp;replace", "&amp;Suchen &amp;&amp; ersetzen"),
        ("R&amp;D", "F&amp;E"),
        ("&amp;Answers", "&amp;Q &amp;&amp; A &lt; B"),
        ("_Answers", "_Q &amp; A &lt; B"),
        ("&amp;Questions", "&amp;&amp; &amp;&amp; &amp;Q"),
        ('<g id="1">&amp;Open</g>', '<g id="1">&amp;Öffnen</g>'),
        ('<ph id="1">%x</ph> &amp;Open', '<ph id="1">%x</ph> &amp;Öffnen'),
    ],
)
def test_xliff(tmp_path, source, target):
    unit = f"<trans-unit><source>{source}</source>{{}}</trans-unit>"
    before = "<trans-unit><source>&amp;Find</source><target>&amp;Lupe</target></trans-unit>"
    content = f'<xliff version="1.2">{before}{unit}</xliff>'
    (tmp_path / "a.xlf").write_text(content.format(""))
    translate_file(Knows({**GERMAN, "%x Open": "%x Öffnen"}), tmp_path / "a.xlf", tmp_path / "b.xlf", "en")
    new = f'<target state="needs-review-translation">{target}</target>'
    assert (tmp_path / "b.xlf").read_text() == content.format(new)


def test_no_reference_gets_a_sign(tmp_path):
    """Labels take all letters of the translation, and then the first one again."""
    labels = "".join(f"<trans-unit><source>{sign}Answers</source></trans-unit>" for sign in ["&amp;", "_"] * 5)
    (tmp_path / "a.xlf").write_text(f'<xliff version="1.2">{labels}</xliff>')
    translate_file(Knows(GERMAN), tmp_path / "a.xlf", tmp_path / "b.xlf", "en")
    for target in etree.parse(tmp_path / "b.xlf").iter("target"):
        shown = re.sub("[&_](?=[QAB])", "", target.text).replace("&&", "&")
        assert shown == GERMAN["Answers"]


def test_letters_of_units_with_a_target_are_taken(tmp_path):
    unit = "<trans-unit><source>{}</source><target>{}</target></trans-unit>"
    content = f'<xliff version="1.2">{{}}{unit.format("&amp;Find", "&amp;Suchen")}</xliff>'
    (tmp_path / "a.xlf").write_text(content.format("<trans-unit><source>&amp;Save</source></trans-unit>"))
    translate_file(Knows(GERMAN), tmp_path / "a.xlf", tmp_path / "b.xlf", "en")
    assert ">S&amp;peichern</target>" in (tmp_path / "b.xlf").read_text()


def test_java(tmp_path):
    (tmp_path / "messages.properties").write_text("a=&Save\nb=Save &as...\nc=_Quit\nd=R&D\n")
    translator = Knows({**GERMAN, "_Quit": "_Schließen"})
    translate_file(translator, tmp_path / "messages.properties", tmp_path / "out", "en")
    written = (tmp_path / "out").read_text()
    assert written == "a=&Speichern\nb=S&peichern unter...\nc=_Schlie\\u00dfen\nd=F&E\n"


def test_formats_without_accelerators(tmp_path):
    """Programs for the Web and for Android show the sign."""
    (tmp_path / "en.json").write_text(json.dumps({"a": "&Save it", "b": "_Save it"}))
    translator = UpperCase()
    translate_file(translator, tmp_path / "en.json", tmp_path / "out", "en")
    assert json.loads((tmp_path / "out").read_text()) == {"a": "&SAVE IT", "b": "_SAVE IT"}
    (tmp_path / "strings.xml").write_text('<resources><string name="a">_Save it</string></resources>')
    translate_file(translator, tmp_path / "strings.xml", tmp_path / "out", "en")
    assert ">_SAVE IT<" in (tmp_path / "out").read_text()
