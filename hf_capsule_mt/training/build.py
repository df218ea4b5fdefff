"""The model that a training run starts from."""

from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from hf_capsule_mt.configuration import (
    CONFIGURATIONS,
    CapsuleAggregatedM2M100Config,
    CapsuleAggregatedMarianConfig,
    RNMTConfig,
    decoding_fields,
    method_config_class,
    method_fields,
    preset_config,
)
from hf_capsule_mt.configuration.presets import check_overrides
from hf_capsule_mt.data.tokenizer import check_special_tokens
from hf_capsule_mt.errors import UserError, blamed_on_user
from hf_capsule_mt.loading import check_loaded, load_config, load_model, load_tokenizer, readable_weights
from hf_capsule_mt.modeling import (
    CapsuleAggregatedM2M100ForConditionalGeneration,
    CapsuleAggregatedMarianForConditionalGeneration,
    RNMTForConditionalGeneration,
)
from hf_capsule_mt.modeling.warm_start import is_plain

from .options import ModelArguments

logger = logging.get_logger(__name__)

# Positions of the longest translation of a model that has no limit of its own.
MAX_LENGTH = 512


def build_model(args: ModelArguments, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Build a model from scratch, load one of this package, or warm-start one from Marian or M2M-100, in float32.

    Raises:
        UserError: if a field of the configuration is unknown, the checkpoint cannot become the method, or an adapter
            is to be trained for a model that lacks weights.
        OSError: if there is no such checkpoint.
    """
    # Configurations and models raise plain errors, because checkpoints carry their source.
    with blamed_on_user((ValueError, TypeError, StrictDataclassError)):
        model = _from_scratch(args, tokenizer) if args.model is None else _from_checkpoint(args)

    # The generation settings of a checkpoint have a start token too, and translations would begin with it.
    if "decoder_start_token_id" in args.config_fields():
        model.generation_config.decoder_start_token_id = model.config.decoder_start_token_id
    return model


def check_vocabulary(args: ModelArguments, tokenizer: PreTrainedTokenizerBase) -> None:
    """Check that a tokenizer that is given for a trained model has the vocabulary of the model's own.

    With another one, even of the same size, every id would mean another word, and the model would have to unlearn all.

    Raises:
        UserError: if it has another vocabulary.
    """
    if args.model is None or args.tokenizer_name is None:
        return

    try:
        own_tokenizer = load_tokenizer(args.model, args.revision)
    except (OSError, ValueError):
        logger.warning(
            f"{args.model} has no tokenizer. Make sure that {args.tokenizer_name} is the one it was trained with."
        )
        return

    if _vocabularies(own_tokenizer) != _vocabularies(tokenizer):
        raise UserError(
            f"{args.tokenizer_name} has another vocabulary than the tokenizer of {args.model}, so each token id would "
            "mean another word. Leave out --tokenizer_name."
        )


def _vocabularies(tokenizer: PreTrainedTokenizerBase) -> list[dict[str, int] | None]:
    """Return the ids by token: of one vocabulary, or of the source and of the target."""
    return [tokenizer.get_vocab(), getattr(tokenizer, "target_encoder", None)]


def _from_scratch(args: ModelArguments, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    check_special_tokens(tokenizer)
    fields = args.config_fields()
    ids = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    # The last token of a translation at its limit. M2M-100 has it only in its generation configuration.
    forced_end = {"forced_eos_token_id": tokenizer.eos_token_id}
    if hasattr(method_config_class(args.method), "forced_eos_token_id"):
        ids |= forced_end

    config = preset_config(args.method, args.size or "base", **{**ids, **fields})
    model = AutoModelForSeq2SeqLM.from_config(config)

    positions = getattr(config, "max_position_embeddings", MAX_LENGTH)
    limits = {
        # The start token takes a position too. With `max_length` instead, Transformers would warn of two limits at each
        # `generate(max_new_tokens=20)`.
        "max_new_tokens": positions - 1,
        # OPUS-MT's configurations forbid the pad token in this way.
        "bad_words_ids": [[config.pad_token_id]],
    }
    model.generation_config.update(**decoding_fields(args.method), **limits, **forced_end)
    return model


def _from_checkpoint(args: ModelArguments) -> PreTrainedModel:
    """Load a model of this package, or warm-start one from a plain model."""
    # Many OPUS-MT checkpoints are in float16, in which Adam fails.
    options = {"revision": args.revision, "dtype": torch.float32}
    config = load_config(args.model, args.revision)

    if config.model_type in ("marian", "m2m_100"):
        with readable_weights(args.model):
            model = _from_plain(args.model, config, args, **options)
        check_loaded(model, set(), revision=args.revision)
        return model
    if config.model_type == "mbart":
        return _mbart(args, config, **options)

    if not isinstance(config, CONFIGURATIONS):
        raise UserError(
            f"{args.model} is a {config.model_type} model. Start from Marian, M2M-100, NLLB-200, mBART-50 or a model "
            "of this package."
        )

    if args.method is None:
        check_overrides(type(config), args.config_fields())
        return load_model(args.model, **options, **args.config_fields())
    if not is_plain(config):
        raise UserError(f"{args.model} has a method already. Leave out --method.")
    return _from_plain(load_model(args.model, **options), config, args)


def _mbart(args: ModelArguments, config: PreTrainedConfig, **options: Any) -> PreTrainedModel:
    """Load mBART-50, which this package adds no parts to."""
    if args.method not in (None, "transformer"):
        raise UserError(f"{args.model} is mBART, which cannot become {args.method}. Leave out --method.")
    fields = args.config_fields()
    # The Trainer smooths labels for a model whose own loss does not.
    fields.pop("label_smoothing")
    check_overrides(type(config), fields)
    return load_model(args.model, **options, **fields)


def _from_plain(
    plain: str | PreTrainedModel, plain_config: PreTrainedConfig, args: ModelArguments, **options: Any
) -> PreTrainedModel:
    """Warm-start a model with the method of `args` from a plain one, which is a model, or a name with `options`."""
    method = args.method or "transformer"
    if plain_config.model_type == RNMTConfig.model_type:
        families = {RNMTConfig}
        warm_start = RNMTForConditionalGeneration.from_rnmt
    elif plain_config.model_type in ("m2m_100", CapsuleAggregatedM2M100Config.model_type):
        # All methods of the Transformer are for M2M-100 too.
        families = {CapsuleAggregatedMarianConfig, CapsuleAggregatedM2M100Config}
        warm_start = CapsuleAggregatedM2M100ForConditionalGeneration.from_m2m100
    else:
        families = {CapsuleAggregatedMarianConfig}
        warm_start = CapsuleAggregatedMarianForConditionalGeneration.from_marian

    if method_config_class(method) not in families:
        raise UserError(f"{args.model} cannot become {method}. Leave out one of both.")

    fields = {**method_fields(method), **args.config_fields()}
    model = warm_start(plain, **options, **fields)
    if args.lora_rank is not None and not is_plain(model.config):
        raise UserError("--config_overrides add weights that an adapter would leave random. Leave out --lora_rank.")
    return model
