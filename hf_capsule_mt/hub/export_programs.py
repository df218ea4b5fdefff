"""The two programs that a translation model is exported as: its encoder, and a step of its decoder.

Both map tensors by name to tensors by name, so that their user need not know the family. The step reads what
the encoder returns, with every word. Each `present.X` that a step returns is `past_key_values.X` of the next.
"""

from abc import ABC, abstractmethod
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, MarianConfig, PreTrainedModel

from hf_capsule_mt.configuration import CapsNMTConfig, CapsuleAggregatedMarianConfig, RNMTConfig
from hf_capsule_mt.modeling.outputs import CACHE, RecurrentEncoderOutput, RoutedEncoderOutput
from hf_capsule_mt.modeling.recurrent import RecurrentCache

MASK = "encoder_attention_mask"
PAST, PRESENT = "past_key_values.", "present."
Tensors = dict[str, Tensor]


class _Program(nn.Module):
    def __init__(self, family: "Family") -> None:
        super().__init__()
        self.model, self._family = family.model, family


class EncoderProgram(_Program):
    """The encoder, with the states before the first step."""

    def forward(self, tensors: Tensors) -> Tensors:
        """Map `input_ids` and `attention_mask`, `[batch, source]`, to what a step reads besides its word."""
        mask = tensors["attention_mask"]
        read, states = self._family.begin(tensors["input_ids"], mask)
        mask = {MASK: mask.clone()} if self._family.attends else {}
        return {**mask, **read, **_named(PAST, states)}


class StepProgram(_Program):
    """A step of the decoder."""

    def forward(self, tensors: Tensors) -> Tensors:
        """Map `input_ids` `[batch, 1]`, the word before, and what the encoder returned, with the states of the step
        before in place of the first, to `logits` `[batch, vocabulary]` of the next word and to the states after it.
        """
        words, mask = tensors["input_ids"], tensors.get(MASK)
        states = {name.removeprefix(PAST): tensor for name, tensor in tensors.items() if name.startswith(PAST)}
        logits, states = self._family.step(words, mask, tensors, states)
        return {"logits": logits[:, -1], **_named(PRESENT, states)}


