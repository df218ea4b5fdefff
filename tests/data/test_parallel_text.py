import gzip
import json
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_capsule_mt.data.columns import Columns
from hf_capsule_mt.data.pair_files import find_corpora
from hf_capsule_mt.data.parallel_text import (
    hub_pairs,
    load_hub_parallel_text,
    load_split,
    read_lines,
    read_parallel_text,
)

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


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_two_files(tmp_path, suffix):
    source = write(tmp_path / f"train.en{suffix}", "a house\ntwo dogs\n")
    target = write(tmp_path / f"train.de{suffix}", "ein Haus\nzwei Hünde 🐕")
    text = read_parallel_text([source, str(target)])
    assert pairs_of(text) == [("a house", "ein Haus"), ("two dogs", "zwei Hünde 🐕")]
    assert (text.report.read, text.report.kept) == (2, 2)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_tsv(tmp_path, suffix):
    path = write(tmp_path / f"train.tsv{suffix}", "a house\tein Haus\r\n two dogs \tzwei Hunde\n")
    assert pairs_of(read_parallel_text([path])) == [("a house", "ein Haus"), (" two dogs ", "zwei Hunde")]


@pytest.mark.parametrize("name", ["train.jsonl", "train.jsonl.gz", "train.json"])
def test_jsonl_takes_the_languages_asked_for(tmp_path, name):
    path = write(tmp_path / name, jsonl(("a", "b", "c"), ("d", "e", "f"), keys=("en", "de", "fr")))
    assert pairs_of(read_parallel_text([path], "fr", "en")) == [("c", "a"), ("f", "d")]


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
    assert read_lines(write(tmp_path / "windows.txt", "\ufeffa\r\n\ufeffb\r\n")) == ["a", "\ufeffb"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_no_text_full_of_nuls(tmp_path, encoding):
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_bytes("\ufeffone\ntwo\n".encode(encoding))
    with pytest.raises(ValueError, match=r"a\.en is UTF-16, and UTF-8 is read; convert it with: iconv"):
        read_parallel_text([tmp_path / "a.en", tmp_path / "a.de"])


def test_useless_pairs_are_dropped_as_pairs_and_counted(tmp_path):
    source = write(tmp_path / "train.en", b"one\n\nthree\nf\xffur\nfive\n \t\nseven\n")
    target = write(tmp_path / "train.de", b"eins\nzwei\n  \nvier\nf\xc3nf\nsechs\nsieben\n")
    text = read_parallel_text([source, target])
    assert pairs_of(text) == [("one", "eins"), ("seven", "sieben")]
    assert vars(text.report) == {"read": 7, "kept": 2, "empty": 3, "invalid_utf8": 2}
    assert str(text.report) == ("7 pairs read, 2 kept, 3 dropped with an empty side, 2 dropped as invalid UTF-8")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.tsv", b"one\teins\n\ttwo\n\n\xff\tdrei\nfour\t\xff\nfive\tf\xc3\xbcnf\n"),
        (
            "train.jsonl",
            jsonl(("one", "eins"), ("", "two")).encode()
            + b"\n"
            + b'{"translation": {"en": "\xff", "de": "drei"}}\n'
            + b'{"translation": {"en": "four", "de": "\\ud800"}}\n'
            + jsonl(("five", "fünf")).encode(),
        ),
    ],
)
def test_useless_pairs_of_one_file(tmp_path, name, content):
    text = read_parallel_text([write(tmp_path / name, content)], "en", "de")
    assert pairs_of(text) == [("one", "eins"), ("five", "fünf")]
    assert vars(text.report) == {"read": 6, "kept": 2, "empty": 2, "invalid_utf8": 2}


def test_null_is_an_empty_side(tmp_path):
    text = read_parallel_text([write(tmp_path / "a.jsonl", jsonl(("a", None), ("b", "c")))], "en", "de")
    assert pairs_of(text) == [("b", "c")]
    assert text.report.empty == 1


def test_files_of_different_length(tmp_path):
    source, target = write(tmp_path / "a.en", "a\nb\n"), write(tmp_path / "a.de", "a\nb\n\n")
    with pytest.raises(ValueError, match=r"validation data: .*a\.en has 2 lines and .*a\.de has 3"):
        read_parallel_text([source, target], name="validation data")


