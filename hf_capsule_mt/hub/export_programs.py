"""The two programs of a translation model: its encoder, and a step of its decoder.

Both map tensors by name to tensors by name, so that their user need not know the family. The step reads what the
encoder returns, with every word. Each `present.X` that a step returns is `past_key_values.X` of the next.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, MarianConfig, PreTrainedModel
from transformers.utils import ModelOutput

from hf_capsule_mt.configuration import CapsNMTConfig, CapsuleAggregatedMarianConfig, RNMTConfig
from hf_capsule_mt.modeling.outputs import RecurrentEncoderOutput, RoutedEncoderOutput
from hf_capsule_mt.modeling.recurrent import RecurrentCache
from hf_capsule_mt.modeling.transformers_versions import CACHE

Tensors = dict[str, Tensor]
Program = Callable[[Tensors], Tensors]

_MASK = "encoder_attention_mask"
_NAMES = {"last_hidden_state": "encoder_hidden_states"}
"""Names in programs of fields that the encoder's output calls otherwise."""
_PAST = "past_key_values."
"""Begins the names of the states that a step reads."""
_PRESENT = "present."
"""Begins the names of the states that a step returns."""


class StepInputs(NamedTuple):
    """What a step reads."""

    tokens: Tensor
    """The token before, `[batch, 1]`."""
    encoded: Tensors
    """Fields of the encoder's output."""
    mask: Tensor | None
    """`[batch, source]`, 0 for padding. None if the family does not read it."""
    states: Tensors
    """The states before the step, by name."""


