"""The two programs of a translation model: its encoder, and a step of its decoder.

Both map tensors by name to tensors by name, so that their user need not know the family. The names are those of
optimum and transformers.js. Each `present.X` that a step returns is `past_key_values.X` of the next.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    M2M100Config,
    MarianConfig,
    MBartConfig,
    MT5Config,
    PreTrainedModel,
    T5Config,
)
from transformers.utils import ModelOutput

from hf_capsule_mt.configuration import (
    CapsNMTConfig,
    CapsuleAggregatedM2M100Config,
    CapsuleAggregatedMarianConfig,
    RNMTConfig,
)
from hf_capsule_mt.modeling.outputs import RecurrentEncoderOutput, RoutedEncoderOutput
from hf_capsule_mt.modeling.recurrent import RecurrentCache
from hf_capsule_mt.modeling.transformers_versions import CACHE

Tensors = dict[str, Tensor]
Program = Callable[[Tensors], Tensors]

MASK = "encoder_attention_mask"
"""What a step calls the mask of the source."""
PAST = "past_key_values."
"""Begins the names of the states that a step reads."""
_NAMES = {"last_hidden_state": "encoder_hidden_states"}
"""What a step calls fields of the encoder's output, if it has another name for them."""
_PRESENT = "present."
"""Begins the names of the states that a step returns."""


class StepInputs(NamedTuple):
    """What a step reads."""

    tokens: Tensor
    """The tokens before, `[batch, length]`: all that have no states yet."""
    encoded: Tensors
    """Fields of the encoder's output."""
    mask: Tensor | None
    """`[batch, source]`, 0 for padding. None if the family does not read it."""
    states: Tensors
    """The states before the step, by name."""


