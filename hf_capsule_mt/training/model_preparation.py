"""What a model needs to be trained: frozen positions, compiled layers, rates of added weights, and finite weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.optim import Optimizer
from transformers import M2M100Config, MarianMTModel, MBartConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.m2m_100.modeling_m2m_100 import M2M100DecoderLayer, M2M100EncoderLayer
from transformers.models.marian.modeling_marian import (
    MarianDecoderLayer,
    MarianEncoderLayer,
    MarianSinusoidalPositionalEmbedding,
)
from transformers.models.mbart.modeling_mbart import MBartDecoderLayer, MBartEncoderLayer

from hf_capsule_mt.data.languages import KnownLanguages
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.modeling.warm_start import added_weights


def freeze_positions(model: nn.Module) -> None:
    """Freeze sinusoidal positions, which Transformers trains once they are loaded, and does not save.

    Stored positions that are no sinusoids are saved with the model.
    """
    for module in model.modules():
        if not isinstance(module, MarianSinusoidalPositionalEmbedding):
            continue
        module.weight.requires_grad_(False)
        if type(model) is MarianMTModel:
            sinusoids = module.create_weight().to(module.weight)
            if not torch.allclose(module.weight, sinusoids, atol=1e-3):
                # Otherwise they would be lost. Transformers has no public name for the weights that are not saved.
                model._keys_to_ignore_on_save = None


def force_target_language(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Let translations begin with the language that a tokenizer is set to, if it has languages.

    Otherwise the validation would score translations into any language.
    """
    languages = KnownLanguages(tokenizer)
    if languages.are_arguments:
        model.generation_config.forced_bos_token_id = languages.direction().first_token


def compile_layers(model: nn.Module, *, backend: str | None, mode: str | None) -> None:
    """Compile each layer of a Transformer by itself, once for batches of every shape.

    That takes seconds. What is between the layers keeps its own kernels: routing of layers, and the loss.

    Raises:
        UserError: if the model is no Transformer.
    """
    of_marian = (MarianEncoderLayer, MarianDecoderLayer)
    of_m2m100 = (M2M100EncoderLayer, M2M100DecoderLayer)
    of_mbart = (MBartEncoderLayer, MBartDecoderLayer)
    kinds = (*of_marian, *of_m2m100, *of_mbart)
    layers = [module for module in model.modules() if isinstance(module, kinds)]
    if not layers:
        raise UserError("A recurrent network would be compiled again for every length. Leave out torch_compile.")
    for layer in layers:
        layer.compile(dynamic=True, backend=backend, mode=mode)


def has_unread_weights(model: nn.Module) -> bool:
    """Return whether some weights get no gradient in an update.

    These are scores for another iteration of guided routing where there is only one, an embedding of Marian, M2M-100 or
    mBART that nothing reads where none is tied, and layers that LayerDrop leaves out.
    """
    config = getattr(model, "config", None)
    drops_layers = getattr(config, "encoder_layerdrop", 0) > 0 or getattr(config, "decoder_layerdrop", 0) > 0
    shares_embedding = getattr(
        config, "share_encoder_decoder_embeddings", isinstance(config, M2M100Config | MBartConfig)
    )
    has_unread_embedding = shares_embedding and not config.tie_word_embeddings
    is_guided = getattr(config, "guided_routing", None) == "gdr"
    has_unread_scores = is_guided and config.guided_routing_iterations == 1
    return drops_layers or has_unread_embedding or has_unread_scores


def set_added_rate(optimizer: Optimizer, model: nn.Module, rate: float) -> None:
    """Give the weights that a method adds to a plain model groups with a learning rate of their own.

    Raises:
        UserError: if the optimizer has no such weights.
    """
    names = added_weights(model)
    added_ids = {id(weight) for name, weight in model.named_parameters() if name in names}

    groups = []
    has_added = False
    for group in optimizer.param_groups:
        plain = [weight for weight in group["params"] if id(weight) not in added_ids]
        added = [weight for weight in group["params"] if id(weight) in added_ids]
        if plain:
            groups.append({**group, "params": plain})
        if added:
            groups.append({**group, "params": added, "lr": rate})
            has_added = True

    if not has_added:
        raise UserError("added_learning_rate is given, but the optimizer has no added weights. Leave it out.")
    optimizer.param_groups = groups


@contextmanager
def hidden_embeddings(model: nn.Module) -> Iterator[None]:
    """Hide the embeddings of a model from accelerate.

    With FSDP2 it puts those of source and head in a group of their own, but they can be one weight.
    """
    names = ("get_input_embeddings", "get_output_embeddings")
    for name in names:
        setattr(model, name, lambda: None)
    try:
        yield
    finally:
        for name in names:
            delattr(model, name)


@torch.no_grad()
def all_finite(model: nn.Module, device: torch.device) -> torch.Tensor:
    """Return, as a tensor on `device`, whether all weights of a model are finite, or the parts that this process has.

    The weights may be on several devices.
    """
    flags = []
    for weight in model.parameters():
        part = weight.to_local() if hasattr(weight, "to_local") else weight
        flags.append(part.isfinite().all().to(device))
    return torch.stack(flags).all()
