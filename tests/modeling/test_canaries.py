"""Private names of other libraries that the models read or override. Here a new release fails, and not in a model."""

from importlib import import_module

import pytest
from tiny_checkpoints import tiny_checkpoint
from torch import nn
from transformers import AutoModelForSeq2SeqLM, GenerationMixin, MarianMTModel, PreTrainedModel
from transformers.models.marian.modeling_marian import MarianDecoder, MarianEncoder

from hf_capsule_mt.modeling.initial_weights import init_words
from hf_capsule_mt.modeling.translation_head import _is_bare

OVERRIDDEN = [
    (PreTrainedModel, "_init_weights"),
    (PreTrainedModel, "_resize_token_embeddings"),
    (PreTrainedModel, "_get_resized_embeddings"),
    (PreTrainedModel, "_no_split_modules"),
    (PreTrainedModel, "_tied_weights_keys"),
    (PreTrainedModel, "_keys_to_ignore_on_load_missing"),
    (PreTrainedModel, "_keys_to_ignore_on_load_unexpected"),
    (PreTrainedModel, "_is_stateful"),
    (GenerationMixin, "_supports_default_dynamic_cache"),
    (MarianMTModel, "_resize_final_logits_bias"),
    (MarianEncoder, "_can_record_outputs"),
    (MarianDecoder, "_can_record_outputs"),
]


@pytest.mark.parametrize(("owner", "name"), OVERRIDDEN)
def test_transformers_still_has_what_is_overridden(owner, name):
    assert hasattr(owner, name)


HOOKS = [
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
]


@pytest.mark.parametrize("register", HOOKS)
def test_the_loss_sees_hooks_of_every_kind(register):
    """It would read the weight of a projection, and leave out its hooks."""
    projection = nn.Linear(2, 2, bias=False)
    assert _is_bare(projection)
    handle = getattr(projection, register)(lambda *_: None)
    assert not _is_bare(projection)
    handle.remove()
    assert _is_bare(projection)


def test_loaded_words_stay_as_they_are():
    words = nn.Embedding(3, 2, padding_idx=1)
    nn.init.ones_(words.weight)
    # Transformers marks loaded weights so.
    words.weight._is_hf_initialized = True
    init_words(words, 2)
    assert words.weight.tolist() == [[1, 1]] * 3
    words.weight._is_hf_initialized = False
    init_words(words, 2)
    is_zero = (words.weight == 0).all(-1)
    assert is_zero.tolist() == [False, True, False]


def test_of_a_model_with_an_adapter_only_the_adapter_is_saved(tmp_path, monkeypatch):
    """Python files beside an adapter would be loaded with another model."""
    model = AutoModelForSeq2SeqLM.from_pretrained(tiny_checkpoint("capsule_aggregated_marian"))
    model.save_pretrained(tmp_path / "model")
    # Transformers wants a newer PEFT than is tested with to load one.
    monkeypatch.setattr(model, "active_adapters", lambda: ["default"])
    model.save_pretrained(tmp_path / "adapter")
    assert list((tmp_path / "model").glob("*.py"))
    assert not list((tmp_path / "adapter").glob("*.py"))


def test_the_operator_of_exported_loops():
    assert callable(import_module("torch._higher_order_ops.scan").scan_op)
