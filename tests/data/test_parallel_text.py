import gzip
import json
import lzma
import os
import socket

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

from hf_capsule_mt.data.arrow_cache import read_corpora
from hf_capsule_mt.data.corpus_files import Columns, find_corpora
from hf_capsule_mt.data.lines import byte_lines, opened, read_lines, unbroken
from hf_capsule_mt.data.pair_writer import write_parallel_text
from hf_capsule_mt.data.parallel_text import read_parallel_text
from hf_capsule_mt.errors import UserError

BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
BROKEN = [("one\ntwo", "eins zwei"), ("three", "drei\nvier"), ("a\u2028b\x85\tc", "d\v\fe\r\n"), ("\r", "x")]
FORMATS = [["a.en", "a.de"], ["a.en.gz", "a.de"], ["a.tsv"], ["a.jsonl"], ["a.json.gz"]]
SEGMENT = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])).filter(
    lambda text: text.strip() and not text.endswith("\r") and not text.startswith("\ufeff")
)


def write(path, content):
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def jsonl(*pairs, keys=("en", "de")):
    return "".join(json.dumps({"translation": dict(zip(keys, pair))}) + "\n" for pair in pairs)


def pairs_of(text):
    return list(zip(text.sources, text.targets))


@given(pairs=st.lists(st.tuples(SEGMENT, SEGMENT), min_size=1, max_size=5))
def test_any_text_survives_in_every_format(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("text")
    source = write(folder / "a.en", "".join(source + "\n" for source, _ in pairs))
    target = write(folder / "a.de.gz", "".join(target + "\r\n" for _, target in pairs))
    assert pairs_of(read_parallel_text([source, target])) == pairs
    one = write(folder / "a.jsonl", jsonl(*pairs))
    assert pairs_of(read_parallel_text([one], "en", "de")) == pairs


def test_only_line_feeds_separate_lines(tmp_path):
    odd = "a\u2028b\x85c\rd\x0be\x0cf\x1cg\u2029h"
    assert read_lines(write(tmp_path / "odd.txt", f"{odd}\r\n\nend\r\n")) == [odd, "", "end"]
    assert read_lines(write(tmp_path / "open.txt.gz", "a\nb")) == ["a", "b"]
    assert read_lines(write(tmp_path / "empty.txt", "")) == []


def test_byte_order_mark_is_no_text(tmp_path):
    path = write(tmp_path / "windows.txt", "\ufeffa\r\n\ufeffb\r\n")
    assert read_lines(path) == ["a", "\ufeffb"]
    # Where reading begins in the middle of a file, it has none.
    begin = path.read_bytes().index(b"\n") + 1
    assert [line.decode() for line in byte_lines(path, begin)] == ["\ufeffb"]
    assert list(byte_lines(path, begin, keep_returns=True)) == ["\ufeffb\r".encode()]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param(
            "a.en a.de", b"one\n\nb\n\xff\nfour\nfive\n|eins\ntwo\n \t\ndrei\n\xc3\nf\xc3\xbcnf\n", id="two files"
        ),
        pytest.param("train.tsv", b"one\teins\n\ttwo\n\n\xff\tdrei\nfour\t\xff\nfive\tf\xc3\xbcnf\n", id="tsv"),
        pytest.param(
            "train.jsonl",
            jsonl(("one", "eins"), ("", "two")).encode()
            + b"\n"
            + b'{"translation": {"en": "\xff", "de": "drei"}}\n'
            + b'{"translation": {"en": "four", "de": "\\ud800"}}\n'
            + jsonl(("five", "fünf")).encode(),
            id="jsonl",
        ),
    ],
)
def test_useless_pairs_are_dropped_as_pairs_and_counted(tmp_path, name, content):
    files = [write(tmp_path / file, part) for file, part in zip(name.split(), content.split(b"|"))]
    text = read_parallel_text(files, "en", "de")
    assert pairs_of(text) == [("one", "eins"), ("five", "fünf")]
    assert str(text.report) == "6 pairs read, 2 kept, 2 dropped with an empty side, 2 dropped as invalid UTF-8"


COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": None, ".zst": "zstd"}


