"""What is written line by line reads back as the same number of segments."""

import os
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_capsule_mt.data import segments
from hf_capsule_mt.data.parallel_text import read_lines, read_parallel_text, write_parallel_text
from hf_capsule_mt.data.segments import unbroken, write_lines
from hf_capsule_mt.files import replaced_files

BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
PAIRS = [("one\ntwo", "eins zwei"), ("three", "drei\nvier"), ("a\u2028b\x85\tc", "d\v\fe\r\n"), ("\r", "x")]
SEGMENT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(BREAKS + "\t "))
FORMATS = [["a.en", "a.de"], ["a.en.gz", "a.de"], ["a.tsv"], ["a.jsonl"], ["a.json.gz"]]


def obvious(segment):
    """A space for each run of what `str.splitlines` breaks at."""
    return " ".join(part for part in f"\n{segment}\n".splitlines() if part) if segment.strip(BREAKS) else segment


def test_the_breaks_are_those_of_splitlines():
    assert {chr(code) for code in range(0x110000) if len(f"a{chr(code)}b".splitlines()) == 2} == set(BREAKS)


@pytest.mark.parametrize("names", FORMATS)
def test_a_break_shifts_nothing(tmp_path, names, caplog):
    files = [tmp_path / name for name in names]
    write_parallel_text(files, *zip(*PAIRS), "en", "de")
    text = read_parallel_text(files, "en", "de")
    tab = " " if names == ["a.tsv"] else "\t"
    assert text.sources == ["one two", "three", f"a b {tab}c"]
    assert text.targets == ["eins zwei", "drei vier", "d e "]
    assert text.report.read == 4
    assert [record.getMessage() for record in caplog.records] == [
        f"3 of 4 sources for {files[0]} had line breaks, which became spaces (the first is number 1)",
        f"2 of 4 targets for {files[-1]} had line breaks, which became spaces (the first is number 2)",
    ]


@given(pairs=st.lists(st.tuples(SEGMENT, SEGMENT), min_size=1, max_size=6), names=st.sampled_from(FORMATS))
def test_any_text_reads_back_as_many_segments(tmp_path_factory, pairs, names):
    files = [tmp_path_factory.mktemp("text") / name for name in names]
    write_parallel_text(files, *zip(*pairs), "en", "de")
    kept = [(source, target) for source, target in zip(*(unbroken(side, "") for side in zip(*pairs)))]
    if names == ["a.tsv"]:
        kept = [tuple(side.replace("\t", " ") for side in pair) for pair in kept]
    kept = [pair for pair in kept if all(map(str.strip, pair))]
    # Of nothing but empty sides nothing can be read, nor of a mark that begins a file.
    marked = any(side.startswith("\ufeff") for side in pairs[0])
    if marked or not kept:
        return
    text = read_parallel_text(files, "en", "de")
    assert text.report.read == len(pairs)
    assert list(zip(text.sources, text.targets)) == kept
    for file in files:
        if file.suffix != ".gz" and file.suffix != ".jsonl":
            assert len(file.read_text(encoding="utf-8").splitlines()) == len(pairs)


@given(segment=SEGMENT)
def test_breaks_become_spaces(segment):
    [line] = unbroken([segment], "")
    assert len(f"{line}x".splitlines()) == 1
    assert line.split() == obvious(segment).split()


def test_half_a_surrogate_pair_is_refused_before_anything_is_written(tmp_path):
    files = [tmp_path / "a.en", tmp_path / "a.de"]
    write_lines(files, [["old"], ["alt"]])
    with pytest.raises(ValueError, match=r"line 2 of .*a\.de has half of a surrogate pair"):
        write_parallel_text(files, ["new", "a"], ["neu", "\ud800"])
    assert [read_lines(file) for file in files] == [["old"], ["alt"]]


@pytest.mark.parametrize("names", [["a.en", "a.de"], ["a.en.gz", "a.de.gz"]])
@pytest.mark.parametrize("old", [True, False])
def test_an_interruption_leaves_no_pair_of_new_and_old(tmp_path, monkeypatch, names, old):
    """The last file, by which others see that both are there, is missing."""
    files, replace = [tmp_path / name for name in names], os.replace
    if old:
        write_lines(files, [["old"], ["alt"]])

    def interrupted(temporary, path):
        if path == files[1]:
            raise KeyboardInterrupt
        replace(temporary, path)

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_lines(files, [["new", "a"], ["neu", "b"]])
    assert read_lines(files[0]) == ["new", "a"]
    assert [*tmp_path.iterdir()] == files[:1]


def test_what_was_written_is_counted(tmp_path, monkeypatch):
    """A disk that forgets the end."""

    @contextmanager
    def forgetful(paths):
        with replaced_files(paths) as files:
            yield files
            files[0].truncate(4)

    monkeypatch.setattr(segments, "replaced_files", forgetful)
    with pytest.raises(OSError, match="holds 1 lines after 2 were written"):
        write_lines([tmp_path / "a"], [["one", "two"]])


def test_links_are_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f".out.{os.getpid()}.tmp").symlink_to(victim)
    write_lines([tmp_path / "out"], [["a"]])
    assert victim.read_text() == "mine"
    assert read_lines(tmp_path / "out") == ["a"]
