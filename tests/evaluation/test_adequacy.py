"""Coverage and repetitions, counted by hand."""

import pytest

from hf_capsule_mt.evaluation.adequacy import measure_adequacy
from hf_capsule_mt.evaluation.alignment import Alignment


def alignment(source_words, target, links):
    return Alignment(source_words, tuple(target.split()), tuple(links))


# the(0) old(1) house(2) is(3) green(4)
REFERENCE = alignment(5, "das alte Haus ist grün", [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)])


def test_by_hand():
    references = [REFERENCE, alignment(4, "der Hund , ja", [(0, 0), (1, 1)])]
    translations = [
        # "green" is lost, "house" comes twice.
        alignment(5, "das alte Haus Haus ist", [(0, 0), (1, 1), (2, 2), (2, 3), (3, 4)]),
        # "dog" is lost, and a word covered that the reference leaves out.
        alignment(4, "der so", [(0, 0), (3, 1)]),
    ]
    found = measure_adequacy(references, translations)
    counts = {"source_words": 9, "covered_by_reference": 7, "covered": 6, "under_translated": 2, "over_translated": 1}
    assert found == {"cdr": pytest.approx(1 - 2 / 7), **counts}


@pytest.mark.parametrize(
    ("reference", "translation", "expected"),
    [
        ("zu dem", "zu dem", 0),  # two words for one source word
        ("zu", "zu zu", 1),
        ("zu zu", "zu zu", 0),  # the reference repeats it too
        ("zu zu", "zu zu zu", 1),
        ("dem", "zu zu", 1),
        ("zu zu dem", "zu dem dem", 1),
        ("zu", "zu zu dem dem", 1),  # one source word
    ],
)
def test_repetitions(reference, translation, expected):
    one, other = (
        alignment(1, text, [(0, index) for index in range(len(text.split()))]) for text in (reference, translation)
    )
    assert measure_adequacy([one], [other])["over_translated"] == expected


def test_a_word_that_translates_two_source_words_is_no_repetition():
    reference = alignment(2, "sehr sehr", [(0, 0), (1, 1)])
    assert measure_adequacy([alignment(2, "sehr", [(0, 0)])], [reference])["over_translated"] == 0