def compress(path, content):
    if COMPRESSED[path.suffix] is None:
        path.write_bytes(lzma.compress(content))
    else:
        with pa.output_stream(str(path), compression=COMPRESSED[path.suffix]) as stream:
            stream.write(content)
    return path


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_compressed_files(tmp_path, suffix):
    path = compress(tmp_path / f"a.tsv{suffix}", "one\teins\n\ttwo\nGrün\tgreen\n".encode())
    assert pairs_of(read_parallel_text([path])) == [("one", "eins"), ("Grün", "green")]


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_compressed_file_without_its_end_is_refused(tmp_path, suffix):
    whole = compress(tmp_path / f"whole{suffix}", b"".join(b"%x\n" % (number**9) for number in range(3000)))
    whole.write_bytes(whole.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"whole\.\w+ cannot be decompressed"):
        read_lines(whole)


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_compressed_file_that_is_damaged_is_refused(tmp_path, suffix):
    path = compress(tmp_path / f"damaged{suffix}", b"".join(b"%x\n" % (number**9) for number in range(3000)))
    content = bytearray(path.read_bytes())
    # Behind its header.
    content[20:60] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"damaged\.\w+ cannot be decompressed"):
        read_lines(path)


def test_lines_of_a_socket():
    """Some programs start others with a socket as their input. Its name cannot be opened."""
    ours, theirs = socket.socketpair()
    before = os.dup(0)
    os.dup2(theirs.fileno(), 0)
    try:
        theirs.close()
        ours.sendall(b"a\nb\n")
        ours.close()
        assert read_lines("/dev/stdin") == ["a", "b"]
    finally:
        os.dup2(before, 0)
        os.close(before)


