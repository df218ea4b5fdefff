"""Export of translation models to programs that run without this package: in ONNX Runtime, or by `torch.export`.

export_programs.py has the programs. Here they are written, read again, and compared with the model.
"""

import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import CONFIG_NAME

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import check_empty, new_folder, write_json
from hf_capsule_mt.loading import commit_of, load_config, load_model, load_tokenizer

from .export_programs import (
    FAMILIES,
    MASK,
    PAST,
    EncoderProgram,
    Program,
    StepProgram,
    Tensors,
    family_of,
    next_states,
    run_steps,
)

PROGRAMS = {
    "onnx": ("onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx"),
    "torch": ("encoder.pt2", "step.pt2"),
}
"""The files of encoder and step in the exported folder, by format. Those of ONNX are where optimum and transformers.js
look for them."""
DTYPES = ("float32", "int8")
"""Precisions of ONNX files."""
TOLERANCE = 1e-4
"""Largest difference of a number, in units of the largest number of its tensor if that is above 1."""
# The ending that transformers.js knows. It calls this precision q8.
_INT8 = "_quantized"
# Bytes of weights. Protocol buffers end at 2 GiB. The weights of larger programs stand in a file of their own.
_LARGEST_FILE = 2_000_000_000
# Lengths of the sentences of batches unlike the one that is exported. In the last, nothing is padding.
_BATCHES = ((9, 2, 4), (3,), (6, 1, 12, 6, 5), (7, 7))


class Comparison(NamedTuple):
    """How exported programs differ from their model."""

    difference: float
    """The largest of a number in float32, in units of the largest number of its tensor if that is above 1."""
    same_tokens: float | None
    """The share of steps after which int8 finds the same next token best. None without int8."""


def export_checkpoint(
    checkpoint: str | Path,
    output_dir: Path,
    file_format: str = "onnx",
    revision: str = "main",
    dtypes: Sequence[str] = ("float32",),
) -> Comparison:
    """Write encoder and step of a checkpoint, with its tokenizer and configuration.

    The programs are read again, and compared with the model for batches of other sizes and lengths, over several steps.
    Only then does `output_dir` appear.

    Args:
        checkpoint: a folder or a model of the Hub.
        output_dir: a folder that is new or empty.
        file_format: "onnx", or "torch" for files of `torch.export`.
        revision: branch, tag or commit of a model of the Hub.
        dtypes: "float32", "int8" or both. int8 is only for ONNX.

    Returns:
        How the programs differ from the model.

    Raises:
        UserError: if the checkpoint is of a family that cannot be exported, the format has no int8, or the programs
            differ from the model.
        OSError: if there is no such checkpoint, or the folder has files in it.
    """
    check_empty(output_dir)
    if file_format == "onnx":
        import onnx_ir  # noqa: F401  The work takes minutes, so what is missing must be found first.
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    elif "int8" in dtypes:
        raise UserError("torch.export writes no int8. Leave out --dtype int8, or give --format onnx.")

    revision = commit_of(checkpoint, revision)
    _check_family(checkpoint, load_config(checkpoint, revision).model_type)
    model = load_model(checkpoint, revision=revision, dtype="float32").eval()
    family = family_of(model, merged=file_format == "onnx")
    original = (EncoderProgram(family), StepProgram(family))

    with new_folder(output_dir) as folder, tempfile.TemporaryDirectory(dir=folder) as temporary, torch.no_grad():
        # Only what is asked for is kept, but int8 is made from float32.
        in_float32 = folder if "float32" in dtypes else Path(temporary)
        paths = [in_float32 / name for name in PROGRAMS[file_format]]
        for program, example, path in zip(original, _example_inputs(*original), paths):
            path.parent.mkdir(exist_ok=True)
            write_program(program, example, path)
        difference = check_numbers(original, _read_both(paths))

        same_tokens = None
        if "int8" in dtypes:
            quantized = [folder / path.relative_to(in_float32).with_stem(path.stem + _INT8) for path in paths]
            for path, quantized_path in zip(paths, quantized):
                quantized_path.parent.mkdir(exist_ok=True)
                quantize_program(path, quantized_path)
            same_tokens = share_of_same_tokens(original, _read_both(quantized))

        _write_settings(model, folder)
        load_tokenizer(checkpoint, revision).save_pretrained(folder)

    return Comparison(difference, same_tokens)