def test_one_file_for_both_sides(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.en", "a\n")
    (tmp_path / "link").symlink_to("a.en")
    for other in ("a.en", tmp_path / "a.en", "link"):
        with pytest.raises(ValueError, match=r"validation data: a\.en and .* are the same file; name the sources"):
            read_parallel_text(["a.en", other], name="validation data")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "a\tb\na\tb\tc\n", r"a\.tsv:2: 3 columns"),
        ("a.tsv", "a\tb\nc\td\nnothing\n", r"a\.tsv:3: 1 columns"),
        ("a.jsonl", jsonl(("a", "b"), ("c",)), r'a\.jsonl:2: no language "de", only en'),
        ("a.jsonl", jsonl(("a", "b"), keys=("cs", "fr")), r'a\.jsonl:1: no language "en", only cs, fr'),
        ("a.jsonl", jsonl(("a", 7)), r'a\.jsonl:1: "de" must be a string, not 7'),
        ("a.jsonl", jsonl(("a", "b")) + "{oops\n", r"a\.jsonl:2: not JSON"),
        (
            "a.jsonl",
            '{"en": "a", "fr": "b"}\n',
            r'a\.jsonl:1: no column "de", only en, fr; name one with target_column',
        ),
        ("a.jsonl", '{"en": "a", "de": ["b"]}\n', r"""a\.jsonl:1: "de" must be a string, not \['b'\]"""),
        ("a.jsonl", '["a", "b"]\n', r'a\.jsonl:1: expected {"translation"'),
        (
            "a.json",
            '[\n{"en": "a", "de": "b"}\n]\n',
            r"a\.json:1: not JSON: .*; each line must be an object",
        ),
        ("a.tsv", "", r"a\.tsv\) holds no usable pair: 0 pairs read"),
        ("a.tsv", "\t\n", r"no usable pair: 1 pairs read, 0 kept, 1 dropped with an empty side"),
    ],
)
def test_bad_content(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_parallel_text([write(tmp_path / name, content)], "en", "de")


@pytest.mark.parametrize(
    ("names", "langs", "message"),
    [
        ([], (), "not nothing"),
        (["a.en"], (), r"one \.tsv or \.jsonl file .* not a\.en"),
        (["a.en", "a.de", "a.fr"], (), r"not a\.en, a\.de, a\.fr"),
        (["a.en", "b.en", "a.de", "b.de", "c.en"], (), r"not a\.en, b\.en, a\.de, b\.de, c\.en"),
        (["no/*.tsv"], (), r"no/\*\.tsv matches no file"),
        (["a.parquet"], ("en",), r"a\.parquet needs source_lang and target_lang, such as en and de, or source_column"),
        (["a.jsonl"], (), r"a\.jsonl needs source_lang and target_lang"),
        (["a.jsonl"], ("en",), r"a\.jsonl needs source_lang and target_lang"),
    ],
)
def test_bad_files(names, langs, message):
    with pytest.raises(ValueError, match=f"training data: .*{message}"):
        read_parallel_text(names, *langs)


def test_missing_and_unreadable_files(tmp_path):
    here = write(tmp_path / "here.en", "a\n")
    with pytest.raises(FileNotFoundError, match=r"gone\.de"):
        read_parallel_text([here, tmp_path / "gone.de"])
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        read_parallel_text([here, tmp_path])


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
def test_damaged_compressed_files(tmp_path, suffix):
    lines = b"".join(b"%x\n" % (number**9) for number in range(3000))
    whole = compress(tmp_path / f"whole{suffix}", lines).read_bytes()
    middle = len(whole) // 2
    damaged = {"cut": whole[:-9], "flipped": whole[:middle] + bytes(40) + whole[middle + 40 :], "plain": b"a\n"}
    for name, content in damaged.items():
        path = tmp_path / f"{name}{suffix}"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name}\{suffix} is not a whole \{suffix} file: ."):
            read_lines(path)


def test_parquet(tmp_path):
    rows = [{"en": "one", "de": "eins", "fr": "un"}, {"en": "two", "de": None, "fr": "deux"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "flat.parquet")
    pq.write_table(pa.table({"translation": rows, "score": [1, 2]}), tmp_path / "nested.parquet")
    for name in ("flat", "nested"):
        text = read_parallel_text([tmp_path / f"{name}.parquet"], "en", "de")
        assert pairs_of(text) == [("one", "eins")]
        assert text.report.empty == 1
    with pytest.raises(
        ValueError, match=r'flat\.parquet: no column "cs", only en, de, fr; name one with source_column'
    ):
        read_parallel_text([tmp_path / "flat.parquet"], "cs", "de")
    with pytest.raises(ValueError, match=r"flat\.parquet: source and target are both 'de'; name the two with"):
        read_parallel_text([tmp_path / "flat.parquet"], "de", "de")
    with pytest.raises(ValueError, match=r'nested\.parquet:1: no language "cs", only en, de, fr'):
        read_parallel_text([tmp_path / "nested.parquet"], "cs", "de")
    whole = (tmp_path / "flat.parquet").read_bytes()
    for damaged in (whole[:-20], whole[:4] + bytes(60) + whole[64:]):
        (tmp_path / "bad.parquet").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"bad\.parquet is not a whole \.parquet file"):
            read_parallel_text([tmp_path / "bad.parquet"], "en", "de")


