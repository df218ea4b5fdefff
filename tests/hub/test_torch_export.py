"""`torch.export` of whole models: any batch and any length, whatever the example's."""

import pytest
import torch
from exported_models import every_kind, model_of

from hf_capsule_mt.modeling.outputs import CACHE

LONGER = pytest.param("small-rnmt", marks=pytest.mark.exhaustive)
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
@pytest.mark.parametrize("name", ["small-marian", "small-capsnmt", LONGER])
def test_a_whole_model(name):
    check_whole_model(model_of(name))


@every_kind
def test_every_kind_as_a_whole(name):
    check_whole_model(model_of(name))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["small-marian", "small-rnmt", "small-capsnmt"])
def test_a_whole_model_in_onnx(name, tmp_path):
    model, path = model_of(name), tmp_path / "model.onnx"
    example, *others = (whole_batch(*lengths) for lengths in LENGTHS)
    axes = {name: {0: f"batch of {name}", 1: f"length of {name}"} for name in example}
    with torch.no_grad():
        torch.onnx.export(
            model,
            kwargs={**example, "use_cache": False},
            f=path,
            input_names=list(example),
            output_names=["logits"],
            dynamic_shapes={**axes, "use_cache": None},
            dynamo=True,
        )
        session = pytest.importorskip("onnxruntime").InferenceSession(path)
        given = {tensor.name for tensor in session.get_inputs()}
        for batch in (example, *others):
            [found] = session.run(["logits"], {name: batch[name].numpy() for name in given})
            wanted = model(**batch, use_cache=False).logits
            torch.testing.assert_close(torch.from_numpy(found), wanted, rtol=1e-4, atol=1e-4)


def test_strict_export_says_what_it_cannot():
    layer = model_of("small-capsnmt").get_decoder().layers[0]
    shapes = (dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC),)
    with pytest.raises(torch._dynamo.exc.UserError, match="specialized it to be a constant"):
        torch.export.export(layer, (torch.ones(2, 3, 16),), dynamic_shapes=shapes, strict=True)


@pytest.mark.slow
def test_a_decoder_that_reads_padding():
    """With a cache and a mask the layers of CapsNMT read word by word."""
    decoder = model_of("small-capsnmt").get_decoder()

    class States(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.decoder = decoder

        def forward(self, words, mask, sentence):
            outputs = self.decoder(words, mask, sentence, use_cache=True)
            return outputs.last_hidden_state, outputs[CACHE].states

    example, other = (
        (batch["decoder_input_ids"], batch["decoder_attention_mask"], torch.randn(len(batch["input_ids"]), 16))
        for batch in (whole_batch([3, 2], [4, 6]), whole_batch([5, 2, 1], [3, 1, 7]))
    )
    both = dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC)
    with torch.no_grad():
        shapes = both, both, {0: torch.export.Dim.DYNAMIC}
        program = torch.export.export(States(), example, dynamic_shapes=shapes).module()
        torch.testing.assert_close(program(*other), States()(*other))
