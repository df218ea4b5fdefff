"""Private names of other libraries that the models read or override. Here a new release fails, and not in a model."""

from importlib import import_module

import pytest
import torch
from torch import nn
from transformers import GenerationMixin, MarianMTModel, PreTrainedModel
from transformers.models.marian.modeling_marian import MarianDecoder, MarianEncoder

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


def test_backward_hooks_of_a_module():
    module = nn.Linear(2, 2)
    module.register_full_backward_hook(lambda *_: None)
    module.register_full_backward_pre_hook(lambda *_: None)
    assert len(module._backward_hooks) == len(module._backward_pre_hooks) == 1


def test_the_mark_of_loaded_weights():
    from transformers import initialization

    weight = nn.Parameter(torch.ones(2))
    weight._is_hf_initialized = True
    initialization.zeros_(weight)
    assert weight.tolist() == [1, 1]


def test_the_operator_of_exported_loops():
    assert callable(import_module("torch._higher_order_ops.scan").scan_op)