@pytest.mark.parametrize(
    ("row", "columns", "pair"),
    [
        ({"translation": {"en": "a", "de": "b"}}, Columns("de", "en"), ("b", "a")),
        ({"en": "a", "de": "b"}, Columns("en", "de"), ("a", "b")),
        ({"text": "a", "summary": "b"}, Columns("en", "de", "text", "summary"), ("a", "b")),
        ({"en": "a", "translation": "b"}, Columns("en", "de", target_column="translation"), ("a", "b")),
        ({"en": None, "de": "\ud800"}, Columns("en", "de"), ("", None)),
        ({"en": "a", "translation": "b"}, Columns("en", "translation"), ("a", "b")),
        ({"en": "a", "de": "b", "translation": "c"}, Columns("en", "de"), ("a", "b")),
        ({"en": "a", "de": "b", "translation": None}, Columns("en", "de"), ("a", "b")),
        ({"translation": None}, Columns("en", "de"), ("", "")),
    ],
)
def test_columns(row, columns, pair):
    """Of all of a row's columns, and of those that are read of a table."""
    assert columns.pick(row, "here") == pair
    wanted = columns.wanted(list(row), "here")
    assert columns.pick({name: row[name] for name in wanted}, "here") == pair


def test_a_parquet_file_that_is_not_utf8(tmp_path):
    strings = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    pq.write_table(pa.table({"en": strings, "de": ["a"]}), tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match=r"bad\.parquet is not a whole \.parquet file"):
        read_parallel_text([tmp_path / "bad.parquet"], "en", "de")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.zip"])
def test_files_of_both_sides_are_no_text(tmp_path, name):
    for file in ("b.de", name):
        (tmp_path / file).write_text("en,de\n")
    with pytest.raises(ValueError, match=rf"{name} is a \.\w+ file, which is not read; make it a source and"):
        find_corpora([tmp_path / name, tmp_path / "b.de"], Columns())


def shards_of(files, columns=Columns("en", "de")):  # noqa: B008
    return [[tuple(map(str, shard.paths)) for shard in corpus.shards] for corpus in find_corpora(files, columns)]


