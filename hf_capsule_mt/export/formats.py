"""The files of exported programs: written, and run, in the format of ONNX or in that of `torch.export`."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from .programs import Tensors

Program = Callable[[Tensors], Tensors]

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
"""Endings of the files, by format."""
_NEEDED = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "torch": ()}


def check_format(name: str) -> None:
    """Raise a ValueError if there is no format `name`, or it needs packages that are not installed."""
    if name not in SUFFIXES:
        raise ValueError(f"the format is {name!r}; there are {', '.join(SUFFIXES)}")
    missing = [package for package in _NEEDED[name] if find_spec(package) is None]
    if missing:
        raise ValueError(f'the format {name} needs {", ".join(missing)}; pip install -e ".[export]"')


def write_program(program: nn.Module, example: Tensors, path: Path) -> None:
    """Write a program with batch and lengths of any size to `path`, in the format of its ending.

    Args:
        program: maps tensors by name to tensors by name.
        example: of its input. No size in it that may be another is below 2: those count as fixed.
        path: what it needs besides, as the weights of ONNX, lies beside it.
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
    """The axes of a program's input that may have another size, with their names."""
    length = "words" if ".decoder." in name else "source"
    if tensor.dim() > 2:
        return {0: "batch", tensor.dim() - 2: length}
    has_length = name.endswith(("input_ids", "attention_mask")) and tensor.shape[1] > 1
    return {0: "batch", 1: length} if has_length else {0: "batch"}


@contextmanager
def _quiet() -> Iterator[None]:
    """Let exporters keep to themselves what is of no use to who runs them."""
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        warnings.simplefilter("ignore")
        level = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(level)