class Family(ABC):
    """What a family reads once a sentence, and its states after each word."""

    attends = True
    """Whether a step reads the mask of the source."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    @abstractmethod
    def begin(self, input_ids: Tensor, mask: Tensor) -> tuple[Tensors, Tensors]:
        """Return what a step reads of sources `[batch, source]`, and the states before the first word."""

    @abstractmethod
    def step(self, words: Tensor, mask: Tensor | None, read: Tensors, states: Tensors) -> tuple[Tensor, Tensors]:
        """Return the logits `[batch, 1, vocabulary]` after words `[batch, 1]`, and the states."""


class _Marian(Family):
    """Keys and values of every layer: those of the source, computed once, and those of the words so far."""

    also_read = ("guided_votes", "guided_keys")
    """Fields of the output of the encoder that a step reads, where the model has them."""

    def begin(self, input_ids: Tensor, mask: Tensor) -> tuple[Tensors, Tensors]:
        encoded = self.model.get_encoder()(input_ids, mask, return_dict=True)
        read, states = _present(encoded, self.also_read), {}
        for index, layer in enumerate(self.model.get_decoder().layers):
            source = encoded.last_hidden_state
            for name, projection in (("key", layer.encoder_attn.k_proj), ("value", layer.encoder_attn.v_proj)):
                heads = projection(source).unflatten(-1, (layer.encoder_attn.num_heads, -1)).transpose(1, 2)
                states[f"{index}.encoder.{name}"] = heads
                states[f"{index}.decoder.{name}"] = heads[:, :, :0]
        return read, states

    def step(self, words: Tensor, mask: Tensor | None, read: Tensors, states: Tensors) -> tuple[Tensor, Tensors]:
        own, source = (self._cache(states, side) for side in ("decoder", "encoder"))
        cache = EncoderDecoderCache(own, source)
        # Attention has the keys and values of the source already, and reads only the shape of its states.
        encoded = RoutedEncoderOutput(mask.unsqueeze(-1), **_present(read, self.also_read))
        outputs = self.model(
            attention_mask=mask, decoder_input_ids=words, encoder_outputs=encoded, **{CACHE: cache}, use_cache=True
        )
        after = {
            f"{index}.decoder.{name}": tensor
            for index, layer in enumerate(own.layers)
            for name, tensor in (("key", layer.keys), ("value", layer.values))
        }
        return outputs.logits, after

    def _cache(self, states: Tensors, side: str) -> DynamicCache:
        layers = range(self.model.config.decoder_layers)
        return DynamicCache([(states[f"{index}.{side}.key"], states[f"{index}.{side}.value"]) for index in layers])


class _RNMT(Family):
    """The states of the source, what else the encoder makes of them, and the state of the decoder."""

    also_read = ("attention_keys", "sentence_state", "guided_votes", "guided_keys")

    def begin(self, input_ids: Tensor, mask: Tensor) -> tuple[Tensors, Tensors]:
        encoded = self.model.get_encoder()(input_ids, mask, return_dict=True)
        read = _present(encoded, self.also_read)
        read["encoder_hidden_states"] = encoded.last_hidden_state
        state = self.model.get_decoder().first_state(encoded.last_hidden_state, mask.bool())
        return read, {"0.hidden": state}

    def step(self, words: Tensor, mask: Tensor | None, read: Tensors, states: Tensors) -> tuple[Tensor, Tensors]:
        encoded = RecurrentEncoderOutput(read["encoder_hidden_states"], **_present(read, self.also_read))
        return _recurrent_step(self.model, words, mask, encoded, states, ("hidden",))


class _CapsNMT(Family):
    """The state of the sentence, and those of every layer of the decoder."""

    attends = False
    state = ("hidden", "cell")

    def begin(self, input_ids: Tensor, mask: Tensor) -> tuple[Tensors, Tensors]:
        sentence = self.model.get_encoder()(input_ids, mask, return_dict=True).sentence_state
        layers = range(self.model.config.decoder_layers)
        states = {f"{layer}.{name}": torch.zeros_like(sentence) for layer in layers for name in self.state}
        return {"sentence_state": sentence}, states

    def step(self, words: Tensor, mask: Tensor | None, read: Tensors, states: Tensors) -> tuple[Tensor, Tensors]:
        # The decoder reads only the state of the sentence.
        encoded = RecurrentEncoderOutput(read["sentence_state"], sentence_state=read["sentence_state"])
        return _recurrent_step(self.model, words, mask, encoded, states, self.state)


_FAMILIES: dict[str, type[Family]] = {
    MarianConfig.model_type: _Marian,
    CapsuleAggregatedMarianConfig.model_type: _Marian,
    RNMTConfig.model_type: _RNMT,
    CapsNMTConfig.model_type: _CapsNMT,
}


def family_of(model: PreTrainedModel) -> Family:
    """Return the family of a translation model. Raise a ValueError if it cannot be exported."""
    check_family(type(model).__name__, model.config.model_type)
    return _FAMILIES[model.config.model_type](model)


def check_family(name: str | Path, model_type: str) -> None:
    """Raise a ValueError that names a model if those of its type are not exported here."""
    if model_type not in _FAMILIES:
        raise ValueError(f"{name} is of type {model_type}. Only models of this package and Marian's can be exported.")


def _recurrent_step(
    model: PreTrainedModel,
    words: Tensor,
    mask: Tensor | None,
    encoded: RecurrentEncoderOutput,
    states: Tensors,
    names: tuple[str, ...],
) -> tuple[Tensor, Tensors]:
    cache = RecurrentCache(len(states) // len(names))
    for layer in range(len(cache.states)):
        cache.states[layer] = tuple(states[f"{layer}.{name}"] for name in names)
    options = {"encoder_outputs": encoded, "use_cache": True, **{CACHE: cache}}
    logits = model(attention_mask=mask, decoder_input_ids=words, **options).logits
    after = {
        f"{layer}.{name}": tensor for layer, state in enumerate(cache.states) for name, tensor in zip(names, state)
    }
    return logits, after


def _present(tensors: Tensors, names: tuple[str, ...]) -> Tensors:
    return {name: tensors[name] for name in names if tensors.get(name) is not None}


def _named(prefix: str, tensors: Tensors) -> Tensors:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}