def test_errors_of_the_system_stay_what_they_are(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_lines(tmp_path / "absent.gz")
    # A pipe that cannot seek has an error without a number.
    with pytest.raises(OSError, match="seek"), opened(write(tmp_path / "plain", "a")):
        raise OSError("seek")


def test_a_file_that_only_has_the_name_of_a_compressed_one_is_refused(tmp_path):
    (tmp_path / "a.gz").write_text("text")
    with pytest.raises(UserError, match="cannot be decompressed: Not a gzipped file"):
        read_lines(tmp_path / "a.gz")


def shards_of(files, columns=Columns("en", "de")):  # noqa: B008
    return [[tuple(map(str, shard.paths)) for shard in corpus.shards] for corpus in find_corpora(files, columns)]


def test_several_corpora(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("p-1.en", "p-1.de", "p-2.en", "p-2.de", "q.en.gz", "q.de", "r-1.tsv", "r-2.tsv", "s.jsonl"):
        (tmp_path / name).touch()
    p, q = [("p-1.en", "p-1.de"), ("p-2.en", "p-2.de")], [("q.en.gz", "q.de")]
    assert shards_of(["p-*.en", "p-*.de"]) == [p]
    assert shards_of(["p-1.en", "p-1.de", "q.en.gz", "q.de"]) == [p[:1], q]
    assert shards_of(["q.en.gz", "q.de", "r-*.tsv", "s.jsonl"]) == [q, [("r-1.tsv",), ("r-2.tsv",)], [("s.jsonl",)]]
    # Another translation of the same sources, and of these a pair that comes twice.
    assert shards_of(["p-1.en", "p-1.de", "p-1.en", "p-2.de"]) == [p[:1], [("p-1.en", "p-2.de")]]
    assert shards_of(["p-1.en", "p-1.de"] * 2) == [p[:1], p[:1]]


@pytest.mark.parametrize(
    ("patterns", "pairs"),
    [
        (["p-*.en", "p-*.de"], ["p-1.en p-1.de", "p-2.en p-2.de"]),
        (["p-*.en.gz", "p-*.de"], ["p-1.en.gz p-1.de", "p-2.en.gz p-2.de"]),
        (["p-*.en*", "p-*.de*"], ["p-1.en.gz p-1.de", "p-2.en p-2.de.xz"]),
        (["*.en-de.en", "*.en-de.de"], ["a.en.en-de.en a.en.en-de.de", "b.en-de.en b.en-de.de"]),
        (["*.en.*", "*.de.*"], ["a.en-de.en.x a.en-de.de.x", "b.en.x b.de.x"]),
        (["./*/en//*-*", "*/de/*-*"], ["1/en/a-b-c 1/de/a-b-c", "2/en/b-b 2/de/b-b"]),
        (["a/**/*.en", "a/**/*.de"], ["a/1.en a/1.de", "a/b/c/1.en a/b/c/1.de"]),
        # A name without wildcards goes with the only file of a pattern.
        (["p-*.en", "q[1].de"], ["p-1.en q[1].de"]),
        # In the order of the sources' names.
        (["a*.en", "a*_de"], ["a-b.en a-b_de", "a.en a_de", "a^b.en a^b_de"]),
    ],
)
def test_patterns_pair_what_their_wildcards_match_alike(tmp_path, monkeypatch, patterns, pairs):
    monkeypatch.chdir(tmp_path)
    for name in " ".join(pairs).split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert shards_of(patterns) == [[tuple(pair.split()) for pair in pairs]]


@pytest.fixture
def hub_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "pairs"
    folder.mkdir()
    write(folder / "train.jsonl", jsonl(("a", "ä"), ("", "b"), ("c", None), ("d\u2028", "D")))
    write(folder / "validation.jsonl", jsonl(("e", "E")))
    return str(folder)


def test_hub_data_set(hub_folder):
    [corpus] = read_corpora([], Columns("en", "de"), hub_folder)
    assert list(corpus.sources()) == ["a", "d\u2028"]
    with pytest.raises(ValueError, match="two different names"):
        read_corpora([], Columns(), hub_folder)


def folder_of(names, content="a\n"):
    """The same content in files of these names."""
    return dict.fromkeys(names.split(), content)


REFUSED = {
    "more targets": ("a.en a.de", {"a.en": "a\nb\n", "a.de": "a\nb\n\n"}, "has 2 lines and a.de has 3"),
    "more sources": ("a.en a.de", {"a.en": "a\nb\n\n", "a.de": "a\nb\n"}, "has 3 lines and a.de has 2"),
    "one file twice": ("a.en a.en", folder_of("a.en"), "are the same file"),
    "a link to it": ("a.en link", folder_of("a.en"), "are the same file"),
    "UTF-16": ("a.en a.de", {"a.en": "\ufeffone\n".encode("utf-16-le"), "a.de": "one\n"}, "is UTF-16"),
    "UTF-16, big-endian": ("a.tsv", {"a.tsv": "\ufeffa\tb\n".encode("utf-16-be")}, "a.tsv is UTF-16"),
    "three columns": ("a.tsv", {"a.tsv": "a\tb\na\tb\tc\n"}, "a.tsv:2: 3 columns"),
    "one column": ("a.tsv", {"a.tsv": "a\tb\nnothing\n"}, "a.tsv:2: 1 columns"),
    "nothing to read": ("a.tsv", {"a.tsv": "\t\n"}, "holds no usable pair"),
    "a side is missing": ("a.jsonl", {"a.jsonl": jsonl(("a", "b"), ("c",))}, "a.jsonl:2 has no text for both"),
    "other languages": ("a.jsonl", {"a.jsonl": jsonl(("a", "b"), keys=("cs", "fr"))}, "a.jsonl:1 has no text for both"),
    "a number": ("a.jsonl", {"a.jsonl": jsonl(("a", 7))}, "a.jsonl:1 has no text for both"),
    "zero": ("a.jsonl", {"a.jsonl": jsonl(("a", 0))}, "a.jsonl:1 has no text for both"),
    "false": ("a.jsonl", {"a.jsonl": jsonl((False, "a"))}, "a.jsonl:1 has no text for both"),
    "an empty list": ("a.jsonl", {"a.jsonl": jsonl(("a", []))}, "a.jsonl:1 has no text for both"),
    "no JSON": ("a.jsonl", {"a.jsonl": jsonl(("a", "b")) + "{oops\n"}, "a.jsonl:2: not JSON"),
    "deep JSON": ("a.jsonl", {"a.jsonl": "[" * 100_000 + "\n"}, "a.jsonl:1: not JSON: maximum recursion"),
    "one language": ("a.jsonl", {"a.jsonl": '{"en": "a", "fr": "b"}\n'}, "a.jsonl:1 has no text for both"),
    "a list": ("a.jsonl", {"a.jsonl": '["a", "b"]\n'}, "a.jsonl:1 has no text for both"),
    "no translations": ("a.en", folder_of("a.en"), "is followed by nothing"),
    "a third file": ("a.en a.de a.fr", folder_of("a.en a.de a.fr"), "a.fr is followed by nothing"),
    "no match": ("no/*.tsv", {}, "matches no file"),
    "text behind rows": ("a.tsv b.en", folder_of("a.tsv b.en", "a\tb\n"), "b.en is followed by nothing"),
    "rows behind text": ("a.en b.tsv a.de", folder_of("a.en a.de b.tsv", "a\tb\n"), "a.en is followed by b.tsv"),
    # As a shell writes a pattern without quotes.
    "without quotes": (
        "p-1.en p-2.en p-1.de p-2.de",
        folder_of("p-1.en p-2.en p-1.de p-2.de"),
        "p-1.en is followed by p-2.en",
    ),
    "other wildcards": ("p-[0-9].en p-?.de", folder_of("p-1.en p-2.en p-1.de p-2.de"), "matches the same"),
    "without a partner": ("p-*.en p-*.de", folder_of("p-1.en p-2.en p-3.en p-1.de p-2.de p-4.de"), "matches the same"),
    "other endings": ("p-*.en* p-*.de*", folder_of("p-1.en p-1.en.x p-1.de p-1.de.y"), "matches the same"),
    "two and one": ("p-*.en q.de", folder_of("p-1.en p-2.en q.de"), "matches the same"),
    "two wildcards": ("*-*.en *.de", folder_of("a-b.en a-c.en a-b.de a-c.de"), "matches the same"),
    "two formats": ("r-*", {"r-1.tsv": "a\tb\n", "r-2.jsonl": "{}\n"}, "files of several formats"),
    "CSV without the column": ("a.csv", {"a.csv": "en,fr\na,b\n"}, "a.csv cannot be read.*'de'"),
    "CSV with a field more": (
        "a.csv",
        {"a.csv": "en,de\nA dog runs.,Ein Hund rennt.,checked\nTwo dogs.,Zwei Hunde.,checked\n"},
        "a.csv cannot be read.*Row #2: Expected 2 columns, got 3: A dog runs.",
    ),
    "CSV with a comma": (
        "a.csv",
        {"a.csv": "en,de\nYes.,Ja.\nNo, no.,Nein.\n"},
        "a.csv cannot be read.*Row #3: Expected 2 columns, got 3: No, no.",
    ),
    "CSV with a field less": ("a.csv", {"a.csv": "en,de\nYes.,Ja.\nNo.\n"}, "Row #3: Expected 2 columns, got 1"),
    "an empty CSV": ("a.csv", {"a.csv": ""}, "a.csv cannot be read.*Empty CSV"),
}


@pytest.mark.parametrize(("files", "content", "words"), REFUSED.values(), ids=REFUSED)
def test_what_would_shift_lines_or_is_no_pair_is_refused(tmp_path, monkeypatch, files, content, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("a.en")
    for name, text in content.items():
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=words):
        read_parallel_text(files.split(), "en", "de")


def test_fields_of_csv_are_text(tmp_path):
    rows = 'en,note,de\n1,x,2\n"a ""b"",\nc",x,d\nnull,,NA\n\n,x,e\n'
    path = write(tmp_path / "a.csv.gz", b"\xef\xbb\xbf" + rows.encode() + b"f\xff,x,g\n")
    text = read_parallel_text([path], "en", "de")
    assert pairs_of(text) == [("1", "2"), ('a "b",\nc', "d"), ("null", "NA")]
    assert (text.report.empty, text.report.invalid_utf8) == (1, 1)


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl", "a.csv", "a.tsv.gz"])
def test_a_line_of_a_megabyte(tmp_path, name):
    long = "word " * 300_000
    rows = {
        "a.tsv": f"{long}\tb\n",
        "a.jsonl": jsonl((long, "b")),
        "a.csv": f"en,de\n{long},b\n",
        "a.tsv.gz": f"{long}\tb\n",
    }
    assert pairs_of(read_parallel_text([write(tmp_path / name, rows[name])], "en", "de")) == [(long, "b")]


def test_files_of_rows_need_the_names_of_both_sides(tmp_path):
    write(tmp_path / "a.jsonl", jsonl(("a", "b", "c"), ("d", None, "f"), keys=("en", "de", "fr")))
    for languages in ((), ("en",), ("de", "de")):
        with pytest.raises(ValueError, match=r"a\.jsonl needs two different names"):
            read_parallel_text([tmp_path / "a.jsonl"], *languages)
    assert pairs_of(read_parallel_text([tmp_path / "a.jsonl"], "fr", "en")) == [("c", "a"), ("f", "d")]


def test_files_that_datasets_reads(tmp_path):
    rows = [{"en": "NA", "de": "eins, zwei", "fr": "un"}, {"en": "two", "de": None, "fr": "deux"}]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, tmp_path / "flat.parquet")
    pq.write_table(pa.table({"translation": rows, "score": [1, 2]}), tmp_path / "nested.parquet")
    csv.write_csv(table, tmp_path / "a.csv")
    for name in ("flat.parquet", "nested.parquet", "a.csv"):
        text = read_parallel_text([tmp_path / name], "en", "de")
        assert pairs_of(text) == [("NA", "eins, zwei")]
        assert text.report.empty == 1
        with pytest.raises(ValueError, match=r"""['\"]cs['\"]"""):
            read_parallel_text([tmp_path / name], "cs", "de")


@pytest.mark.parametrize(
    ("row", "columns", "pair"),
    [
        ({"translation": {"en": "a", "de": "b"}}, Columns("de", "en"), ("b", "a")),
        ({"text": "a", "summary": "b"}, Columns("en", "de", "text", "summary"), ("a", "b")),
        ({"en": "a", "translation": "b"}, Columns("en", "de", target_column="translation"), ("a", "b")),
        ({"en": None, "de": "\ud800"}, Columns("en", "de"), ("", None)),
        ({"en": "a", "de": "b", "translation": "c"}, Columns("en", "de"), ("a", "b")),
        ({"en": "a", "de": "b", "translation": None}, Columns("en", "de"), ("a", "b")),
    ],
)
def test_columns(row, columns, pair):
    assert columns.pick(row, "here") == pair


@pytest.mark.parametrize("names", FORMATS)
def test_a_break_shifts_nothing(tmp_path, names, caplog):
    files = [tmp_path / name for name in names]
    write_parallel_text(files, *zip(*BROKEN), "en", "de")
    text = read_parallel_text(files, "en", "de")
    tab = " " if names == ["a.tsv"] else "\t"
    assert text.sources == ["one two", "three", f"a b {tab}c"]
    assert text.targets == ["eins zwei", "drei vier", "d e "]
    assert text.report.read == 4
    assert [record.getMessage() for record in caplog.records] == [
        f"3 of 4 sources for {files[0]} had line breaks, now spaces (first: number 1)",
        f"2 of 4 targets for {files[-1]} had line breaks, now spaces (first: number 2)",
    ]


def test_a_tab_of_either_side_shifts_nothing(tmp_path):
    write_parallel_text([tmp_path / "a.tsv"], ["a\tb"], ["c\td"])
    assert pairs_of(read_parallel_text([tmp_path / "a.tsv"])) == [("a b", "c d")]


@given(segment=st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(BREAKS + "\t ")))
def test_breaks_become_spaces(segment):
    [line] = unbroken([segment], "")
    assert len(f"{line}x".splitlines()) == 1
    assert line.split() == " ".join(f"{segment}\n".splitlines()).split()


@pytest.mark.parametrize("names", [["a.en", "a.de"], ["a.en.gz", "a.de.gz"]])
def test_an_interruption_leaves_no_pair_of_new_and_old(tmp_path, monkeypatch, names):
    """The last file, by which others see that both are there, is missing."""
    files, replace = [tmp_path / name for name in names], os.replace
    write_parallel_text(files, ["old"], ["alt"])
    with pytest.raises(UnicodeEncodeError):
        write_parallel_text(files, ["new", "a"], ["neu", "\ud800"])
    assert [read_lines(file) for file in files] == [["old"], ["alt"]]

    def interrupted(temporary, path):
        if path == files[1]:
            raise KeyboardInterrupt
        replace(temporary, path)

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_parallel_text(files, ["new", "a"], ["neu", "b"])
    assert read_lines(files[0]) == ["new", "a"]
    assert [*tmp_path.iterdir()] == files[:1]
