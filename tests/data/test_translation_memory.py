"""Translation memories: the right languages, only text, and nothing that a file can do to its reader."""

import gzip
from pathlib import Path

import psutil
import pytest

from hf_capsule_mt.data.corpus_files import Columns, Shard
from hf_capsule_mt.data.parallel_text import read_parallel_text, read_shard

HEAD = '<?xml version="1.0" encoding="{}"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header/><body>\n'
TAIL = "</body></tmx>\n"


def unit(**segments):
    variants = (f'<tuv xml:lang="{code.replace("_", "-")}"><seg>{text}</seg></tuv>' for code, text in segments.items())
    return f"<tu><note>a note</note>{''.join(variants)}</tu>\n"


def memory(path, *units, encoding="utf-8", head=HEAD):
    content = (head.format(encoding) + "".join(units) + TAIL).encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def pairs_of(path, source="en", target="de"):
    text = read_parallel_text([path], source, target)
    return list(zip(text.sources, text.targets))


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("Fish &amp; chips &lt; 5 &#8364;", "Fish & chips < 5 €"),
        ('Click <bpt i="1">&lt;b&gt;</bpt>Save<ept i="1">&lt;/b&gt;</ept>.', "Click Save."),
        ("a<ph x='1'>&lt;br/&gt;<sub>not this</sub></ph> b<it pos='begin'>{\\i</it><ut>code</ut> c", "a b c"),
        ("the <hi>old <bpt i='1'>x</bpt>house<ept i='1'>x</ept></hi> is <hi/>green", "the old house is green"),
        ("a <!-- comment --><?pi?>b", "a b"),
        ("\n    two\n    lines\u00a0here \n", "two lines\u00a0here"),
        ("<![CDATA[1 < 2]]>", "1 < 2"),
    ],
)
def test_only_text_is_read(tmp_path, segment, text):
    assert pairs_of(memory(tmp_path / "a.tmx", unit(en=segment, de="x"))) == [(text, "x")]


def test_languages(tmp_path):
    units = [
        unit(en_US="color", de_DE="Farbe", fr="couleur"),
        unit(de="Haus", EN_GB="house", en="home"),
        unit(en="only English", fr="seulement"),
        unit(en="", de="leer"),
        '<tu><tuv lang="EN"><seg>old</seg></tuv><tuv lang="de-AT"><seg>alt</seg></tuv></tu>',
        '<tu><tuv xml:lang="en"/><tuv xml:lang="de"><seg>nichts</seg></tuv></tu>',
    ]
    path = memory(tmp_path / "a.tmx", *units)
    assert pairs_of(path) == [("color", "Farbe"), ("home", "Haus"), ("old", "alt")]
    assert pairs_of(path, "de", "en_GB") == [("Haus", "house")]
    assert pairs_of(path, "en", "fr") == [("color", "couleur"), ("only English", "seulement")]
    with pytest.raises(ValueError, match="de, de-at, de-de, en, en-gb, en-us, fr"):
        pairs_of(path, "en", "it")
    with pytest.raises(ValueError, match="two different names"):
        pairs_of(path, None, None)


@pytest.mark.parametrize("name", ["a.tmx", "a.tmx.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_files_as_tools_write_them(tmp_path, name, encoding):
    path = memory(tmp_path / name, unit(en="green", de="grün"), encoding=encoding)
    assert pairs_of(path) == [("green", "grün")]


def entities(*declared):
    return f'<?xml version="1.0"?>\n<!DOCTYPE tmx [{"".join(declared)}]>\n<tmx version="1.4"><body>\n'


BOMB = ['<!ENTITY e0 "ha">', *(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))]


@pytest.mark.parametrize(
    ("declared", "segment"),
    [
        (BOMB, "&e11;"),
        (['<!ENTITY name "House">'], "my &name;"),
        (['<!ENTITY file SYSTEM "secret.txt">'], "&file;"),
        ([], "caf&eacute;"),
    ],
)
def test_entities_are_not_expanded(tmp_path, monkeypatch, declared, segment):
    monkeypatch.chdir(tmp_path)
    Path("secret.txt").write_text("secret")
    path = memory(tmp_path / "a.tmx", unit(en=segment, de="x"), head=entities(*declared))
    with pytest.raises(ValueError, match=r"a\.tmx"):
        pairs_of(path)


def test_half_a_file_is_refused(tmp_path):
    path = memory(tmp_path / "a.tmx", unit(en="a", de="b"), unit(en="c", de="d"))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"a\.tmx"):
        pairs_of(path)


def test_memory_does_not_grow_with_the_file(tmp_path):
    """The text has 16 MB."""
    path = memory(tmp_path / "a.tmx.gz", *[unit(en="a house " * 600, de="ein Haus " * 600)] * 1_600)
    process, most, number = psutil.Process(), 0, 0
    before = process.memory_info().rss
    for number, _ in enumerate(read_shard(Shard("tmx", (path,)), Columns("en", "de")), start=1):
        if not number % 160:
            most = max(most, process.memory_info().rss - before)
    assert number == 1_600
    assert most < 8e6
