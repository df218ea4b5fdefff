"""The model that a training run starts from."""

from typing import Any

from transformers import AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.configuration import CapsuleAggregatedMarianConfig, method_fields, preset_config
from hf_capsule_mt.data.tokenizer import forbid_pad
from hf_capsule_mt.modeling import CapsuleAggregatedMarianForConditionalGeneration

from .arguments import ModelArguments

BEAMS = 4  # of generate() with a model trained from scratch, as in the papers


def build_model(args: ModelArguments, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Build a model from scratch, load one of this package, or warm-start one from a Marian model.

    Raises:
        ValueError: if the method, the size or a field is unknown, or the checkpoint is of another type or, being one of
            this package, is to become another method.
    """
    if args.model_name_or_path is None:
        return _from_scratch(args, tokenizer)
    model_type = PreTrainedConfig.get_config_dict(args.model_name_or_path)[0].get("model_type")
    if model_type == "marian":
        fields = {**method_fields(args.method or "transformer"), **args.config_fields()}
        return CapsuleAggregatedMarianForConditionalGeneration.from_marian(args.model_name_or_path, **fields)
    if model_type == CapsuleAggregatedMarianConfig.model_type:
        if args.method is not None:
            raise ValueError(
                f"method is {args.method!r}, but {args.model_name_or_path} has one already; leave out --method"
            )
        return AutoModelForSeq2SeqLM.from_pretrained(args.model_name_or_path, **args.config_fields())
    raise ValueError(
        f"{args.model_name_or_path} holds a model of type {model_type!r}; training starts from a Marian model or one of this "
        f"package ({CapsuleAggregatedMarianConfig.model_type!r})"
    )


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
