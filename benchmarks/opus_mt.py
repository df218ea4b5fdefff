"""Compare `translate`, in float32 and int8, on float32 and float16 files of OPUS-MT with Transformers' `generate()`.

    OMP_NUM_THREADS=1 python benchmarks/opus_mt.py opus-mt-en-mg sentences.txt --output_dir stand_ins

OPUS-MT folders on the Hub hold `pytorch_model.bin`. The script gives a folder's settings and tokenizer random weights,
in both precisions, so that every translation has --max_new_tokens tokens. Commands take turns, each in a process of its
own. The CPU time of a run on the first sentence only, which is that of loading, is subtracted.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import torch
from transformers import MarianConfig, MarianMTModel

GENERATE = """
import sys
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
folder, text, beams, new_tokens = sys.argv[1:]
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)
lines = sorted(open(text), key=len)
for start in range(0, len(lines), 32):
    batch = tokenizer(lines[start : start + 32], return_tensors="pt", padding=True)
    tokenizer.batch_decode(model.generate(**batch, num_beams=int(beams), max_new_tokens=int(new_tokens)))
"""
BEAMS = 4
COMMANDS = "generate()", "translate", "translate --dtype int8"


def main() -> None:
    """Make the stand-ins, measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="an OPUS-MT folder; only settings and tokenizer are read")
    parser.add_argument("text", type=Path, help="a text file, one sentence a line")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder for the two stand-ins")
    parser.add_argument("--max_new_tokens", default="24", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    args = parser.parse_args()
    folders = {dtype: stand_in(args, dtype) for dtype in ("float32", "float16")}
    first = args.output_dir / "first"
    first.write_text(args.text.read_text(encoding="utf-8").partition("\n")[0] + "\n", encoding="utf-8")
    times = defaultdict(list)
    for _ in range(args.rounds):
        for name, dtype in (*[(each, "float32") for each in COMMANDS], ("translate", "float16")):
            loading, whole = (cpu_seconds(args, name, folders[dtype], text) for text in (first, args.text))
            times[f"{name}, {dtype} file"].append(whole - loading)
        times["only the products of the decoder, float32"].append(products(args, folders["float32"]))
    plain = statistics.median(times["generate(), float32 file"])
    print("| | CPU seconds | times faster |\n| --- | ---: | ---: |")
    for name, each in times.items():
        middle, spread = statistics.median(each), f"{min(each):.1f}–{max(each):.1f}"
        print(f"| {name} | {middle:.1f} ({spread}) | {plain / middle:.2f} |")


def cpu_seconds(args: argparse.Namespace, name: str, folder: str, text: Path) -> float:
    """Return the CPU time of a process that translates a file."""
    output = args.output_dir / "translations"
    output.unlink(missing_ok=True)
    command = ["-c", GENERATE, folder, text, BEAMS, args.max_new_tokens]
    if name != "generate()":
        limits = ["--num_beams", str(BEAMS), "--max_new_tokens", args.max_new_tokens, "--device", "cpu"]
        files = ["--model", folder, "--input_file", text, "--output_file", output]
        command = ["-m", "hf_capsule_mt", *name.split(), *files, *limits]
    before = os.times().children_user
    subprocess.run([sys.executable, *map(str, command)], check=True, capture_output=True)
    return os.times().children_user - before


def products(args: argparse.Namespace, folder: str) -> float:
    """Return the CPU time of the decoder's matrix products, which no exact decoder in float32 can do without."""
    config, batch = MarianConfig.from_pretrained(folder), 32 * BEAMS
    width, inner = config.d_model, config.decoder_ffn_dim
    # Query, key, value and output of self-attention, query and output of cross-attention.
    layer = [(width, width)] * 6 + [(width, inner), (inner, width)]
    weights = [torch.randn(out, into) for into, out in layer * config.decoder_layers + [(width, config.vocab_size)]]
    states = {size: torch.randn(batch, size) for size in (width, inner)}
    lines = len(args.text.read_text(encoding="utf-8").splitlines())
    before = os.times().user
    for _ in range(lines * BEAMS * int(args.max_new_tokens) // batch):
        for weight in weights:
            torch.nn.functional.linear(states[weight.shape[1]], weight)
    return os.times().user - before


def stand_in(args: argparse.Namespace, dtype: str) -> str:
    """Return a folder with random weights and all else of an OPUS-MT model, as it is on the Hub."""
    folder = args.output_dir / dtype
    if not (folder / "pytorch_model.bin").exists():
        shutil.copytree(
            args.folder,
            folder,
            ignore=lambda _, names: [name for name in names if "model." in name],
            copy_function=shutil.copyfile,
        )
        torch.manual_seed(0)
        model = MarianMTModel(MarianConfig.from_pretrained(folder)).to(getattr(torch, dtype))
        torch.save(
            {name: value.clone() for name, value in model.state_dict().items() if name != "lm_head.weight"},
            folder / "pytorch_model.bin",
        )
    return str(folder)


if __name__ == "__main__":
    main()
