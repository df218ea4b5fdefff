"""Export of checkpoints to programs that run without this package: in ONNX Runtime, or by `torch.export`."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import CONFIG_NAME

from hf_capsule_mt.files import check_empty, new_folder, write_json
from hf_capsule_mt.translation.loading import commit_of, load_config, load_model, load_tokenizer

from .export_programs import PAST, PRESENT, EncoderProgram, StepProgram, Tensors, check_family, family_of

Program = Callable[[Tensors], Tensors]

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
        checkpoint: a folder, or a name on the Hub.
        output_dir: the folder to make.
        file_format: "onnx", or "torch": files of `torch.export`.
        revision: of a checkpoint on the Hub.

    Returns:
        The largest difference of a number from the model's.

    Raises:
        ValueError: if the checkpoint is of another family, or the programs differ from the model.
        OSError: if there is no such checkpoint, or the folder has files in it.
    """
    check_empty(output_dir)
    if file_format == "onnx":
        import onnxruntime  # noqa: F401  The work takes minutes, so what is missing must be found first.
        import onnxscript  # noqa: F401
    revision = commit_of(checkpoint, revision)
    check_family(checkpoint, load_config(checkpoint, revision).model_type)
    model = load_model(checkpoint, revision=revision, dtype="float32").eval()
    own = EncoderProgram(family_of(model)), StepProgram(family_of(model))
    with new_folder(output_dir) as folder, torch.no_grad():
        source = example_source(model)
        tokens = source["input_ids"][:, :3]
        read, *outputs = run_steps(*own, source, tokens)
        step_input = {"input_ids": tokens[:, -1:], **read, **_next_states(outputs[-1])}
        paths = [folder / f"{name}{SUFFIXES[file_format]}" for name in ("encoder", "step")]
        for program, example, path in zip(own, (source, step_input), paths):
            write_program(program, example, path)
        difference = check_numbers(model, own, tuple(map(read_program, paths)))
        # A saved configuration of this package would bring its source.
        write_json(folder / CONFIG_NAME, model.config.to_diff_dict())
        model.generation_config.save_pretrained(folder)
        load_tokenizer(checkpoint, revision).save_pretrained(folder)
    return difference


def write_program(program: nn.Module, example: Tensors, path: Path) -> None:
    """Write a program with batch and lengths of any size to `path`, in the format of its ending.

    Args:
        program: maps tensors by name to tensors by name.
        example: its input. No size that may change is below 2, because exporters take such sizes as fixed.
        path: other files of the program, such as the weights of ONNX, lie next to it.
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
    """Return the outputs of the encoder, and of a step for each of the token ids `[batch, steps]`."""
    read = dict(encoder(source))
    outputs = [dict(read)]
    for token in tokens.split(1, dim=1):
        outputs.append(step({"input_ids": token, **read}))
        read.update(_next_states(outputs[-1]))
    return outputs


def _next_states(outputs: Tensors) -> Tensors:
    return {name.replace(PRESENT, PAST): tensor for name, tensor in outputs.items() if name.startswith(PRESENT)}


def check_numbers(model: PreTrainedModel, own: tuple[Program, Program], exported: tuple[Program, Program]) -> float:
    """Compare what exported programs return with what the model's own encoder and steps return, for several batches.

    Returns:
        The largest difference.

    Raises:
        ValueError: if a number differs by more than [`TOLERANCE`].
    """
    largest = 0.0
    for lengths in _BATCHES:
        source = example_source(model, lengths)
        tokens = source["input_ids"].flip(1)
        for wanted, found in zip(*(run_steps(*each, source, tokens) for each in (own, exported))):
            for name, tensor in wanted.items():
                difference = (found[name] - tensor).abs() / tensor.abs().clamp(min=1)
                # Keys and values of no words are empty. A difference that is no number is refused too.
                worst = difference.double().amax().item() if difference.numel() else 0.0
                if not worst <= TOLERANCE:
                    raise ValueError(f"{name} of the exported program differs by {worst:.1e} from the model's.")
                largest = max(largest, worst)
    return largest
