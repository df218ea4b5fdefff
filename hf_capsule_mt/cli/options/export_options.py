"""Write a checkpoint as programs of ONNX or torch.export, and check them.

    hf-capsule-mt export --model checkpoints/tatoeba-en-de-transformer --output_dir exported
    exported: config.json, generation_config.json, onnx/decoder_model_merged.onnx, onnx/encoder_model.onnx, ...
    largest difference from the model: 1.3e-06

    hf-capsule-mt export --model facebook/nllb-200-distilled-600M --dtype float32 int8 --output_dir exported
    hf-capsule-mt export --model Helsinki-NLP/opus-mt-en-de --format torch --output_dir programs

A translation model becomes two programs: the encoder, and a step of the decoder. They take any batch and any length.
Greedy or beam search with them is a loop of a few lines. The folder also has the tokenizer and the configuration.
Files and tensors of ONNX have the names that optimum and transformers.js read. The folder only appears if the programs
in float32 give the same numbers as the model. ONNX needs some packages: pip install -e ".[export]".
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
    output.add_argument(
        "--dtype",
        nargs="+",
        choices=["float32", "int8"],
        default=["float32"],
        help="Precisions to write (default: float32). int8 has a quarter of the bytes. Its files end in _quantized, "
        "and are only for ONNX.",
    )
    return parser
