"""Export of translation models to programs that run without this package: in ONNX Runtime, or by `torch.export`.

export_programs.py has the programs. Here they are written, read again, and compared with the model.
"""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import CONFIG_NAME

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import check_empty, new_folder, write_json
from hf_capsule_mt.loading import commit_of, load_config, load_model, load_tokenizer

from .export_programs import FAMILIES, EncoderProgram, Program, StepProgram, Tensors, next_states, run_steps

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
"""Endings of the files, by format."""
TOLERANCE = 1e-4
"""Largest difference of a number, absolute, and relative where it is above 1."""
# Lengths of the sentences of batches unlike the one that is exported. In the last, nothing is padding.
_BATCHES = ((9, 2, 4), (3,), (6, 1, 12, 6, 5), (7, 7))


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
    model_type = load_config(checkpoint, revision).model_type
    if model_type not in FAMILIES:
        raise UserError(
            f"{checkpoint} is of type {model_type}. Only Marian's and models of this package that did not start "
            "from M2M-100 can be exported."
        )
    model = load_model(checkpoint, revision=revision, dtype="float32").eval()
    encoder = EncoderProgram(model)
    step = StepProgram(model)
    with new_folder(output_dir) as folder, torch.no_grad():
        encoder_file = folder / f"encoder{SUFFIXES[file_format]}"
        step_file = folder / f"step{SUFFIXES[file_format]}"
        source, step_input = _example_inputs(model, encoder, step)
        write_program(encoder, source, encoder_file)
        write_program(step, step_input, step_file)
        exported = (read_program(encoder_file), read_program(step_file))
        difference = check_numbers(model, (encoder, step), exported)
        # A saved configuration of this package would bring its source.
        write_json(folder / CONFIG_NAME, model.config.to_diff_dict())
        model.generation_config.save_pretrained(folder)
        load_tokenizer(checkpoint, revision).save_pretrained(folder)
    return difference


def _example_inputs(model: PreTrainedModel, encoder: Program, step: Program) -> tuple[Tensors, Tensors]:
    """Return inputs of both programs, for the exporters to follow."""
    source = example_source(model)
    tokens = source["input_ids"][:, :3]
    encoded, *steps = run_steps(encoder, step, source, tokens)
    # After some steps no length is 0 or 1, which exporters would take as fixed.
    step_input = {"input_ids": tokens[:, -1:], **encoded, **next_states(steps[-1])}
    return source, step_input


def write_program(program: nn.Module, example: Tensors, path: Path) -> None:
    """Write a program with batch and lengths of any size to `path`, in the format of its ending.

    In the `example` of its input no size that may change is below 2, because exporters take such sizes as fixed.
    """
    axes = {name: _axes(name, tensor) for name, tensor in example.items()}
    with torch.no_grad(), _quiet():
        if path.suffix == SUFFIXES["torch"]:
            # It gives the sizes names of its own.
            dynamic = {name: dict.fromkeys(named, torch.export.Dim.DYNAMIC) for name, named in axes.items()}
            exported = torch.export.export(program, (example,), dynamic_shapes=(dynamic,))
            torch.export.save(exported, path)
        else:
            torch.onnx.export(
                program,
                kwargs={"tensors": example},
                f=path,
                input_names=list(example),
                output_names=list(program(example)),
                dynamic_shapes={"tensors": axes},
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
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        outputs = session.run(names, arrays)
        return dict(zip(names, map(torch.from_numpy, outputs)))

    return run


def _axes(name: str, tensor: Tensor) -> dict[int, str]:
    """Return the axes of a program's input that may have another size, with their names."""
    length = "words" if ".decoder." in name else "source"
    if tensor.dim() > 2:
        # Keys, values and states of the encoder: the last axis has the numbers of a vector.
        return {0: "batch", tensor.dim() - 2: length}
    # The token before a step has the name input_ids too, and is always one.
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
    sources = model.get_encoder().embed_tokens.num_embeddings
    targets = model.get_decoder().embed_tokens.num_embeddings
    longest = max(lengths)
    generator = torch.Generator().manual_seed(0)
    # The decoder reads the same token ids.
    tokens = torch.randint(min(sources, targets), (len(lengths), longest), generator=generator)
    is_padding = torch.arange(longest) >= torch.tensor(lengths).unsqueeze(1)
    tokens = tokens.masked_fill(is_padding, model.config.pad_token_id)
    return {"input_ids": tokens, "attention_mask": (~is_padding).long()}


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
