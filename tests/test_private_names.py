"""The one list of private names of other libraries that the package uses, because there is no public one.

A new release that lacks one fails here by its name, and not somewhere in a model. What a name does is tested where it
is used.
"""

import argparse
import inspect
from importlib import import_module
from typing import Any, NamedTuple

import pytest
import torch
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderShard
from private_names import used_names
from sacrebleu.metrics import CHRF
from torch import nn
from torch.distributed import distributed_c10d
from transformers import (
    GenerationConfig,
    GenerationMixin,
    MarianMTModel,
    Pipeline,
    PreTrainedConfig,
    PreTrainedModel,
    Trainer,
)
from transformers.models.marian.modeling_marian import MarianDecoder


class PrivateName(NamedTuple):
    """A name, and what has it: an object with this attribute, or a class or function whose source reads it."""

    name: str
    owner: Any
    reason: str


PARSER = argparse.ArgumentParser()
OF_ONEDNN = "PyTorch multiplies no weight faster, and offers it to its compiler only."
OF_MODELS = "Every model of Transformers sets it. Nothing else tells from_pretrained()"
OF_PIPELINES = "Every pipeline of Transformers sets it, to say what pipeline() loads."
OF_MODULES = "A model that has changed is noticed by it. Public methods take six times as long, or do not list hooks."
OF_HELP = "argparse asks its own formatters so, and has no other place for words of each option."

LIST = [
    # argparse
    PrivateName("_actions", PARSER, "A parser has no public list of its options."),
    PrivateName("_action_groups", PARSER, "The help of `train` sorts them, and a parser has no public list."),
    PrivateName("_group_actions", PARSER.add_argument_group(), "The same for the options of a group."),
    PrivateName("_get_help_string", argparse.HelpFormatter, OF_HELP),
    PrivateName("_get_default_metavar_for_optional", argparse.HelpFormatter, OF_HELP),
    # PyTorch
    PrivateName("_parameters", nn.Module(), OF_MODULES),
    PrivateName("_buffers", nn.Module(), OF_MODULES),
    PrivateName("_modules", nn.Module(), OF_MODULES),
    PrivateName("_forward_hooks", nn.Module(), OF_MODULES),
    PrivateName("_forward_pre_hooks", nn.Module(), OF_MODULES),
    PrivateName("_version", torch.Tensor, "Nothing else counts the writes to a weight."),
    PrivateName("_linear_pointwise", torch.ops.mkldnn, OF_ONEDNN),
    PrivateName("_reorder_linear_weight", torch.ops.mkldnn, OF_ONEDNN),
    PrivateName("_is_mkldnn_bf16_supported", torch.ops.mkldnn, "Without it, bfloat16 may be slow or an error."),
    PrivateName("_is_vnni_supported", torch.cpu, "PyTorch 2.9.1 has no public way to ask for it."),
    PrivateName("_set_pg_timeout", distributed_c10d, "Meeting has another time limit than work."),
    PrivateName("_higher_order_ops", torch, "The public scan() compiles first, which takes twenty times as long."),
    # accelerate
    PrivateName("_non_blocking", DataLoaderShard.__init__, "A loader takes this option under no other name."),
    PrivateName("_original_forward", Accelerator, "Scores in training need the forward without autocast for a while."),
    # sacreBLEU
    PrivateName("_extract_corpus_statistics", CHRF, "chrF gives its counts of a sentence under no public name."),
    PrivateName("_compute_score_from_stats", CHRF, "The public methods compute chrF of texts only, not of counts."),
    # Models of Transformers
    PrivateName("_attn_implementation", PreTrainedConfig(), "A configuration has it under no other name."),
    PrivateName("_can_record_outputs", MarianDecoder, f"{OF_MODELS} which modules give hidden states and attentions."),
    PrivateName("_init_weights", PreTrainedModel, f"{OF_MODELS} how weights begin that a file lacks."),
    PrivateName("_is_stateful", PreTrainedModel, "A recurrent model says so that it cannot drop tokens again."),
    PrivateName("_keys_to_ignore_on_load_missing", PreTrainedModel, f"{OF_MODELS} which weights are computed."),
    PrivateName("_keys_to_ignore_on_load_unexpected", PreTrainedModel, f"{OF_MODELS} which weights others read."),
    PrivateName("_keys_to_ignore_on_save", PreTrainedModel, "Trained sinusoids would be lost when a model is saved."),
    PrivateName("_no_split_modules", PreTrainedModel, "Every model of Transformers sets it. FSDP reads it."),
    PrivateName("_tied_weights_keys", PreTrainedModel, f"{OF_MODELS} which weights are one."),
    PrivateName("_resize_token_embeddings", PreTrainedModel, "The public method cannot be told of a second embedding."),
    PrivateName(
        "_get_resized_embeddings", PreTrainedModel, "It resizes one embedding, and resize_token_embeddings() all."
    ),
    PrivateName("_resize_final_logits_bias", MarianMTModel, "Marian's bias would not fit to padded embeddings."),
    # generate() of Transformers
    PrivateName("_from_model_config", GenerationConfig(), "With this mark, unknown names are left out."),
    PrivateName("_is_user_defined", GenerationMixin._prepare_cache_for_generation, "Only it tells whose a cache is."),
    PrivateName("_supports_default_dynamic_cache", GenerationMixin, "A recurrent model has no keys and values."),
    # Pipelines of Transformers
    PrivateName("_forward", Pipeline, "Every pipeline of Transformers defines it."),
    PrivateName("_sanitize_parameters", Pipeline, "Every pipeline of Transformers defines it."),
    PrivateName("_load_feature_extractor", Pipeline, OF_PIPELINES),
    PrivateName("_load_image_processor", Pipeline, OF_PIPELINES),
    PrivateName("_load_processor", Pipeline, OF_PIPELINES),
    PrivateName("_load_tokenizer", Pipeline, OF_PIPELINES),
    # The Trainer of Transformers
    PrivateName("_issue_warnings_after_load", Trainer, "It would warn of weights that are saved once or computed."),
    PrivateName("_prepare_for_training", Trainer, "The only method around the call that spreads weights with FSDP2."),
    PrivateName("_save", Trainer, "The only method that gets the weights that FSDP gathers."),
]


@pytest.mark.parametrize("private", LIST, ids=lambda private: private.name)
def test_a_private_name_is_still_there(private):
    is_attribute = hasattr(private.owner, private.name)
    # Names that are given to an object later stand in the source of what gives them.
    is_read = inspect.isroutine(private.owner) or inspect.isclass(private.owner)
    assert is_attribute or (is_read and private.name in inspect.getsource(private.owner)), private.reason


def test_the_operator_of_exported_loops_is_still_there():
    assert callable(import_module("torch._higher_order_ops.scan").scan_op)


@pytest.mark.slow
def test_the_list_has_every_private_name_and_no_other():
    """Use a public name, or add the private one with a reason. Remove what is no longer used."""
    assert used_names() == {private.name for private in LIST}
