"""LoRA by PEFT: where adapters go, merging, saving and pushing."""

import peft
import pytest
import torch
from aggregated_models import source_batch, training_batch
from families import logits
from loopback_hub import TOKEN
from plug_table import FAMILIES, promised
from torch import nn
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt import LORA_PARAMETERS, LORA_TARGETS, decoding

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")


def with_adapter(model, **options):
    """A model with an adapter that matters from the start."""
    torch.manual_seed(0)
    config = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", init_lora_weights=False, **options)
    return peft.get_peft_model(model, config).eval()


def adapted_parts(model):
    """The names of the modules that have adapters."""
    parts = {name.partition(".lora_A.")[0] for name, _ in model.named_parameters() if ".lora_A." in name}
    return {part.removeprefix("base_model.model.").replace(".base_layer", "") for part in parts}


def linear_maps(model):
    return {name for name, module in model.named_modules() if isinstance(module, nn.Linear)} - {"lm_head"}


def assert_adapts(model):
    """The adapter changes the outputs, is all that is trained, each of its weights, and can be merged."""
    output = logits(model)
    with model.disable_adapter():
        assert not torch.allclose(logits(model), output, atol=1e-3)
    model.train()(**training_batch()).loss.backward()
    trained = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert all(".lora_" in name and gradient.any() for name, gradient in trained.items())
    torch.testing.assert_close(logits(model.eval().merge_and_unload()), output, rtol=1e-4, atol=1e-4)


@promised("LoRA, `LORA_TARGETS`")
def test_targets_of_the_family(family):
    model = FAMILIES[family]()
    wanted = {name for name in linear_maps(model) if "out_proj" not in name.rpartition(".")[2]}
    wanted -= {name for name in wanted if name.startswith("guided_losses") or "aggregator" in name}
    recurrent = {name for name, module in model.named_modules() if isinstance(module, nn.RNNBase)}
    kind = model.config.model_type
    places = {"target_modules": LORA_TARGETS[kind], "target_parameters": LORA_PARAMETERS.get(kind)}
    adapted = with_adapter(model, **places)
    assert adapted_parts(adapted) == wanted | recurrent
    assert_adapts(adapted)


@promised('LoRA, `"all-linear"`')
def test_all_linear(family):
    model = FAMILIES[family]()
    wanted = linear_maps(model)
    adapted = with_adapter(model, target_modules="all-linear")
    assert adapted_parts(adapted) == wanted
    assert_adapts(adapted)


@promised("LoRA, saved, merged and pushed")
def test_save_merge_and_push(family, tmp_path, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    adapted = with_adapter(FAMILIES[family](), target_modules="all-linear")
    output = logits(adapted)
    adapted.push_to_hub("user/adapter")
    assert "adapter_model.safetensors" in hub.repositories["user/adapter"].files
    again = peft.PeftModel.from_pretrained(FAMILIES[family](), "user/adapter")
    assert torch.equal(logits(again), output)
    again.merge_and_unload().save_pretrained(tmp_path / "merged")
    merged = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(logits(merged), output, rtol=1e-4, atol=1e-4)
    options = {**source_batch(), "max_length": 8, "custom_generate": decoding.generate}
    assert torch.equal(merged.generate(**options), adapted.generate(**options))


def test_the_engine_encodes_with_adapters():
    """As `generate()` does, with those that are switched on, at their scale."""
    model = FAMILIES["`MarianMTModel`"]()
    source = source_batch()

    def assert_encodes():
        expected = model.get_encoder()(**source).last_hidden_state
        found = decoding.engine_of(model).encode(**source).last_hidden_state
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)

    with_adapter(model, target_modules=r".*encoder\.layers.*(q_proj|fc1)")
    assert_encodes()
    adapted = [module for module in model.modules() if isinstance(module, peft.tuners.tuners_utils.BaseTunerLayer)]
    for change in (lambda layer: layer.scale_layer(5.0), lambda layer: layer.enable_adapters(False)):
        for layer in adapted:
            change(layer)
        assert_encodes()
