"""Alignment by eflomal of a language whose every word has one translation."""

import os
import random

import pytest

from hf_capsule_mt.evaluation import alignment
from hf_capsule_mt.evaluation.adequacy import measure_adequacy
from hf_capsule_mt.evaluation.alignment import align_words

WORDS = [f"{first}{second}" for first in "bdfgk" for second in "aeiou"]


def sentences(size, seed=0):
    generator = random.Random(seed)
    return [generator.sample(WORDS, k=generator.randint(4, 9)) for _ in range(size)]


def translate(words):
    return [word[::-1].upper() for word in words]


@pytest.mark.skipif(
    not alignment.has_eflomal() and os.environ.get("CI") != "true",
    reason='eflomal is not installed; pip install -e ".[align]"',
)
def test_a_word_for_a_word():
    sources = sentences(120)
    references = [translate(words) for words in sources]
    shorter = [words[1:] for words in references]
    repeated = [[*words, words[-1]] for words in references]
    sources[5], references[5], shorter[5], repeated[6] = [], [], [], []
    reference, same, short, long = align_words(sources, [references, references, shorter, repeated])
    assert same == reference
    links = [link for one in reference for link in one.links]
    assert sum(source == target for source, target in links) > 0.95 * len(links)
    assert len(links) > 0.9 * sum(map(len, sources))
    assert reference[0].target == tuple(word[::-1] for word in sources[0])
    assert (reference[5].links, long[6].links, long[6].source_words) == ((), (), len(sources[6]))
    for one in (*reference, *short, *long):
        targets = [target for _, target in one.links]
        assert len(targets) == len(set(targets))
    sizes = len(sources), sum(map(len, sources))
    assert measure_adequacy(reference, same)["cdr"] == 1
    lost = measure_adequacy(reference, short)["under_translated"]
    assert 0.8 * sizes[0] < lost < 1.2 * sizes[0]
    repetitions = measure_adequacy(reference, long)["over_translated"]
    assert 0.6 * sizes[0] < repetitions < 1.2 * sizes[0]


def test_what_else_there_is_to_learn_from(monkeypatch):
    seen = []
    monkeypatch.setattr(alignment, "_run_eflomal", lambda pairs: seen.extend(pairs) or [()] * len(pairs))
    found = align_words([["a"]], [[["B"]], [["B"]]], more_sources=[["c", "d"], ["a"]], more_targets=[["E"], ["b"]])
    assert seen == [("a", "b"), ("c d", "e")]
    assert [len(stream) for stream in found] == [1, 1]
