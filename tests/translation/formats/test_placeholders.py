"""A message gets a translation with exactly its placeholders and signs, or none."""

import os
import random
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace

import pytest
from stand_in_translator import UpperCase

from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats.placeholders import with_placeholders_of

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Plural-Forms: {}\\n"\n\n'
GERMAN = "nplurals=2; plural=(n != 1);"
RUSSIAN = "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"
MESSAGES = (
    *(
        "%s of %s files copied (%d%%)",
        "Tom: %s\\n",
        "100%% sure of %1$s",
        "%-5.2f and %*d and %.*f",
        "%(name)s is late",
    ),
    *("{name} has {count} dogs", "Hello {{name}}, $t(dog) {0}", "a <b>dog</b> of %s & %d", "half of $name"),
)


class Hostile(UpperCase):
    """Adds signs, and drops and doubles words."""

    def __init__(self, seed):
        super().__init__()
        self._random = random.Random(seed)

    def decode_batches(self, sentences, batches, **options):
        for batch in super().decode_batches(sentences, batches, **options):
            yield {index: (replace(one, text=self._spoilt(one.text)),) for index, (one,) in batch.items()}

    def _spoilt(self, text):
        words = []
        for word in text.split():
            words += [word] * self._random.choice((0, 1, 1, 1, 1, 2))
            if self._random.random() < 0.2:
                words.append(self._random.choice(["%", "{", "}", "%%", "%s", "%d", "{0}", "'", "'{", "5%", "\\", "$x"]))
        return self._random.choice(["", " "]).join(words)


class Replacing(UpperCase):
    """Writes some words instead of others."""

    def __init__(self, written_for):
        super().__init__()
        self._written_for = written_for

    def decode_batches(self, sentences, batches, **options):
        for batch in super().decode_batches(sentences, batches, **options):
            translations = {}
            for index, (one,) in batch.items():
                text = self._written_for.get(sentences[index].segment.text, one.text)
                translations[index] = (replace(one, text=text),)
            yield translations


def translated(tmp_path, name, content, translator):
    (tmp_path / name).write_text(content)
    translate_file(translator, tmp_path / name, tmp_path / f"new-{name}", "en")
    return (tmp_path / f"new-{name}").read_text()


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("Tom: %s\n", "Tom % %s\n", "Tom %s\n"),
        ("%s of %s files (%d%%)", "%s % %s files % (%d % %%)", "%s %s files (%d %%)"),
        ("Tom: %s, %d.", "Tom: %s % %.%d %.", None),
        ("Tom of %s", "Tom %. %s", "Tom. %s"),
        ("Tom of %s", "Tom% % % %s", "Tom %s"),
        ("100%% sure", "100 % %% sicher", "100 %% sicher"),
        ("Dear {name}", "Lieber { {name}}", "Lieber {name}"),
        ("Tom %s", "Tom %%s", "Tom %s"),
        # It may mean percent.
        ("%d percent", "%d %", None),
        ("5 percent of %s", "5% von %s", None),
        # Missing, twice, another one.
        ("Tom: %s", "Tom:", None),
        ("Tom: %s", "Tom: %s %s", None),
        ("Tom: %s", "Tom: %d", None),
        ("Tom", "Tom %s", None),
        ("{a} and {b}", "{a} und {a}", None),
        # Values in another order.
        ("%s of %d", "%d von %s", None),
        ("{} of {:d}", "{:d} von {}", None),
        ("%2$s of %1$d", "%1$d von %2$s", "%1$d von %2$s"),
        ("%(a)s of %(b)d, %1 of %2", "%(b)d von %(a)s, %2 von %1", "%(b)d von %(a)s, %2 von %1"),
        # Here it is only a character.
        ("50 % of users", "50 % der Nutzer", "50 % der Nutzer"),
        ("half of the users", "50 % der Nutzer", "50 % der Nutzer"),
        ("50% or more", "50% o più", "50% o più"),
        # A tag has its own.
        ('<b style="width: 5%">%s</b>', '<b style="width: 5%">% %s</b>', None),
        ('a <b style="width: 5%">%s</b>', 'a % <b style="width: 5%">%s</b>', 'a <b style="width: 5%">%s</b>'),
    ],
)
def test_placeholders_of_a_translation(source, translation, expected):
    assert with_placeholders_of(source, translation) == expected


def test_a_space_is_part_of_a_sign_in_messages_with_a_format():
    assert with_placeholders_of("100 of %d", "100% d %d", is_format=True) is None
    assert with_placeholders_of("100 of %d", "zu 100% uva %d", is_format=True) is None
    assert with_placeholders_of("a % u", "a % u", is_format=True) == "a % u"


def test_what_cannot_be_repaired_stays_and_is_counted(tmp_path, caplog):
    properties = "a=It is {0}.\nb=A dog of {1}.\nc=A cat.\n"
    written_for = {"It is {0}.": "Es ist {0}.", "A dog of {1}.": "Ein {0} von {1}."}
    written = translated(tmp_path, "messages.properties", properties, Replacing(written_for))
    assert written == "a=Es ist {0}.\nb=A dog of {1}.\nc=A CAT.\n"
    assert "would get lost or be another one: 1. Their lines: 2\n" in caplog.text


