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

from hf_capsule_mt.configuration import CapsuleAggregatedMarianConfig, method_fields, preset_config
from hf_capsule_mt.configuration.checks import check_overrides
from hf_capsule_mt.data.tokenizer import forbid_pad
from hf_capsule_mt.modeling import CapsuleAggregatedMarianForConditionalGeneration
from hf_capsule_mt.modeling.capsule_aggregated_marian import load_marian

from .arguments import ModelArguments

BEAMS = 4  # of generate() with a model trained from scratch, as in the papers


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
    model.generation_config.num_beams = BEAMS
    model.generation_config.max_length = config.max_position_embeddings
    forbid_pad(model.generation_config, config.pad_token_id)
    return model


def _from_checkpoint(args: ModelArguments) -> PreTrainedModel:
    path, revision, fields = args.model_name_or_path, args.model_revision, args.config_fields()
    model_type = PreTrainedConfig.get_config_dict(path, revision=revision)[0].get("model_type")
    if model_type not in ("marian", CapsuleAggregatedMarianConfig.model_type):
        raise ValueError(
            f"{path} holds a model of type {model_type!r}; training starts from a Marian model or one of this "
            f"package ({CapsuleAggregatedMarianConfig.model_type!r})"
        )
    if model_type == "marian":
        # Many OPUS-MT checkpoints are in float16, in which Adam fails.
        marian = load_marian(path, revision=revision, dtype=torch.float32)
        fields = {**method_fields(args.method or "transformer"), **fields}
        return CapsuleAggregatedMarianForConditionalGeneration.from_marian(marian, **fields)
    if args.method is not None:
        raise ValueError(f"method is {args.method!r}, but {path} has one already; leave out --method")
    return _load(path, revision, fields)


def _load(path: str, revision: str, fields: dict[str, Any]) -> PreTrainedModel:
    check_overrides(CapsuleAggregatedMarianConfig, fields)
    how = {"revision": revision, "dtype": torch.float32, "trust_remote_code": False, "output_loading_info": True}
    model, report = AutoModelForSeq2SeqLM.from_pretrained(path, **how, **fields)
    strange = [*report["missing_keys"], *report["unexpected_keys"]]
    if strange:
        raise ValueError(
            f"the weights in {path} do not fit its configuration with {fields}: {', '.join(sorted(strange))}"
        )
    return model