def _write_settings(model: PreTrainedModel, folder: Path) -> None:
    """Write the configuration and the generation settings of a model next to its programs."""
    # A saved configuration of this package would bring its source.
    config = model.config.to_diff_dict()
    external = _external_files(folder)
    if external:
        config["transformers.js_config"] = {"use_external_data_format": external}
    write_json(folder / CONFIG_NAME, config)
    model.generation_config.save_pretrained(folder)


def _check_family(checkpoint: str | Path, model_type: str) -> None:
    if model_type not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise UserError(f"{checkpoint} is of type {model_type}, which cannot be exported. These can: {known}.")


def _example_inputs(encoder: EncoderProgram, step: StepProgram) -> tuple[Tensors, Tensors]:
    """Return inputs of both programs, for the exporters to follow."""
    model = encoder.model
    source = example_source(model)
    tokens = source["input_ids"][:, :3]
    encoded, *steps = run_steps(encoder, step, source, tokens.split(1, dim=1), step.begin)

    # After some steps no length is 0 or 1, which exporters would take as fixed.
    states = next_states(steps[-1])
    for name in states:
        if ".encoder." in name:
            # Nor is the length of what a step adds.
            states[name] = states[name][:, :, :2]

    step_tokens = tokens[:, : step.family.tokens_at_once]
    return source, {"input_ids": step_tokens, **step.begin(source, encoded), **states}


def write_program(program: nn.Module, example: Tensors, path: Path) -> None:
    """Write a program with batch and lengths of any size to `path`, in the format of its ending.

    In the `example` of its input no size that may change is below 2, because exporters take such sizes as fixed.
    """
    axes = {name: _axes(name, tensor) for name, tensor in example.items()}
    with torch.no_grad(), _quiet():
        if path.suffix == ".pt2":
            # It gives the sizes names of its own.
            dynamic = {name: dict.fromkeys(named, torch.export.Dim.DYNAMIC) for name, named in axes.items()}
            exported = torch.export.export(program, (example,), dynamic_shapes=(dynamic,))
            torch.export.save(exported, path)
        else:
            exported = torch.onnx.export(
                program,
                kwargs={"tensors": example},
                input_names=list(example),
                output_names=list(program(example)),
                dynamic_shapes={"tensors": axes},
                dynamo=True,
                verbose=False,
            )
            _save_onnx(exported.model, path)


def _save_onnx(model: "onnx_ir.Model", path: Path) -> None:  # noqa: F821  The package is optional.
    """Write a program in ONNX as one file, or with its weights in a second one if it is too large."""
    import onnx_ir

    num_bytes = sum(weight.const_value.nbytes for weight in model.graph.initializers.values())
    external_data = None
    if num_bytes > _LARGEST_FILE:
        # The name that transformers.js knows.
        external_data = f"{path.name}_data"
    onnx_ir.save(model, path, external_data=external_data)


def _external_files(folder: Path) -> dict[str, int]:
    """Return the number of files with weights for each program that has some, as transformers.js reads it."""
    return {path.name.removesuffix("_data"): 1 for path in sorted(folder.glob("onnx/*.onnx_data"))}


def quantize_program(path: Path, quantized_path: Path) -> None:
    """Write a program in ONNX with weights in int8, by ONNX Runtime's own quantiser.

    The inputs of products become int8 when the program runs, so no example texts are needed.

    Args:
        path: the program in float32.
        quantized_path: where to write it in int8.
    """
    import onnx_ir
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory(dir=quantized_path.parent) as temporary, _quiet():
        unnamed = Path(temporary, path.name)
        quantize_dynamic(
            path,
            unnamed,
            # One scale for each output of a product, and 7 bits: with 8 some processors overflow.
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=_products_without_matrix(onnx_ir.load(path)),
            use_external_data_format=True,
            # By itself the quantiser would take the words' tied matrix out of int8 again in every step.
            extra_options={"MatMulConstBOnly": False},
        )

        quantized = onnx_ir.load(unnamed)
        # The file with the weights will be gone.
        onnx_ir.external_data.load_to_model(quantized)
        _save_onnx(quantized, quantized_path)


def _products_without_matrix(model: "onnx_ir.Model") -> list[str]:  # noqa: F821
    """Return the names of products that do not multiply with a matrix of weights, such as those of attention."""
    names = []
    for node in model.graph:
        if node.op_type != "MatMul":
            continue
        factor = node.inputs[1]
        producer = factor.producer()
        if producer is not None and producer.op_type == "Transpose":
            factor = producer.inputs[0]
        weight = factor.const_value
        # Aggregation multiplies with many matrices at once, which ONNX Runtime does not do in int8.
        if weight is None or len(weight.shape) != 2:
            names.append(node.name)
    return names


