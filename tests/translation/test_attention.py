"""Several users of one model at the same time, and what they leave behind."""

import torch
from tiny_marian import tiny_model

from hf_capsule_mt.translation.attention import attending
from hf_capsule_mt.translation.translator import evaluating


def test_dropout_stays_off_while_anybody_translates():
    model = tiny_model().train()
    first, second = evaluating(model), evaluating(model)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not any(module.training for module in model.modules())
    second.__exit__(None, None, None)
    assert all(module.training for module in model.modules())


def test_frozen_parts_stay_frozen():
    model = tiny_model().train()
    model.get_encoder().eval()
    before = [module.training for module in model.modules()]
    with evaluating(model), evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before


def test_the_copy_that_tells_its_attention_is_made_once():
    model = tiny_model().eval()
    model.set_attn_implementation("sdpa")
    found = attending(model)
    assert attending(model) is found
    source = torch.tensor([[5, 6, 2]])
    with torch.no_grad():
        model.lm_head.weight += 1
        outputs = attending(model)(input_ids=source, decoder_input_ids=source, output_attentions=True)
        torch.testing.assert_close(outputs.logits, model(input_ids=source, decoder_input_ids=source).logits)
    assert outputs.cross_attentions
    model.train()
    assert attending(model).training
