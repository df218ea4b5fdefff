"""The model that a training run starts from."""

from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoModelForSeq2SeqLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_capsule_mt.configuration import (
    CapsuleAggregatedMarianConfig,
    decoding_fields,
    method_config_class,
    method_fields,
    preset_config,
)
from hf_capsule_mt.configuration.checks import check_overrides
from hf_capsule_mt.data.tokenizer import forbid_pad
from hf_capsule_mt.modeling import CapsuleAggregatedMarianForConditionalGeneration
from hf_capsule_mt.modeling.warm_start import load_marian
from hf_capsule_mt.registration import CONFIGURATIONS

from .arguments import ModelArguments

# The longest translation, in tokens, of a model that has no limit of its own.
MAX_LENGTH = 512

_CONFIGURATIONS = {config.model_type: config for config in CONFIGURATIONS}


def build_model(args: ModelArguments, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Build a model from scratch, load one of this package, or warm-start one from a Marian model, in float32.

    Raises:
        ValueError: if the method, the size or a field is unknown, a field's value is impossible or does not fit the
            checkpoint, or the checkpoint is of another type or, being one of this package, is to become another method.
        OSError: if there is no such checkpoint.
    """
    try:
        return _from_scratch(args, tokenizer) if args.model_name_or_path is None else _from_checkpoint(args)
    # A field of another type, an activation function that does not exist, weights of another shape.
    except (StrictDataclassError, KeyError, RuntimeError) as error:
        if not args.config_overrides:
            raise
        reason = " ".join(line.strip() for line in str(error).splitlines()[:2])
        raise ValueError(
            f"no model can be made with config_overrides {' '.join(args.config_overrides)}: {reason}"
        ) from error


def _from_scratch(args: ModelArguments, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
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
    model_type = PreTrainedConfig.get_config_dict(path, revision=revision)[0].get("model_type")
    if model_type not in ("marian", *_CONFIGURATIONS):
        raise ValueError(
            f"{path} holds a model of type {model_type!r}; training starts from a Marian model or one of this "
            f"package ({', '.join(map(repr, _CONFIGURATIONS))})"
        )
    if model_type == "marian":
        return _from_marian(path, revision, args.method or "transformer", fields)
    if args.method is not None:
        raise ValueError(f"method is {args.method!r}, but {path} has one already; leave out --method")
    check_overrides(_CONFIGURATIONS[model_type], fields)
    return _load(path, revision, fields)


def _from_marian(path: str, revision: str, method: str, fields: dict[str, Any]) -> PreTrainedModel:
    if method_config_class(method) is not CapsuleAggregatedMarianConfig:
        raise ValueError(
            f"method is {method!r}, which no Marian model can become, but {path} is one; leave out "
            "--model_name_or_path to train from scratch"
        )
    # Many OPUS-MT checkpoints are in float16, in which Adam fails.
    marian = load_marian(path, revision=revision, dtype=torch.float32)
    return CapsuleAggregatedMarianForConditionalGeneration.from_marian(marian, **{**method_fields(method), **fields})


def _load(path: str, revision: str, fields: dict[str, Any]) -> PreTrainedModel:
    how = {"revision": revision, "dtype": torch.float32, "trust_remote_code": False, "output_loading_info": True}
    model, report = AutoModelForSeq2SeqLM.from_pretrained(path, **how, **fields)
    strange = [*report["missing_keys"], *report["unexpected_keys"]]
    if strange:
        raise ValueError(
            f"the weights in {path} do not fit its configuration with {fields}: {', '.join(sorted(strange))}"
        )
    return model
