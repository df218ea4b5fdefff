"""Export of translation models to programs that run without this package: in ONNX Runtime, or by `torch.export`.

A model becomes two programs: its encoder, and a step of its decoder. Both map tensors by name to tensors by name, so
that their user need not know the family. The step reads what the encoder returns, with every word. Each `present.X`
that a step returns is `past_key_values.X` of the next.
"""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, MarianConfig, PreTrainedModel
from transformers.utils import CONFIG_NAME, ModelOutput

from hf_capsule_mt.configuration import CapsNMTConfig, CapsuleAggregatedMarianConfig, RNMTConfig
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import check_empty, new_folder, write_json
from hf_capsule_mt.loading import commit_of, load_config, load_model, load_tokenizer
from hf_capsule_mt.modeling.outputs import RecurrentEncoderOutput, RoutedEncoderOutput
from hf_capsule_mt.modeling.recurrent import RecurrentCache
from hf_capsule_mt.modeling.transformers_versions import CACHE

Tensors = dict[str, Tensor]
Program = Callable[[Tensors], Tensors]

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
"""Endings of the files, by format."""
TOLERANCE = 1e-4
"""Largest difference of a number, absolute, and relative where it is above 1."""
# Lengths of the sentences of batches unlike the one that is exported. In the last, nothing is padding.
_BATCHES = ((9, 2, 4), (3,), (6, 1, 12, 6, 5), (7, 7))
_MASK = "encoder_attention_mask"
_NAMES = {"last_hidden_state": "encoder_hidden_states"}
_PAST, _PRESENT = "past_key_values.", "present."


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


