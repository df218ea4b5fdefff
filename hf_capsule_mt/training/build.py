"""The model that a training run starts from."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.checkpoints import load_weights, read_config
from hf_capsule_mt.configuration import (
    CONFIGURATIONS,
    CapsuleAggregatedMarianConfig,
    RNMTConfig,
    decoding_fields,
    method_config_class,
    method_fields,
    preset_config,
)
from hf_capsule_mt.configuration.checks import check_overrides, check_read
from hf_capsule_mt.data.tokenizer import check_special_tokens, forbid_pad
from hf_capsule_mt.modeling import CapsuleAggregatedMarianForConditionalGeneration, RNMTForConditionalGeneration
from hf_capsule_mt.modeling.checkpoint_files import explained_weights
from hf_capsule_mt.modeling.warm_start import is_plain, load_marian

from .arguments import ModelArguments

# The longest translation, in tokens, of a model that has no limit of its own.
MAX_LENGTH = 512

_CONFIGURATIONS = {config.model_type: config for config in CONFIGURATIONS}


def build_model(args: ModelArguments, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Build a model from scratch, load one of this package, or warm-start one from a Marian model, in float32.

    Raises:
        ValueError: if the method, the size or a field is unknown, a field's value is impossible or does not fit the
            checkpoint, the checkpoint is of another type or, being one of this package, is to become another method
            though it has one, an adapter is to be trained for a model with weights that it lacks, or the tokenizer of a
            model from scratch lacks a pad or an eos token, or has one for both.
        OSError: if there is no such checkpoint, or its weights are missing, damaged or of another shape.
    """
    if args.model_name_or_path is None:
        with _explained_overrides(args.config_overrides):
            return _from_scratch(args, tokenizer)
    with explained_weights(args.model_name_or_path), _explained_overrides(args.config_overrides):
        return _from_checkpoint(args)


@contextmanager
def _explained_overrides(overrides: Sequence[str]) -> Iterator[None]:
    """Make errors in building a model name the overridden fields, where there are any."""
    try:
        yield
    # An activation function that does not exist, weights of another shape.
    except (KeyError, RuntimeError) as error:
        if not overrides:
            raise
        reason = " ".join(line.strip() for line in str(error).splitlines()[:2])
        raise ValueError(f"no model can be made with config_overrides {' '.join(overrides)}: {reason}") from error


def _from_scratch(args: ModelArguments, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    # Before the configuration is told their ids, whose messages would name its own fields.
    check_special_tokens(tokenizer)
    fields: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "forced_eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
        **args.config_fields(),
    }
    config = preset_config(args.method, args.size or "base", **fields)
    model = AutoModelForSeq2SeqLM.from_config(config)
    max_length = getattr(config, "max_position_embeddings", MAX_LENGTH)
    model.generation_config.update(**decoding_fields(args.method), max_length=max_length)
    forbid_pad(model.generation_config, config.pad_token_id)
    return model


def _from_checkpoint(args: ModelArguments) -> PreTrainedModel:
    path, revision, fields = args.model_name_or_path, args.model_revision, args.config_fields()
    model_type = read_config(path, revision).get("model_type")
    if model_type not in ("marian", *_CONFIGURATIONS):
        raise ValueError(
            f"{path} holds a model of type {model_type!r}; training starts from a Marian model or one of this "
            f"package ({', '.join(map(repr, _CONFIGURATIONS))})"
        )
    if model_type == "marian":
        method = args.method or "transformer"
        _check_becomes(path, CapsuleAggregatedMarianConfig, method)
        # Many OPUS-MT checkpoints are in float16, in which Adam fails.
        return _from_plain(load_marian(path, revision=revision, dtype=torch.float32), method, fields, args)
    how = {"revision": revision, "dtype": torch.float32, "trust_remote_code": False}
    if args.method is not None:
        config = AutoConfig.from_pretrained(path, revision=revision, trust_remote_code=False)
        if not is_plain(config):
            raise ValueError(f"method is {args.method!r}, but {path} has one already; leave out --method")
        _check_becomes(path, type(config), args.method)
        return _from_plain(load_weights(AutoModelForSeq2SeqLM, path, {}, **how), args.method, fields, args)
    check_overrides(_CONFIGURATIONS[model_type], fields)
    model = load_weights(AutoModelForSeq2SeqLM, path, fields, **how)
    check_read(model.config, fields)
    return model


_BEGINNINGS: dict[type[PreTrainedConfig], tuple[str, Callable[..., PreTrainedModel]]] = {
    CapsuleAggregatedMarianConfig: ("Marian", CapsuleAggregatedMarianForConditionalGeneration.from_marian),
    RNMTConfig: ("RNMT", RNMTForConditionalGeneration.from_rnmt),
}
"""What plain models are called, and what makes others of them, by the configuration that both have."""


def _check_becomes(path: str, kind: type[PreTrainedConfig], method: str) -> None:
    if method_config_class(method) is not kind:
        raise ValueError(
            f"method is {method!r}, which no {_BEGINNINGS[kind][0]} model can become, but {path} is one; leave out "
            "--model_name_or_path to train from scratch"
        )


def _from_plain(plain: PreTrainedModel, method: str, fields: dict[str, Any], args: ModelArguments) -> PreTrainedModel:
    _, begin = _BEGINNINGS[method_config_class(method)]
    model = begin(plain, **{**method_fields(method), **fields})
    if args.lora_rank is not None and not is_plain(model.config):
        # Beside an adapter they would stay as they were drawn.
        raise ValueError(
            f"lora_rank is {args.lora_rank} and config_overrides {' '.join(args.config_overrides)}, which adds weights "
            f"that {args.model_name_or_path} lacks: an adapter is trained for a model that has all of its weights; "
            "train that model first, without --lora_rank, or leave out what adds to it"
        )
    return model
