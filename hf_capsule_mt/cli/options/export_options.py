"""Write a checkpoint as programs for ONNX Runtime or torch.export, and check them.

    hf-capsule-mt export --model checkpoints/tatoeba-en-de-transformer --output_dir onnx
    onnx: config.json, encoder.onnx, encoder.onnx.data, generation_config.json, step.onnx, step.onnx.data, ...
    largest difference from the model: 7.8e-06

    hf-capsule-mt export --model Helsinki-NLP/opus-mt-en-de --format torch --output_dir programs

A translation model becomes two programs in float32: the encoder, and a step of the decoder. They take any batch and any
length. Greedy or beam search with them is a loop of a few lines. The folder also has the tokenizer and the
configuration. It only appears if the programs give the same numbers as the model. ONNX needs some packages:
pip install -e ".[export]".
"""

import argparse
from pathlib import Path

from hf_capsule_mt.cli.parser import CommandParser, add_model


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    output = parser.add_argument_group("input and output")
    add_model(output)
    output.add_argument("--output_dir", type=Path, required=True, help="Folder to make. It must not hold files.")
    output.add_argument("--format", choices=["onnx", "torch"], default="onnx", help="Kind of files (default: onnx).")
    return parser
