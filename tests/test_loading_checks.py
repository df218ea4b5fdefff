"""A checkpoint's settings are tried when it is loaded, before a command reads its data."""

import pytest
import torch
from tiny_marian import tiny_model

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.loading import check_decodes

GOOD = [{}, {"max_length": 30, "min_length": 5}, {"max_new_tokens": 30}, {"num_beams": 3}]
BAD = [{"bad_words_ids": [["1"]]}, {"decoder_start_token_id": "a"}, {"num_beams": "a"}]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("settings", GOOD, ids=str)
def test_good_settings_are_tried_without_a_word(capsys, settings):
    model = tiny_model()
    model.generation_config.update(**settings)
    before = torch.get_rng_state()
    check_decodes(model)
    assert capsys.readouterr().err == ""
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("settings", BAD, ids=str)
def test_settings_of_wrong_types(settings):
    model = tiny_model()
    model.generation_config.update(**settings)
    with pytest.raises(UserError, match=r"The generation settings of .* cannot be used"):
        check_decodes(model)
