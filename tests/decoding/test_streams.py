"""A stream of sentences finds what `generate()` finds for each by itself, whoever is decoded beside it."""

import pytest
import torch
from ending_models import LONGEST, ONE_OF_EACH_FAMILY, ending, sources

from hf_capsule_mt.decoding import Source, translate_stream

OPTIONS = {
    "greedy": {"num_beams": 1},
    "beams": {"num_beams": 4, "num_return_sequences": 2},
    "early_stopping": {"num_beams": 3, "early_stopping": True, "length_penalty": 0.6},
    "min_new_tokens": {"num_beams": 3, "min_new_tokens": 4},
    "constrained": {"num_beams": 3, "no_repeat_ngram_size": 2, "begin_suppress_tokens": [7, 9], "min_new_tokens": 3},
    "greedy_constrained": {"num_beams": 1, "repetition_penalty": 1.3, "min_new_tokens": 3},
}


def check_stream(model, count, room, **options):
    """Require what `generate()` finds for one sentence at a time; return how many were decoded at a time."""
    source = sources(count, seed=6)
    rows = [ids[mask.bool()].tolist() for ids, mask in zip(source["input_ids"], source["attention_mask"])]
    limits = [LONGEST - index % 7 for index in range(count)]
    found = dict(translate_stream(model, map(Source, rows, limits), room, **options))
    assert sorted(found) == list(range(count))
    for index, (row, limit) in enumerate(zip(rows, limits)):
        expected = model.generate(
            input_ids=torch.tensor([row]),
            max_new_tokens=limit,
            **options,
            return_dict_in_generate=True,
            output_scores=True,
        )
        assert found[index].sequences.tolist() == expected.sequences.tolist(), index
        if options["num_beams"] > 1:
            torch.testing.assert_close(found[index].scores, expected.sequences_scores, atol=1e-4, rtol=1e-6)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_every_option(name, option):
    check_stream(ending(name), 40, 80, **OPTIONS[option])