class _Family(ABC):
    """What a family reads once a sentence, and its states after each word."""

    reads: tuple[str, ...]
    """Fields of the encoder's output that a step reads, where the model has them."""
    attends = True
    """Whether a step reads the mask of the source."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    @abstractmethod
    def begin(self, encoded: ModelOutput, mask: Tensor) -> Tensors:
        """Return the states before the first token, by name, those that never change included.

        Args:
            encoded: the encoder's output.
            mask: `[batch, source]`, 0 for padding.
        """

    @abstractmethod
    def step(self, inputs: StepInputs) -> tuple[Tensor, Tensors]:
        """Return the logits of the next token, `[batch, 1, vocabulary]`, and the states that have changed, by name."""

    def _logits(self, inputs: StepInputs, encoder_outputs: ModelOutput, cache: Any) -> Tensor:
        """Run the decoder on a step, which changes the cache."""
        output = self.model(
            attention_mask=inputs.mask,
            decoder_input_ids=inputs.tokens,
            encoder_outputs=encoder_outputs,
            use_cache=True,
            **{CACHE: cache},
        )
        return output.logits


class _Marian(_Family):
    """Keys and values of every layer: those of the source, computed once, and those of the words so far."""

    reads = ("guided_votes", "guided_keys")

    def begin(self, encoded: ModelOutput, mask: Tensor) -> Tensors:
        states = {}
        # What each layer reads, if they do not read the same. Transformers' Marian lacks it.
        of_layers = getattr(encoded, "source_states", None)
        for index, layer in enumerate(self.model.get_decoder().layers):
            attention = layer.encoder_attn
            for name, projection in (("key", attention.k_proj), ("value", attention.v_proj)):
                projected = projection(encoded.last_hidden_state if of_layers is None else of_layers[:, index])
                by_head = projected.unflatten(-1, (attention.num_heads, -1))
                # `[batch, heads, source, d / heads]`.
                of_source = by_head.transpose(1, 2)
                states[f"{index}.encoder.{name}"] = of_source
                # Those of no tokens yet.
                states[f"{index}.decoder.{name}"] = of_source[:, :, :0]
        return states

    def step(self, inputs: StepInputs) -> tuple[Tensor, Tensors]:
        target_cache = self._cache(inputs.states, "decoder")
        cache = EncoderDecoderCache(target_cache, self._cache(inputs.states, "encoder"))
        # Attention has the keys and values of the source already, and reads only the shape of its states.
        source = inputs.mask.unsqueeze(-1)
        of_layers = source.unsqueeze(1).expand(-1, self.model.config.decoder_layers, -1, -1)
        encoder_outputs = RoutedEncoderOutput(source, source_states=of_layers, **inputs.encoded)
        logits = self._logits(inputs, encoder_outputs, cache)
        new_states = {}
        for index, layer in enumerate(target_cache.layers):
            new_states[f"{index}.decoder.key"] = layer.keys
            new_states[f"{index}.decoder.value"] = layer.values
        return logits, new_states

    def _cache(self, states: Tensors, side: str) -> DynamicCache:
        """Return the keys and values of the "decoder" or the "encoder"."""
        layers = []
        for index in range(self.model.config.decoder_layers):
            keys = states[f"{index}.{side}.key"]
            values = states[f"{index}.{side}.value"]
            layers.append((keys, values))
        return DynamicCache(layers)


class _RNMT(_Family):
    """What the encoder makes of the source, and the state of the decoder."""

    reads = ("last_hidden_state", "attention_keys", "sentence_state", "guided_votes", "guided_keys")
    names = ("hidden",)
    """Names of the states of a layer."""

    def begin(self, encoded: ModelOutput, mask: Tensor) -> Tensors:
        decoder = self.model.get_decoder()
        return {"0.hidden": decoder.first_state(encoded.last_hidden_state, mask.bool())}

    def step(self, inputs: StepInputs) -> tuple[Tensor, Tensors]:
        num_layers = len(inputs.states) // len(self.names)
        cache = RecurrentCache(num_layers)
        for index in range(num_layers):
            cache.states[index] = tuple(inputs.states[f"{index}.{name}"] for name in self.names)
        logits = self._logits(inputs, RecurrentEncoderOutput(**inputs.encoded), cache)
        new_states = {}
        for index, layer_states in enumerate(cache.states):
            for name, state in zip(self.names, layer_states):
                new_states[f"{index}.{name}"] = state
        return logits, new_states


class _CapsNMT(_RNMT):
    """The state of the sentence, and those of every layer of the decoder."""

    reads = ("sentence_state",)
    attends = False
    names = ("hidden", "cell")

    def begin(self, encoded: ModelOutput, mask: Tensor) -> Tensors:
        states = {}
        for index in range(self.model.config.decoder_layers):
            for name in self.names:
                states[f"{index}.{name}"] = torch.zeros_like(encoded.sentence_state)
        return states

    def step(self, inputs: StepInputs) -> tuple[Tensor, Tensors]:
        # The decoder reads only the state of the sentence, but the output of an encoder must have hidden states.
        encoded = {"last_hidden_state": inputs.encoded["sentence_state"], **inputs.encoded}
        return super().step(inputs._replace(encoded=encoded))


FAMILIES: dict[str, type[_Family]] = {
    MarianConfig.model_type: _Marian,
    CapsuleAggregatedMarianConfig.model_type: _Marian,
    RNMTConfig.model_type: _RNMT,
    CapsNMTConfig.model_type: _CapsNMT,
}
"""By the type of the model."""


class _Program(nn.Module):
    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self._family = FAMILIES[model.config.model_type](model)


class EncoderProgram(_Program):
    """The encoder, with the states before the first step."""

    def forward(self, tensors: Tensors) -> Tensors:
        """Map `input_ids` and `attention_mask`, `[batch, source]`, to what a step reads besides its word."""
        mask = tensors["attention_mask"]
        encoded = self.model.get_encoder()(tensors["input_ids"], mask, return_dict=True)
        outputs = {}
        if self._family.attends:
            # An output of a program must not be its input.
            outputs[_MASK] = mask.clone()
        for field in self._family.reads:
            if encoded.get(field) is not None:
                outputs[_NAMES.get(field, field)] = encoded[field]
        for name, state in self._family.begin(encoded, mask).items():
            outputs[f"{_PAST}{name}"] = state
        return outputs


class StepProgram(_Program):
    """A step of the decoder."""

    def forward(self, tensors: Tensors) -> Tensors:
        """Map the word before, and the states after it, to the logits of the next word and the states after that.

        Args:
            tensors: `input_ids` `[batch, 1]`, and what the encoder returned. From the second step on the states of the
                step before replace the first ones.

        Returns:
            `logits` `[batch, vocabulary]`, and the states that have changed.
        """
        encoded = {}
        for field in self._family.reads:
            name = _NAMES.get(field, field)
            if name in tensors:
                encoded[field] = tensors[name]
        states = {}
        for name, tensor in tensors.items():
            if name.startswith(_PAST):
                states[name.removeprefix(_PAST)] = tensor
        inputs = StepInputs(tensors["input_ids"], encoded, tensors.get(_MASK), states)
        logits, new_states = self._family.step(inputs)
        outputs = {"logits": logits[:, -1]}
        for name, state in new_states.items():
            outputs[f"{_PRESENT}{name}"] = state
        return outputs


def run_steps(encoder: Program, step: Program, source: Tensors, tokens: Tensor) -> list[Tensors]:
    """Run a translation whose tokens are given.

    Args:
        encoder: the program of the encoder.
        step: the program of a step.
        source: the input of the encoder.
        tokens: the token before each step, `[batch, steps]`.

    Returns:
        The outputs of the encoder, and of each step.
    """
    encoded = encoder(source)
    outputs = [encoded]
    step_input = dict(encoded)
    for token in tokens.split(1, dim=1):
        output = step({"input_ids": token, **step_input})
        outputs.append(output)
        step_input.update(next_states(output))
    return outputs


def next_states(outputs: Tensors) -> Tensors:
    """Return the states that a step returned, by the names that the next one reads."""
    states = {}
    for name, tensor in outputs.items():
        if name.startswith(_PRESENT):
            states[name.replace(_PRESENT, _PAST)] = tensor
    return states