def _read_both(paths: Sequence[Path]) -> tuple[Program, Program]:
    encoder, step = paths
    return read_program(encoder), read_program(step)


def read_program(path: Path) -> Program:
    """Return the program in a file, in the format of its ending."""
    if path.suffix == ".pt2":
        with _quiet():
            return torch.export.load(path).module()

    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(tensors: Tensors) -> Tensors:
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        outputs = session.run(names, arrays)
        return dict(zip(names, map(torch.from_numpy, outputs)))

    return run


def _axes(name: str, tensor: Tensor) -> dict[int, str]:
    """Return the axes of a program's input that may have another size, with the names that transformers.js knows.

    A size of another name is 0 in its first step.
    """
    axes = {0: "batch_size"}
    length = "encoder_sequence_length"
    if name.startswith(PAST):
        length = "past_encoder_sequence_length" if ".encoder." in name else "past_decoder_sequence_length"

    if tensor.dim() > 2:
        # Keys, values and states of the encoder: the last axis has the numbers of a vector.
        axes[tensor.dim() - 2] = length
    elif name in ("attention_mask", MASK):
        axes[1] = length
    elif name == "input_ids" and tensor.shape[1] > 1:
        axes[1] = "sequence_length"
    return axes


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
    sources = model.get_encoder().embed_tokens.num_embeddings
    targets = model.get_decoder().embed_tokens.num_embeddings
    longest = max(lengths)
    generator = torch.Generator().manual_seed(0)
    # The decoder reads the same token ids.
    tokens = torch.randint(min(sources, targets), (len(lengths), longest), generator=generator)
    is_padding = torch.arange(longest) >= torch.tensor(lengths).unsqueeze(1)
    tokens = tokens.masked_fill(is_padding, model.config.pad_token_id)
    return {"input_ids": tokens, "attention_mask": (~is_padding).long()}


def check_numbers(original: tuple[EncoderProgram, StepProgram], exported: tuple[Program, Program]) -> float:
    """Return the largest difference of exported programs from the model's own encoder and step, over several batches.

    Raises:
        UserError: if a number differs by more than [`TOLERANCE`].
    """
    largest = 0.0
    for expected, outputs in _outputs_of_both(original, exported):
        for name, tensor in expected.items():
            worst = _largest_difference(outputs[name], tensor)
            # A difference that is no number is refused too.
            if not worst <= TOLERANCE:
                raise UserError(f"{name} of the exported program differs by {worst:.1e} from the model's.")
            largest = max(largest, worst)
    return largest


def share_of_same_tokens(original: tuple[EncoderProgram, StepProgram], exported: tuple[Program, Program]) -> float:
    """Return for how many steps of several batches both programs find the same next token best, 1 for all."""
    same = []
    for expected, outputs in _outputs_of_both(original, exported):
        if "logits" in expected:
            same.append(expected["logits"].argmax(-1) == outputs["logits"].argmax(-1))
    return torch.cat([tokens.flatten() for tokens in same]).double().mean().item()


def _outputs_of_both(
    original: tuple[EncoderProgram, StepProgram], exported: tuple[Program, Program]
) -> Iterator[tuple[Tensors, Tensors]]:
    """Yield the outputs of each run of the programs, over several batches of random tokens."""
    encoder, step = original
    at_once = step.family.tokens_at_once
    for lengths in _BATCHES:
        source = example_source(encoder.model, lengths)
        tokens = source["input_ids"].flip(1)
        all_steps = [tokens[:, :at_once], *tokens[:, at_once:].split(1, dim=1)]
        outputs_of_original = run_steps(*original, source, all_steps, step.begin)
        outputs_of_exported = run_steps(*exported, source, all_steps, step.begin)
        yield from zip(outputs_of_original, outputs_of_exported)


def _largest_difference(tensor: Tensor, expected: Tensor) -> float:
    """Return the largest difference of a number, in units of the largest number of the tensor if that is above 1."""
    # Keys and values of no tokens are empty.
    if not expected.numel():
        return 0.0
    # Not of each number: next to large ones, rounding errors of a small one are as large as theirs.
    unit = expected.abs().amax().clamp(min=1)
    return ((tensor - expected).abs().amax() / unit).item()
