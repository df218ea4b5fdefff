"""Subtitles: words are translated, sentences over several cues as a whole, and everything else stays to the byte."""

import pytest
from stand_in_translator import UpperCase

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats import FORMATS, recognise
from hf_capsule_mt.translation.formats.line_breaks import broken_into_lines
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
    # Without a mark inside, a cue is broken in its middle.
    expected = expected.replace("A dog runs through\nthe snow,", "A DOG RUNS\nTHROUGH THE SNOW,")
    for words in ("and it is late.", "Who is", "there", "Q&A. It's me!", "no end"):
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


@pytest.mark.parametrize(
    ("text", "source_lengths", "lines"),
    [
        # The sentence ends before the comma and the middle.
        ("No. I have never, ever seen it.", [9, 9], ["No.", "I have never, ever seen it."]),
        ("Yes. It runs. And it is big.", [9, 9], ["Yes. It runs.", "And it is big."]),
        ('He says "go!" and they run', [9, 9], ['He says "go!"', "and they run"]),
        ("<i>No.</i> I have seen it", [9, 9], ["<i>No.</i>", "I have seen it"]),
        ("If it is late, we run through it", [9, 9], ["If it is late,", "we run through it"]),
        ("A dog runs through the snow", [9, 9], ["A dog runs", "through the snow"]),
        # A line of more characters than guides allow is worse than one that ends inside a sentence.
        (
            "No. This is a sentence with forty-three letters in all",
            [9, 9],
            ["No. This is a sentence with", "forty-three letters in all"],
        ),
        (
            "No. This is a sentence with forty-three letters in all",
            [9, 50],
            ["No.", "This is a sentence with forty-three letters in all"],
        ),
        (
            "This is a sentence with forty-three letters. No",
            [9, 9],
            ["This is a sentence with", "forty-three letters. No"],
        ),
        ("I think so. We saw Mr. Dog and Dr. Cat", [9, 9], ["I think so.", "We saw Mr. Dog and Dr. Cat"]),
        ("They saw Mr. Cat in the snow", [9, 9], ["They saw Mr. Cat", "in the snow"]),
        ("Que dit le chien ? Il court", [9, 9], ["Que dit le chien ?", "Il court"]),
        ("Que dit le grand petit chien ?", [9, 9], ["Que dit le grand", "petit chien ?"]),
        ("aa bb cc. dd ee ff, gg hh ii", [5, 5, 5], ["aa bb cc.", "dd ee ff,", "gg hh ii"]),
        ("aa bb", [5, 5, 5], ["aa", "bb"]),
        ("一二。三四五六七", [5, 5], ["一二。", "三四五六七"]),
        ("「一二三。」四五六七", [5, 5], ["「一二三。」", "四五六七"]),
        ("a b", [3], ["a b"]),
        ("", [3, 3], [""]),
    ],
)
def test_where_a_line_ends(text, source_lengths, lines):
    assert broken_into_lines(text, source_lengths) == lines


def test_a_cue_of_two_sentences_is_broken_between_them(tmp_path):
    content = "1\n00:00:01,000 --> 00:00:02,000\nI know that, you see. But\nyou go.\n"
    found, _ = translated(tmp_path, content, "srt")
    assert found.splitlines()[2:] == ["I KNOW THAT, YOU SEE.", "BUT YOU GO."]


def test_characters_a_second(tmp_path):
    """The longest of the cues of a sentence counts. Tags are not read, and two speakers share a cue."""
    content = (
        "1\n00:00:01,000 --> 00:00:03,000\na dog\n\n2\n01:00:59,500-->01:01:00,5\nruns <b>a</b>way\nnow.\n\n"
        "3\n0:00:01,0 --> 0:00:02,0\n- ab.\n- cd.\n\n4\n00:00:02,000 --> 00:00:02,000\nno time.\n"
    )
    document = FORMATS["srt"].read(content.encode())
    document.written([text.text for text in document.texts])
    speeds = [document.details[number].get("characters_per_second") for number in range(len(document.texts))]
    assert speeds == [2.5, 14.0, 6.0, 6.0, None]


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