def test_a_message_of_gettext_stays_open(tmp_path, caplog):
    catalogue = HEADER.format(GERMAN) + 'msgid "Tom %s"\nmsgstr ""\n\nmsgid "dog"\nmsgid_plural "%d dogs"\n'
    catalogue += 'msgstr[0] ""\nmsgstr[1] ""\n'
    written_for = {"Tom %s": "Tom %s %d", "%d dogs": "%d %s"}
    assert translated(tmp_path, "a.po", catalogue, Replacing(written_for)) == catalogue
    assert "would get lost or be another one: 2. Their lines: 6," in caplog.text


def test_a_unit_of_xliff_stays_open(tmp_path):
    unit = '<unit id="1"><segment state="initial"><source>Tom {0}</source></segment></unit>'
    content = f'<xliff version="2.0" trgLang="de"><file id="f">{unit}</file></xliff>'
    assert translated(tmp_path, "a.xlf", content, Replacing({"Tom {0}": "Tom {0} {1}"})) == content


def test_an_apostrophe_of_the_model_begins_no_quote(tmp_path):
    written_for = {"the {0} of it": "l'{0}' de '{0}'", "the {0}": "l'{0} d'un"}
    content = "a=the {0}\n"
    assert translated(tmp_path, "messages.properties", content, Replacing(written_for)) == "a=l\\u2019{0} d\\u2019un\n"
    assert translated(tmp_path, "messages.json", '{"a": "the {0}"}', Replacing(written_for)) == '{"a": "l’{0} d\'un"}'


def test_braces_over_several_lines_are_whole(tmp_path):
    message = "You have {n, plural,\\n  one {# cat}\\n  other {# cats}} now"
    written = translated(tmp_path, "messages.json", f'{{"a": "{message}"}}', UpperCase())
    assert written == f'{{"a": "{message.replace("You have", "YOU HAVE").replace("now", "NOW")}"}}'


@pytest.mark.parametrize(
    ("rule", "first"),
    [
        (GERMAN, "ONE FILE"),
        ("nplurals=2; plural=n>1;", "%d FILES"),
        (RUSSIAN, "%d FILES"),
        ("nplurals=2; plural=(;", "ONE FILE"),
    ],
)
def test_a_form_for_several_numbers_has_the_number(tmp_path, rule, first):
    forms = "".join(f'msgstr[{number}] ""\n' for number in range(int(rule[9])))
    catalogue = HEADER.format(rule) + f'msgid "one file"\nmsgid_plural "%d files"\n{forms}'
    written = translated(tmp_path, "a.po", catalogue, UpperCase())
    assert f'msgstr[0] "{first}"\nmsgstr[1] "%d FILES"\n' in written
    with_number = catalogue.replace("one file", "%d file")
    assert 'msgstr[0] "%d FILE"\n' in translated(tmp_path, "a.po", with_number, UpperCase())


@pytest.mark.parametrize("seed", range(8))
def test_msgfmt_takes_what_any_model_writes(tmp_path, seed):
    if shutil.which("msgfmt") is None and os.environ.get("CI") != "true":
        pytest.skip("needs msgfmt of GNU gettext")
    flag_of = {"%(": "python-format", "%": "c-format", "{{": "", "{": "python-brace-format"}
    content = HEADER.format(RUSSIAN)
    for message in MESSAGES:
        flag = next((flag for sign, flag in flag_of.items() if sign in message), "")
        content += f'#, {flag}\nmsgid "{message}"\nmsgstr ""\n\n'
    content += '#, c-format\nmsgid "one file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\nmsgstr[2] ""\n'
    written = translated(tmp_path, "a.po", content, Hostile(seed))
    assert "fuzzy" in written
    (tmp_path / "b.po").write_text(re.sub(r"^#,.*fuzzy.*\n", _without_fuzzy, written, flags=re.MULTILINE))
    subprocess.run(["msgfmt", "-c", "-o", tmp_path / "b.mo", tmp_path / "b.po"], check=True)


def _without_fuzzy(match):
    flags = [flag for flag in match[0].removeprefix("#,").strip().split(", ") if flag != "fuzzy"]
    return f"#, {', '.join(flags)}\n" if flags else ""


@pytest.mark.parametrize("seed", range(8))
def test_every_format_has_all_placeholders(tmp_path, seed):
    sign = re.compile(r"%(?:\d\$|\(name\))?[-*.\d]*[a-zA-Z%]|\{+\w*\}+|\$\w+|[%{}]")
    lines = [
        message.replace("\\n", " ").replace("<b>", "").replace("</b>", "").replace("& ", "") for message in MESSAGES
    ]
    files = {
        "messages.properties": "".join(f"a{number}={line}\n" for number, line in enumerate(lines)),
        "messages.json": "{" + ",\n".join(f'"a{number}": "{line}"' for number, line in enumerate(lines)) + "}",
        "strings.xml": "<resources>\n"
        + "".join(f'<string name="a">{line}</string>\n' for line in lines)
        + "</resources>",
    }
    for name, content in files.items():
        written = translated(tmp_path, name, content, Hostile(seed))
        assert written != content
        for before, after in zip(content.split("\n"), written.split("\n"), strict=True):
            signs = Counter(sign.findall(after))
            if "%" not in before:
                # In a message without such placeholders it is only a character.
                signs.pop("%", None)
            assert signs == Counter(sign.findall(before))
