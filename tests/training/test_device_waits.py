"""An update on an accelerator: nothing makes the host wait for the device, and layers are compiled by themselves."""

import sys
from contextlib import nullcontext

import pytest
import torch
from tiny_marian import tiny_tokenizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt import preset_config
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.moving_average import WeightAverage
from hf_capsule_mt.training.trainer import TranslationTrainer

ROWS = [
    {"input_ids": [word] * length + [2], "labels": [word] * (9 - length) + [2]}
    for word, length in zip(range(3, 19), [1, 8, 3, 5] * 4)
]


def trainer_of(method, folder, layers=1, **options):
    torch.manual_seed(0)
    few = {"routing_iterations": 2, "guided_capsule_dim": 4, "guided_routing_iterations": 2}
    few |= {"encoder_layers": layers, "decoder_layers": layers}
    config = preset_config(method, "tiny", vocab_size=29, d_model=16, dropout=0.0, pad_token_id=0, eos_token_id=2)
    for name, value in few.items():
        if hasattr(config, name):
            setattr(config, name, value)
    model = AutoModelForSeq2SeqLM.from_config(config)
    fixed = {"max_tokens_per_batch": 40, "warmup_steps": 0, "logging_steps": 1, "save_strategy": "no"}
    fixed |= {"report_to": "none", "use_cpu": True}
    args = TranslationTrainingArguments(folder, **fixed | options)
    return TranslationTrainer(model, args, train_dataset=ROWS, processing_class=tiny_tokenizer())


class CopiesBetweenDevices(TorchDispatchMode):
    """Counts them. A tensor without numbers, on the device "meta", refuses all else that would wait for numbers."""

    found = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            devices = {leaf.device for leaf in tree_leaves((args, result)) if isinstance(leaf, torch.Tensor)}
            self.found += len(devices) > 1
        return result


@pytest.mark.parametrize(
    ("method", "rdrop_alpha"),
    [("dynamic-routing", 5.0), ("head-em-routing", 0.0), ("gdr", 5.0), ("gdr-classifier", 0.0)]
    + [("rnmt-gdr", 0.0), ("capsnmt", 5.0)],
)
def test_an_update_waits_for_nothing(method, rdrop_alpha, tmp_path, monkeypatch):
    trainer = trainer_of(method, tmp_path, rdrop_alpha=rdrop_alpha)
    batch = {name: value.to("meta") for name, value in next(iter(trainer.get_train_dataloader())).items()}
    model = trainer.model.to("meta").train()
    # It has no autocast, and no fused optimizers.
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(sys.modules["torch.optim.adam"], "_device_dtype_check_for_fused", lambda *_: None)
    average, state = WeightAverage(0.9), trainer.state
    average.on_train_begin(trainer.args, state, None, model=model)
    optimizer = trainer.create_optimizer()
    with CopiesBetweenDevices() as copies:
        items = batch["labels"].ne(-100).sum()
        trainer.compute_loss(model, batch, num_items_in_batch=items).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.on_step_end(trainer.args, state, None)
    assert copies.found == 0
    assert any(weight.grad is not None for weight in model.parameters())


def test_adam_is_fused(tmp_path):
    trainer = trainer_of("gdr", tmp_path, added_learning_rate=1e-3)
    assert all(group["fused"] for group in trainer.create_optimizer().param_groups)


@pytest.mark.slow
def test_layers_are_compiled_by_themselves_for_every_shape(tmp_path, monkeypatch):
    # Otherwise some batches have no masks.
    monkeypatch.setattr("hf_capsule_mt.modeling.stacks.waits_for", lambda _: True)
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    options = {"layers": 2, "max_steps": 4, "learning_rate": 0.01, "seed": 1}
    plain = trainer_of("dynamic-combination", tmp_path, **options)
    compiled = trainer_of("dynamic-combination", tmp_path, **options, torch_compile=True, torch_compile_backend="eager")
    losses = []
    for trainer in (plain, compiled):
        trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    # One for all encoder layers, and two for all decoder layers: the first batch may have sides of equal length.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3
    assert not torch._dynamo.utils.counters["graph_break"]


def test_recurrent_networks_are_not_compiled(tmp_path):
    with pytest.raises(ValueError, match="recurrent network"):
        trainer_of("rnmt", tmp_path, torch_compile=True)
