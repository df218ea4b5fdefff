"""Export of checkpoints to programs that run without this package: in ONNX Runtime, or by `torch.export`."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import CONFIG_NAME

from hf_capsule_mt.data.encoding import encode_lines, positions, source_limit
from hf_capsule_mt.files import check_empty, new_folder, write_json
from hf_capsule_mt.translation.loading import commit_of, load_config, load_model, load_tokenizer
from hf_capsule_mt.translation.translator import check_words

from .export_programs import PAST, PRESENT, EncoderProgram, StepProgram, Tensors, check_family, family_of

Program = Callable[[Tensors], Tensors]

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
"""Endings of the files, by format."""
TOLERANCE = 1e-4
"""Largest difference of a number, absolute, and relative where it is above 1."""
_STEPS = 3
# Lengths of the sentences of batches unlike the one that is exported. In the last, nothing is padding.
_BATCHES = ((9, 2, 4), (3,), (6, 1, 12, 6, 5), (7, 7))
_GREEDY = {"num_beams": 1, "do_sample": False, "num_return_sequences": 1, "return_dict_in_generate": False}


@dataclass(frozen=True)
class Exported:
    """Result of an export."""

    files: list[str]
    difference: float
    """Largest difference from the model."""
    translation: str
    """Translation of the text that the programs were tried with."""


def export_checkpoint(
    checkpoint: str | Path, output_dir: Path, file_format: str = "onnx", text: str = "", revision: str = "main"
) -> Exported:
    """Write `encoder` and `step` of a checkpoint, in float32, with its tokenizer and configuration.

    The programs are read again, compared with the model for batches of other sizes and lengths, and translate `text`
    greedily to what `generate()` finds. Only then does `output_dir` appear.

    Args:
        checkpoint: a folder, or a name on the Hub.
        output_dir: the folder to make.
        file_format: "onnx", or "torch": files of `torch.export`.
        text: a sentence to try the programs with.
        revision: of a checkpoint on the Hub.

    Raises:
        ValueError: if the checkpoint is of another family, or a check fails.
        OSError: if there is no such checkpoint, or the folder has files in it.
    """
    check_empty(output_dir)
    if file_format == "onnx":
        import onnxruntime  # noqa: F401  The work takes minutes, so what is missing must be found first.
        import onnxscript  # noqa: F401
    revision = commit_of(checkpoint, revision)
    check_family(checkpoint, load_config(checkpoint, revision).model_type)
    model = load_model(checkpoint, revision=revision, dtype="float32").eval()
    tokenizer = load_tokenizer(checkpoint, revision)
    ids = encode_lines(tokenizer, [text], source_limit(model.config, tokenizer))[0] or [tokenizer.eos_token_id]
    check_words(max(ids), model, "put the right one beside the weights")
    source = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
    with new_folder(output_dir) as folder:
        difference, tokens = _write(model, source, folder, SUFFIXES[file_format])
        # Without the source that a configuration of this package would save.
        write_json(folder / CONFIG_NAME, model.config.to_diff_dict())
        model.generation_config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        files = sorted(file.name for file in folder.iterdir())
    return Exported(files, difference, tokenizer.decode(tokens, skip_special_tokens=True))


@torch.no_grad()
def _write(model: PreTrainedModel, text: Tensors, folder: Path, suffix: str) -> tuple[float, Tensor]:
    """Write the programs; return the largest difference from the model, and the token ids that `text` becomes."""
    family = family_of(model)
    own = EncoderProgram(family), StepProgram(family)
    source = example_source(model)
    paths = folder / f"encoder{suffix}", folder / f"step{suffix}"
    for program, example, path in zip(own, (source, example_step(*own, source)), paths):
        write_program(program, example, path)
    exported = tuple(map(read_program, paths))
    difference = check_numbers(model, own, exported)
    longest = min(2 * text["input_ids"].shape[1] + 20, (positions(model.config) or 1024) - 1)
    return difference, check_translation(model, text, *exported, longest)[0]


def write_program(program: nn.Module, example: Tensors, path: Path) -> None:
    """Write a program with batch and lengths of any size to `path`, in the format of its ending.

    Args:
        program: maps tensors by name to tensors by name.
        example: its input. No size that may change is below 2, because exporters take such sizes as fixed.
        path: other files of the program, as the weights of ONNX, lie next to it.
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


def example_step(encoder: EncoderProgram, step: StepProgram, source: Tensors) -> Tensors:
    """Return a step's input after some tokens."""
    tokens = source["input_ids"][:, :_STEPS]
    read, *outputs = run_steps(encoder, step, source, tokens)
    return {"input_ids": tokens[:, -1:], **read, **_next_states(outputs[-1])}


def check_numbers(model: PreTrainedModel, own: tuple[Program, Program], exported: tuple[Program, Program]) -> float:
    """Compare what exported programs return with what the model's own encoder and step return, for several batches.

    Returns:
        The largest difference.

    Raises:
        ValueError: if a number differs by more than [`TOLERANCE`].
    """
    largest = 0.0
    for lengths in _BATCHES:
        source = example_source(model, lengths)
        tokens = source["input_ids"].flip(1)[:, :_STEPS]
        for wanted, found in zip(*(run_steps(*each, source, tokens) for each in (own, exported))):
            for name, tensor in wanted.items():
                difference = _difference(tensor, found[name])
                if not difference <= TOLERANCE:
                    raise ValueError(f"{name} of the exported program differs by {difference:.1e} from the model's")
                largest = max(largest, difference)
    return largest


def _difference(wanted: Tensor, found: Tensor) -> float:
    if wanted.shape != found.shape:
        return torch.inf
    wanted = wanted.double()
    relative = (found - wanted).abs() / wanted.abs().clamp(min=1)
    return relative.amax().item() if relative.numel() else 0.0


@torch.no_grad()
def check_translation(model: PreTrainedModel, source: Tensors, encoder: Program, step: Program, limit: int) -> Tensor:
    """Return the token ids that the programs find greedily for one sentence, `[1, length]`.

    Raises:
        ValueError: if `generate()` finds others.
    """

    def by_programs(model: Any, input_ids: Tensor, logits_processor: Any, stopping_criteria: Any, **_: Any) -> Tensor:
        read = dict(encoder(source))
        while not stopping_criteria(input_ids, None).all():
            outputs = step({"input_ids": input_ids[:, -1:], **read})
            scores = logits_processor(input_ids, outputs["logits"].float())
            input_ids = torch.cat([input_ids, scores.argmax(-1, keepdim=True)], dim=1)
            read.update(_next_states(outputs))
        return input_ids

    options = {**source, **_GREEDY, "max_new_tokens": limit}
    found = model.generate(**options, custom_generate=by_programs)
    wanted = model.generate(**options)
    if not torch.equal(found, wanted):
        raise ValueError(f"the programs translate as {found.tolist()[0]}, but generate() as {wanted.tolist()[0]}")
    return found
