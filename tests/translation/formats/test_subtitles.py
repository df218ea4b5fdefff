"""Subtitles: words are translated, sentences over several cues as a whole, and everything else stays to the byte."""

import pytest
from stand_in_translator import UpperCase

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats import recognise
from hf_capsule_mt.translation.generation.decoder import Decoded

SRT = """1
00:00:01,000 --> 00:00:02,500
A dog runs through
the snow,

2
00:00:02,600 --> 00:00:04,000 X1:10 X2:20
and it is late.

3
00:00:05,000 --> 00:00:06,000
{\\an8}- Who is <i>there</i>?
- Q&A. It's me!

4
00:00:07,000 --> 00:00:08,000
♪ 1984 ♪

5
00:00:09,000 --> 00:00:10,000
<font color="#fff">no end
"""
VTT = """\ufeffWEBVTT - a title
Kind: captions

STYLE
::cue { color: red }

NOTE a comment
of two lines

intro
00:01.000 --> 00:02.000 align:start position:0%
<v Bob>Tom &amp; a <c.yellow>dog</c>

00:02.000 --> 00:03.000
run <00:02.500>now

00:03.000 --> 00:04.000
Q&amp;A.
"""


class Longer(UpperCase):
    """Writes every word twice."""

    def decode_batches(self, sentences, batches, **options):
        for batch in super().decode_batches(sentences, batches, **options):
            twice = {index: " ".join(f"{word} {word}" for word in one.text.split()) for index, (one,) in batch.items()}
            yield {index: (Decoded([], text=text),) for index, text in twice.items()}


def translated(tmp_path, content, ending, translator=None):
    source, target = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    source.write_bytes(content.encode())
    translator = translator or UpperCase()
    translate_file(translator, source, target, "en")
    return target.read_bytes().decode(), translator.seen


def test_subrip(tmp_path):
    content, seen = translated(tmp_path, SRT, "srt")
    expected = SRT
    for words in ("A dog runs through", "the snow,", "and it is late.", "Who is", "there", "Q&A. It's me!", "no end"):
        expected = expected.replace(words, words.upper())
    assert content == expected
    assert "A dog runs through the snow, and it is late." in seen
    assert not any("an8" in text or "1984" in text for text in seen)


def test_ends_of_lines(tmp_path):
    content, _ = translated(tmp_path, SRT.replace("\n", "\r\n"), "srt")
    assert content.replace("\r\n", "\n") == translated(tmp_path, SRT, "srt")[0]
    assert content.count("\n") == content.count("\r\n")


def test_webvtt(tmp_path):
    content, seen = translated(tmp_path, VTT, "vtt")
    expected = VTT
    for words in ("Tom", " a <", "dog", "run", "now", "Q&amp;A."):
        expected = expected.replace(words, words.upper().replace("&AMP;", "&amp;"))
    assert content == expected
    assert "Q&A." in seen


def test_a_cue_without_words_gets_none(tmp_path):
    """Also in the middle of a sentence."""
    cues = ["a dog", "♪", "runs"]
    content = "".join(f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\n{cue}\n\n" for n, cue in enumerate(cues))
    found, _ = translated(tmp_path, content, "srt", Longer())
    assert found.splitlines()[2::4] == ["A A DOG DOG", "♪", "RUNS RUNS"]


def test_a_translation_is_cut_as_its_source(tmp_path):
    cues = ["a b c d", "e f", "g."]
    content = "".join(f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\n{cue}\n\n" for n, cue in enumerate(cues))
    found, _ = translated(tmp_path, content, "srt", Longer())
    assert found.splitlines()[2::4] == ["A A B B C C D D", "E E F F", "G. G."]


def test_a_sentence_has_six_cues_at_most(tmp_path):
    """Some subtitles have no full stops."""
    content = "".join(f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\n{cue}\n\n" for n, cue in enumerate("abcdefgh"))
    found, seen = translated(tmp_path, content, "srt")
    assert seen == ["a b c d e f", "g h"]
    assert found.splitlines()[2::4] == [*"ABCDEFGH"]


def test_two_lines_stay_two_lines(tmp_path):
    content = "1\n00:00:01,000 --> 00:00:02,000\na b c\nd e.\n"
    found, _ = translated(tmp_path, content, "srt", Longer())
    assert found.splitlines()[2:] == ["A A B B C C", "D D E. E."]


def test_cues_without_a_blank_line_between(tmp_path):
    content = "WEBVTT\n\n00:01.000 --> 00:02.000\na.\n00:02.000 --> 00:03.000\nb.\n"
    assert translated(tmp_path, content, "vtt")[0] == content.replace("a.", "A.").replace("b.", "B.")


@pytest.mark.parametrize(("content", "ending"), [("A dog.\n", "srt"), ("WEBVTT\n", "vtt"), ("", "srt")])
def test_without_cues(tmp_path, content, ending):
    with pytest.raises(UserError, match="There are no cues"):
        translated(tmp_path, content, ending)


@pytest.mark.parametrize(("content", "name"), [(SRT, "srt"), (VTT, "vtt")])
def test_they_are_known_by_their_beginning(tmp_path, content, name):
    (tmp_path / "captions.txt").write_text(content)
    assert recognise(tmp_path / "captions.txt").name == name
