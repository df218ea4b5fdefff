"""FSDP finds what to wrap in a model of every method."""

import pytest
import torch
from accelerate import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
from tiny_run import small
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt.configuration import METHODS, preset_config
from hf_capsule_mt.files import parse_override

# The words that each of their modules reads pass through these.
LAYERS = {
    "CapsuleAggregatedMarianEncoderLayer",
    "CapsuleAggregatedMarianDecoderLayer",
    "BidirectionalLayer",
    "RecurrentLayer",
    "BidirectionalGRULayer",
    "ConditionalGRU",
}


def tiny_model(method):
    overrides = dict(parse_override(text) for text in small(method))
    return AutoModelForSeq2SeqLM.from_config(preset_config(method, "tiny", vocab_size=30, **overrides))


def plugin(version):
    return FullyShardedDataParallelPlugin(fsdp_version=version, auto_wrap_policy="transformer_based_wrap")


@pytest.mark.parametrize("method", METHODS)
def test_every_layer_is_wrapped(method):
    with torch.device("meta"):
        model = tiny_model(method)
    layers = [module for module in model.modules() if type(module).__name__ in LAYERS]
    assert layers
    older = plugin(1)
    older.set_auto_wrap_policy(model)
    wraps = fsdp2_prepare_auto_wrap_policy(plugin(2), model)
    for module in layers:
        assert wraps(module)
        assert older.auto_wrap_policy(module, recurse=False, nonwrapped_numel=1)
    assert not wraps(model)
