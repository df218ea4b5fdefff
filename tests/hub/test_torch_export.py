"""`torch.export` of whole models: any batch and any length, whatever the example's."""

import pytest
import torch
from exported_models import model_of

LENGTHS = ([3, 2], [4, 6]), ([9, 1, 5], [2, 3, 8]), ([1, 6], [1, 1])


def whole_batch(sources, targets):
    def padded(lengths, seed):
        words = torch.randint(3, 25, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
        mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
        return words.masked_fill(~mask, 0), mask.long()

    (input_ids, attention_mask), (decoder_input_ids, decoder_attention_mask) = padded(sources, 1), padded(targets, 2)
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "decoder_input_ids": decoder_input_ids,
        "decoder_attention_mask": decoder_attention_mask,
    }


def check_whole_model(model):
    example, *others = (whole_batch(*lengths) for lengths in LENGTHS)
    dynamic = {name: dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC) for name in example}
    options = {"kwargs": {**example, "use_cache": False}, "dynamic_shapes": {**dynamic, "use_cache": None}}
    with torch.no_grad():
        program = torch.export.export(model, (), **options).module()
        for batch in (example, *others):
            found, wanted = (each(**batch, use_cache=False).logits for each in (program, model))
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small-capsnmt"])
def test_a_whole_model(name):
    check_whole_model(model_of(name))