class Family(ABC):
    """What a family reads once a sentence, and its states after each word."""

    reads: ClassVar[tuple[str, ...]]
    """Fields of the encoder's output that a step reads, where the model has them."""
    attends: ClassVar[bool] = True
    """Whether a step reads the mask of the source."""
    tokens_at_once: ClassVar[int] = 1
    """How many tokens the first step can read. The others read one."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    @abstractmethod
    def begin(self, encoded: ModelOutput, mask: Tensor) -> Tensors:
        """Return the states before the first token that the encoder's program computes, by name.

        Args:
            encoded: the encoder's output.
            mask: `[batch, source]`, 0 for padding.
        """

    def empty_states(self, batch_size: int) -> Tensors:
        """Return the other states before the first token, by name. They are of no tokens."""
        return {}

    @abstractmethod
    def step(self, inputs: StepInputs) -> tuple[Tensor, Tensors]:
        """Return the logits of the next tokens, `[batch, length, vocabulary]`, and the states after them, by name."""

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


class _Transformer(Family):
    """Keys and values of every layer: those of the source, and those of the words so far.

    The encoder's program computes those of the source.
    """

    reads = ("guided_votes", "guided_keys")

    def begin(self, encoded: ModelOutput, mask: Tensor) -> Tensors:
        # Not by len(), which would fix the size of the batch.
        states = self.empty_states(encoded.last_hidden_state.shape[0])
        # What each layer reads, if they do not read the same.
        of_layers = encoded.get("source_states")
        hidden_states = encoded.last_hidden_state if of_layers is None else of_layers
        return {**states, **self._with_source(states, hidden_states)}

    def empty_states(self, batch_size: int) -> Tensors:
        states = {}
        for index, (keys, _) in enumerate(self._source_projections()):
            empty = keys.weight.new_zeros(batch_size, self._num_heads, 0, keys.out_features // self._num_heads)
            # optimum knows them by this order.
            for side in ("decoder", "encoder"):
                for name in ("key", "value"):
                    states[f"{index}.{side}.{name}"] = empty.clone()
        return states

    def step(self, inputs: StepInputs) -> tuple[Tensor, Tensors]:
        target_cache = self._cache(inputs.states, "decoder")
        cache = EncoderDecoderCache(target_cache, self._cache(inputs.states, "encoder"))

        # Attention has the keys and values of the source already, and reads only the shape of its states.
        source = inputs.mask.unsqueeze(-1)
        of_layers = source.unsqueeze(1).expand(-1, len(self._source_projections()), -1, -1)
        encoder_outputs = RoutedEncoderOutput(source, source_states=of_layers, **inputs.encoded)

        logits = self._logits(inputs, encoder_outputs, cache)
        new_states = {}
        for index, layer in enumerate(target_cache.layers):
            new_states[f"{index}.decoder.key"] = layer.keys
            new_states[f"{index}.decoder.value"] = layer.values
        return logits, new_states

    @property
    def _num_heads(self) -> int:
        """The heads of a layer of the decoder."""
        return self.model.config.decoder_attention_heads

    def _source_projections(self) -> list[tuple[nn.Linear, nn.Linear]]:
        """Return the projections that make keys and values of the source, for every layer."""
        return [(layer.encoder_attn.k_proj, layer.encoder_attn.v_proj) for layer in self.model.get_decoder().layers]

    def _with_source(self, states: Tensors, hidden_states: Tensor) -> Tensors:
        """Return the keys and values of the source, after those of the states that are given.

        Args:
            states: the states before, by name.
            hidden_states: those of the encoder for the tokens that have no keys yet, `[batch, length, d]`, or
                `[batch, layers, length, d]` if each layer reads others.
        """
        of_source = {}
        for index, projections in enumerate(self._source_projections()):
            of_layer = hidden_states if hidden_states.dim() == 3 else hidden_states[:, index]
            for name, projection in zip(("key", "value"), projections):
                by_head = projection(of_layer).unflatten(-1, (self._num_heads, -1))
                known = states[f"{index}.encoder.{name}"]
                # `[batch, heads, source, d / heads]`.
                of_source[f"{index}.encoder.{name}"] = torch.cat([known, by_head.transpose(1, 2)], dim=2)
        return of_source

    def _cache(self, states: Tensors, side: str) -> DynamicCache:
        """Return the keys and values of the "decoder" or the "encoder"."""
        layers = []
        for index in range(len(self._source_projections())):
            keys = states[f"{index}.{side}.key"]
            values = states[f"{index}.{side}.value"]
            layers.append((keys, values))
        return DynamicCache(layers)


class _T5(_Transformer):
    """T5 and mT5, whose modules have other names."""

    @property
    def _num_heads(self) -> int:
        return self.model.config.num_heads

    def _source_projections(self) -> list[tuple[nn.Linear, nn.Linear]]:
        attentions = [block.layer[1].EncDecAttention for block in self.model.get_decoder().block]
        return [(attention.k, attention.v) for attention in attentions]


class _MergedTransformer(_Transformer):
    """The same, but the step itself computes keys and values of the source: those that its states do not have yet.

    So one program makes the first step and the others. This is how optimum and transformers.js decode. They choose
    between two branches. Here the projections of later steps get no tokens. torch.export cannot do it: it wants to
    know whether a length is 0.
    """

    reads = ("last_hidden_state", "source_states", "guided_votes", "guided_keys")
    tokens_at_once = 2

    def begin(self, encoded: ModelOutput, mask: Tensor) -> Tensors:
        return {}

    def step(self, inputs: StepInputs) -> tuple[Tensor, Tensors]:
        encoded = dict(inputs.encoded)
        hidden_states = encoded.pop("last_hidden_state")
        # What each layer reads, if they do not read the same.
        hidden_states = encoded.pop("source_states", hidden_states)

        num_known = inputs.states["0.encoder.key"].shape[2]
        of_source = self._with_source(inputs.states, hidden_states[..., num_known:, :])
        logits, of_target = super().step(inputs._replace(encoded=encoded, states={**inputs.states, **of_source}))

        new_states = {}
        # In the order of the inputs.
        for name in inputs.states:
            new_states[name] = of_source[name] if name in of_source else of_target[name]
        return logits, new_states


class _MergedT5(_MergedTransformer, _T5):
    """The same of T5 and mT5."""


class _RNMT(Family):
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


FAMILIES: dict[str, type[Family]] = {
    MarianConfig.model_type: _Transformer,
    CapsuleAggregatedMarianConfig.model_type: _Transformer,
    M2M100Config.model_type: _Transformer,
    CapsuleAggregatedM2M100Config.model_type: _Transformer,
    MBartConfig.model_type: _Transformer,
    T5Config.model_type: _T5,
    MT5Config.model_type: _T5,
    RNMTConfig.model_type: _RNMT,
    CapsNMTConfig.model_type: _CapsNMT,
}
"""By the type of the model."""

_MERGED: dict[type[Family], type[Family]] = {_Transformer: _MergedTransformer, _T5: _MergedT5}
"""Families whose step can compute keys and values of the source."""


def family_of(model: PreTrainedModel, merged: bool = True) -> Family:
    """Return the family of a model.

    Args:
        model: the model.
        merged: whether a step computes keys and values of the source when it has none. Otherwise the encoder does.
    """
    family = FAMILIES[model.config.model_type]
    if merged:
        family = _MERGED.get(family, family)
    return family(model)


class _Program(nn.Module):
    def __init__(self, family: Family) -> None:
        super().__init__()
        self.model = family.model
        self.family = family


class EncoderProgram(_Program):
    """The encoder, with the states before the first step that a step cannot compute."""

    def forward(self, tensors: Tensors) -> Tensors:
        """Map `input_ids` and `attention_mask`, `[batch, source]`, to what a step reads of the source."""
        mask = tensors["attention_mask"]
        encoded = self.model.get_encoder()(tensors["input_ids"], mask, return_dict=True)
        outputs = {}
        for field in self.family.reads:
            if encoded.get(field) is not None:
                outputs[field] = encoded[field]
        for name, state in self.family.begin(encoded, mask).items():
            outputs[f"{PAST}{name}"] = state
        return outputs


class StepProgram(_Program):
    """A step of the decoder."""

    def forward(self, tensors: Tensors) -> Tensors:
        """Map the tokens before, and the states before them, to the logits of the next tokens and their states.

        Args:
            tensors: `input_ids` `[batch, length]`, and what [`begin`] returns. From the second step on the states of
                the step before replace the first ones.

        Returns:
            `logits` `[batch, length, vocabulary]`, and the states that have changed.
        """
        encoded = {}
        for field in self.family.reads:
            name = _NAMES.get(field, field)
            if name in tensors:
                encoded[field] = tensors[name]

        states = {}
        for name, tensor in tensors.items():
            if name.startswith(PAST):
                states[name.removeprefix(PAST)] = tensor

        inputs = StepInputs(tensors["input_ids"], encoded, tensors.get(MASK), states)
        logits, new_states = self.family.step(inputs)

        outputs = {"logits": logits}
        for name, state in new_states.items():
            outputs[f"{_PRESENT}{name}"] = state
        return outputs

    def begin(self, source: Tensors, encoded: Tensors) -> Tensors:
        """Return what the first step reads besides its tokens.

        Args:
            source: the input of the encoder's program.
            encoded: its output.
        """
        inputs = {}
        if self.family.attends:
            inputs[MASK] = source["attention_mask"]
        for name, tensor in encoded.items():
            inputs[_NAMES.get(name, name)] = tensor
        for name, state in self.family.empty_states(len(source["input_ids"])).items():
            # Where the encoder's program has computed them, they are not empty.
            inputs.setdefault(f"{PAST}{name}", state)
        return inputs


def run_steps(
    encoder: Program,
    step: Program,
    source: Tensors,
    tokens: Sequence[Tensor],
    begin: Callable[[Tensors, Tensors], Tensors],
) -> list[Tensors]:
    """Run a translation whose tokens are given.

    Args:
        encoder: the program of the encoder.
        step: the program of a step.
        source: the input of the encoder.
        tokens: what each step reads, `[batch, length]`.
        begin: [`StepProgram.begin`] of the model.

    Returns:
        The outputs of the encoder, and of each step.
    """
    encoded = encoder(source)
    outputs = [encoded]
    step_input = begin(source, encoded)
    for step_tokens in tokens:
        output = step({"input_ids": step_tokens, **step_input})
        outputs.append(output)
        step_input.update(next_states(output))
    return outputs


def next_states(outputs: Tensors) -> Tensors:
    """Return the states that a step returned, by the names that the next one reads."""
    states = {}
    for name, tensor in outputs.items():
        if name.startswith(_PRESENT):
            states[name.replace(_PRESENT, PAST)] = tensor
    return states