class _Family:
    """What a family reads once a sentence, and its states after each word.

    `begin` returns the states before the first token, and others that never change. `step` returns the logits of the
    next token, `[batch, 1, vocabulary]`, and the states after the step.
    """

    reads: tuple[str, ...]
    """Fields of the encoder's output that a step reads, where the model has them."""
    attends = True
    """Whether a step reads the mask of the source."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

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
        for index, layer in enumerate(self.model.get_decoder().layers):
            attention = layer.encoder_attn
            for name, projection in (("key", attention.k_proj), ("value", attention.v_proj)):
                projected = projection(encoded.last_hidden_state)
                heads = projected.unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
                states[f"{index}.encoder.{name}"] = heads
                # Those of no tokens yet.
                states[f"{index}.decoder.{name}"] = heads[:, :, :0]
        return states

    def step(self, inputs: StepInputs) -> tuple[Tensor, Tensors]:
        target_cache = self._cache(inputs.states, "decoder")
        cache = EncoderDecoderCache(target_cache, self._cache(inputs.states, "encoder"))
        # Attention has the keys and values of the source already, and reads only the shape of its states.
        encoder_outputs = RoutedEncoderOutput(inputs.mask.unsqueeze(-1), **inputs.encoded)
        logits = self._logits(inputs, encoder_outputs, cache)
        new_states = {}
        for index, layer in enumerate(target_cache.layers):
            new_states[f"{index}.decoder.key"] = layer.keys
            new_states[f"{index}.decoder.value"] = layer.values
        return logits, new_states

    def _cache(self, states: Tensors, side: str) -> DynamicCache:
        """Return the keys and values of the "decoder" or the "encoder"."""
        layers = range(self.model.config.decoder_layers)
        return DynamicCache([(states[f"{index}.{side}.key"], states[f"{index}.{side}.value"]) for index in layers])


class _RNMT(_Family):
    """What the encoder makes of the source, and the state of the decoder."""

    reads = ("last_hidden_state", "attention_keys", "sentence_state", "guided_votes", "guided_keys")
    names = ("hidden",)
    """Names of the states of a layer."""

    def begin(self, encoded: ModelOutput, mask: Tensor) -> Tensors:
        return {"0.hidden": self.model.get_decoder().first_state(encoded.last_hidden_state, mask.bool())}

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


_FAMILIES: dict[str, type[_Family]] = {
    MarianConfig.model_type: _Marian,
    CapsuleAggregatedMarianConfig.model_type: _Marian,
    RNMTConfig.model_type: _RNMT,
    CapsNMTConfig.model_type: _CapsNMT,
}


class _Program(nn.Module):
    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self._family = _FAMILIES[model.config.model_type](model)


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
        """Map `input_ids` `[batch, 1]`, the word before, and what the encoder returned, with the states of the step
        before in place of the first, to `logits` `[batch, vocabulary]` of the next word and to the states after it.
        """
        encoded = {}
        for field in self._family.reads:
            name = _NAMES.get(field, field)
            if name in tensors:
                encoded[field] = tensors[name]
        states = {name.removeprefix(_PAST): tensor for name, tensor in tensors.items() if name.startswith(_PAST)}
        inputs = StepInputs(tensors["input_ids"], encoded, tensors.get(_MASK), states)
        logits, new_states = self._family.step(inputs)
        outputs = {"logits": logits[:, -1]}
        for name, state in new_states.items():
            outputs[f"{_PRESENT}{name}"] = state
        return outputs


def export_checkpoint(
    checkpoint: str | Path, output_dir: Path, file_format: str = "onnx", revision: str = "main"
) -> float:
    """Write `encoder` and `step` of a checkpoint, in float32, with its tokenizer and configuration.

    The programs are read again, and compared with the model for batches of other sizes and lengths, over several steps.
    Only then does `output_dir` appear.

    Args:
        checkpoint: a folder or a model of the Hub.
        output_dir: a folder that is new or empty.
        file_format: "onnx", or "torch" for files of `torch.export`.
        revision: branch, tag or commit of a model of the Hub.

    Returns:
        The largest difference of a number from the model's, absolute, and relative where it is above 1.

    Raises:
        UserError: if the checkpoint is of another family, or the programs differ from the model.
        OSError: if there is no such checkpoint, or the folder has files in it.
    """
    check_empty(output_dir)
    if file_format == "onnx":
        import onnxruntime  # noqa: F401  The work takes minutes, so what is missing must be found first.
        import onnxscript  # noqa: F401
    revision = commit_of(checkpoint, revision)
    kind = load_config(checkpoint, revision).model_type
    if kind not in _FAMILIES:
        raise UserError(f"{checkpoint} is of type {kind}. Only models of this package and Marian's can be exported.")
    model = load_model(checkpoint, revision=revision, dtype="float32").eval()
    encoder = EncoderProgram(model)
    step = StepProgram(model)
    with new_folder(output_dir) as folder, torch.no_grad():
        source = example_source(model)
        tokens = source["input_ids"][:, :3]
        encoded, *steps = run_steps(encoder, step, source, tokens)
        # After some steps no length is 0 or 1, which exporters would take as fixed.
        step_input = {"input_ids": tokens[:, -1:], **encoded, **_next_states(steps[-1])}
        encoder_file = folder / f"encoder{SUFFIXES[file_format]}"
        step_file = folder / f"step{SUFFIXES[file_format]}"
        write_program(encoder, source, encoder_file)
        write_program(step, step_input, step_file)
        difference = check_numbers(model, (encoder, step), (read_program(encoder_file), read_program(step_file)))
        # A saved configuration of this package would bring its source.
        write_json(folder / CONFIG_NAME, model.config.to_diff_dict())
        model.generation_config.save_pretrained(folder)
        load_tokenizer(checkpoint, revision).save_pretrained(folder)
    return difference


def write_program(program: nn.Module, example: Tensors, path: Path) -> None:
    """Write a program with batch and lengths of any size to `path`, in the format of its ending.

    In the `example` of its input no size that may change is below 2, because exporters take such sizes as fixed.
    """
    with torch.no_grad(), _quiet():
        if path.suffix == SUFFIXES["torch"]:
            dynamic = torch.export.Dim.DYNAMIC
            axes = {name: dict.fromkeys(_axes(name, tensor), dynamic) for name, tensor in example.items()}
            torch.export.save(torch.export.export(program, (example,), dynamic_shapes=(axes,)), path)
        else:
            torch.onnx.export(
                program,
                kwargs={"tensors": example},
                f=path,
                input_names=list(example),
                output_names=list(program(example)),
                dynamic_shapes={"tensors": {name: _axes(name, tensor) for name, tensor in example.items()}},
                dynamo=True,
                verbose=False,
            )


def read_program(path: Path) -> Program:
    """Return the program in a file, in the format of its ending."""
    if path.suffix == SUFFIXES["torch"]:
        with _quiet():
            return torch.export.load(path).module()
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(tensors: Tensors) -> Tensors:
        outputs = session.run(names, {name: tensor.numpy() for name, tensor in tensors.items()})
        return dict(zip(names, map(torch.from_numpy, outputs)))

    return run


def _axes(name: str, tensor: Tensor) -> dict[int, str]:
    """Return the axes of a program's input that may have another size, with their names."""
    length = "words" if ".decoder." in name else "source"
    if tensor.dim() > 2:
        return {0: "batch", tensor.dim() - 2: length}
    has_length = name.endswith(("input_ids", "attention_mask")) and tensor.shape[1] > 1
    return {0: "batch", 1: length} if has_length else {0: "batch"}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters."""
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        warnings.simplefilter("ignore")
        level = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(level)


def example_source(model: PreTrainedModel, lengths: tuple[int, ...] = (5, 3)) -> Tensors:
    """Return the encoder's input for sentences of random token ids."""
    shape = len(lengths), max(lengths)
    # The decoder reads them too.
    size = min(stack.embed_tokens.num_embeddings for stack in (model.get_encoder(), model.get_decoder()))
    tokens = torch.randint(size, shape, generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(shape[1]) < torch.tensor(lengths).unsqueeze(1)).long()
    return {"input_ids": tokens.masked_fill(mask == 0, model.config.pad_token_id), "attention_mask": mask}


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
        step_input.update(_next_states(output))
    return outputs


def _next_states(outputs: Tensors) -> Tensors:
    return {name.replace(_PRESENT, _PAST): tensor for name, tensor in outputs.items() if name.startswith(_PRESENT)}


def check_numbers(
    model: PreTrainedModel, original: tuple[Program, Program], exported: tuple[Program, Program]
) -> float:
    """Return the largest difference of exported programs from the model's own encoder and step, over several batches.

    Raises:
        UserError: if a number differs by more than [`TOLERANCE`].
    """
    largest = 0.0
    for lengths in _BATCHES:
        source = example_source(model, lengths)
        tokens = source["input_ids"].flip(1)
        original_outputs = run_steps(*original, source, tokens)
        exported_outputs = run_steps(*exported, source, tokens)
        for expected, outputs in zip(original_outputs, exported_outputs):
            for name, tensor in expected.items():
                worst = _largest_difference(outputs[name], tensor)
                # A difference that is no number is refused too.
                if not worst <= TOLERANCE:
                    raise UserError(f"{name} of the exported program differs by {worst:.1e} from the model's.")
                largest = max(largest, worst)
    return largest


def _largest_difference(tensor: Tensor, expected: Tensor) -> float:
    """Return the largest difference of a number, relative where it is above 1."""
    # Keys and values of no tokens are empty.
    if not expected.numel():
        return 0.0
    difference = (tensor - expected).abs() / expected.abs().clamp(min=1)
    return difference.double().amax().item()