def test_several_corpora(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("p-1.en", "p-1.de", "p-2.en", "p-2.de", "q.en.gz", "q.de", "r-1.tsv", "r-2.tsv", "s.jsonl"):
        (tmp_path / name).touch()
    p, q = [("p-1.en", "p-1.de"), ("p-2.en", "p-2.de")], [("q.en.gz", "q.de")]
    assert shards_of(["p-*.en", "p-*.de"]) == [p]
    assert shards_of(["p-1.en", "p-1.de", "q.en.gz", "q.de"]) == [p[:1], q]
    # As a shell writes it where a pattern is not in quotes.
    assert shards_of(["p-1.en", "p-2.en", "p-1.de", "p-2.de"]) == [p[:1], p[1:]]
    assert shards_of(["q.en.gz", "r-*.tsv", "q.de", "s.jsonl"]) == [q, [("r-1.tsv",), ("r-2.tsv",)], [("s.jsonl",)]]
    # Another translation of the same sources, and of these a pair that comes twice.
    assert shards_of(["p-1.en", "p-1.de", "p-1.en", "p-2.de"]) == [p[:1], [("p-1.en", "p-2.de")]]
    assert shards_of(["p-1.en", "p-1.de"] * 2) == [p[:1], p[:1]]
    with pytest.raises(ValueError, match=r"2 files of sources, from p-1\.en on, and 1 of translations, from q\.de on"):
        shards_of(["p-*.en", "q.de"])
    (tmp_path / "r-3.jsonl").touch()
    with pytest.raises(ValueError, match=r"r-\* matches files of several formats"):
        shards_of(["r-*"])


@pytest.mark.parametrize(
    ("patterns", "pairs"),
    [
        (["p-*.en", "p-*.de"], ["p-1.en p-1.de", "p-2.en p-2.de"]),
        (["p-?.en.gz", "p-*.de"], ["p-1.en.gz p-1.de", "p-2.en.gz p-2.de"]),
        (["p-*.en*", "p-*.de*"], ["p-1.en.gz p-1.de", "p-2.en p-2.de.xz"]),
        (["[p]-[0-9].en", "[p]-[!a].de"], ["p-1.en p-1.de", "p-2.en p-2.de"]),
        (["*.en-de.en", "*.en-de.de"], ["a.en.en-de.en a.en.en-de.de", "b.en-de.en b.en-de.de"]),
        (["*.en.*", "*.de.*"], ["a.en-de.en.x a.en-de.de.x", "b.en.x b.de.x"]),
        (["./*/en//[ab]-*", "*/de/?-*"], ["1/en/a-b-c 1/de/a-b-c", "2/en/b-b 2/de/b-b"]),
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


@pytest.mark.parametrize(
    ("patterns", "names", "message"),
    [
        (["p-*.en", "p-*.de"], "p-1.en p-2.en p-3.en p-1.de p-2.de p-4.de", "p-3.en has .* p-3.de .*, and p-4.de is"),
        (["p-*.en*", "p-*.de*"], "p-1.en p-1.en.gz p-1.de p-1.de.gz", "p-1.en.gz has no .* p-1.de .*, and p-1.de is"),
        (["*/en", "*/de"], "a/en b/en b/de c/de", "a/en has no translation a/de of its own, and b/de is another's"),
        (["*-*.en", "*.de"], "a-b.en a-b.de", r"\*-\*\.en and \*\.de have different numbers of wildcards"),
    ],
)
def test_patterns_whose_wildcards_match_something_else(tmp_path, monkeypatch, patterns, names, message):
    monkeypatch.chdir(tmp_path)
    for name in names.split():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=f"training data: {message}"):
        shards_of(patterns)


def test_read_lines_names_the_line_that_is_not_utf8(tmp_path):
    with pytest.raises(ValueError, match=r"a\.txt:3: not UTF-8"):
        read_lines(write(tmp_path / "a.txt", b"a\nb\n\xe4\nc\n"))


@pytest.fixture
def hub_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "pairs"
    folder.mkdir()
    write(folder / "train.jsonl", jsonl(("a", "ä"), ("", "b"), ("c", None), ("d\u2028", "D")))
    write(folder / "validation.jsonl", jsonl(("e", "E")))
    return str(folder)


def test_hub_data_set(hub_folder):
    text = load_hub_parallel_text(hub_folder, None, "train", "en", "de")
    assert pairs_of(text) == [("a", "ä"), ("d\u2028", "D")]
    assert vars(text.report) == {"read": 4, "kept": 2, "empty": 2, "invalid_utf8": 0}
    assert pairs_of(load_hub_parallel_text(hub_folder, None, "validation", "de", "en")) == [("E", "e")]


def stream(folder):
    dataset = load_split(str(folder), None, "train", streaming=True)
    return list(hub_pairs(dataset, Columns("en", "de"), f"{folder}, split train"))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("train.jsonl", jsonl(("a", "b")) + '{"translation": {"en": "c",\n', "JSON parse error"),
        ("train.csv", b"en,de\na\xe4,b\n", "can't decode byte 0xe4"),
        ("train.parquet", b"PAR1", "[Pp]arquet"),
    ],
)
def test_a_damaged_data_set(hub_folder, tmp_path, name, content, reason):
    folder = tmp_path / "bad"
    folder.mkdir()
    write(folder / name, content)
    message = rf"bad, split train cannot be read: \w+: .*{reason}.*; mend its files, or name other data"
    with pytest.raises(ValueError, match=message):
        load_hub_parallel_text(str(folder), None, "train", "en", "de")
    with pytest.raises(ValueError, match=message):
        stream(folder)


def test_hub_data_set_errors(hub_folder, tmp_path):
    with pytest.raises(ValueError, match=r'pairs, split train: no language "fr", only en, de'):
        load_hub_parallel_text(hub_folder, None, "train", "en", "fr")
    with pytest.raises(ValueError, match="test"):
        load_hub_parallel_text(hub_folder, None, "test", "en", "de")
    with pytest.raises(ValueError, match="de-en"):
        load_hub_parallel_text(hub_folder, "de-en", "train", "en", "de")
    with pytest.raises(OSError, match="nobody/nothing"):
        load_hub_parallel_text("nobody/nothing", None, "train", "en", "de")
    other = tmp_path / "other"
    other.mkdir()
    write(other / "train.jsonl", '{"en": "a", "de": "b"}\n')
    with pytest.raises(
        ValueError, match=r'other, split train: no column "fr", only en, de; name one with target_column'
    ):
        load_hub_parallel_text(str(other), None, "train", "en", "fr")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ("b.en c.en a.de b.de", "b.en would go with a.de, by their places"),
        ("news.en wiki.en wiki.de news.de", "news.en would go with wiki.de, by their places"),
        ("en/a.en.gz en/b.en de/b.de de/a.de", "en/a.en.gz would go with de/b.de"),
    ],
)
def test_files_whose_names_belong_to_others(files, message):
    with pytest.raises(ValueError, match=message):
        shards_of(files.split())


def test_files_whose_names_say_nothing():
    assert shards_of(["a.en", "b.en", "x.de", "y.de"]) == [[("a.en", "x.de")], [("b.en", "y.de")]]
    assert shards_of(["1/t.en", "2/t.en", "1/t.de", "2/t.de"]) == [[("1/t.en", "1/t.de")], [("2/t.en", "2/t.de")]]
