"""`torch.export` of whole models: any batch and any length, whatever the example's."""

import pytest
import torch
from exported_models import every_kind, model_of

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
