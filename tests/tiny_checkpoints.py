"""Tiny random checkpoints of the three families, which a test session makes once."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch
from tiny_marian import tiny_tokenizer

import hf_capsule_mt

_FIELDS = {"vocab_size": 29, "pad_token_id": 0, "eos_token_id": 2, "forced_eos_token_id": 2, "dropout": 0.0}
_MARIAN = {
    **_FIELDS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "decoder_start_token_id": 0,
    "layer_aggregation": "em_routing",
    "head_aggregation": "simple_routing",
}
_RECURRENT = {**_FIELDS, "d_model": 32, "num_sentence_capsules": 3}
FAMILIES = {
    "capsule_aggregated_marian": (
        hf_capsule_mt.CapsuleAggregatedMarianConfig,
        hf_capsule_mt.CapsuleAggregatedMarianForConditionalGeneration,
        _MARIAN,
    ),
    "caps_nmt": (hf_capsule_mt.CapsNMTConfig, hf_capsule_mt.CapsNMTForConditionalGeneration, _RECURRENT),
    "rnmt": (hf_capsule_mt.RNMTConfig, hf_capsule_mt.RNMTForConditionalGeneration, _RECURRENT),
}


@cache
def tiny_checkpoint(family):
    """Return the folder of a checkpoint of a family of `FAMILIES`, with a tokenizer whose words are letters."""
    folder = Path(tempfile.mkdtemp(prefix="tiny_checkpoint"), family)
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    config_class, model_class, fields = FAMILIES[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = model_class(config_class(**fields)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 3
    if hasattr(model, "final_logits_bias"):
        # Most translations end by themselves.
        model.final_logits_bias[:, 2] = 2.0
    model.generation_config.bad_words_ids = [[0]]
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
