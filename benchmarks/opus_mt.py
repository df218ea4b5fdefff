"""Compare `translate`, in float32 and int8, on float32 and float16 files of OPUS-MT with Transformers' `generate()`.

    OMP_NUM_THREADS=1 python benchmarks/opus_mt.py checkpoints/tatoeba-en-de-transformer lines.en --output_dir stand_ins

OPUS-MT folders on the Hub hold `pytorch_model.bin`. The script writes such files in both precisions. Their model has
the size of OPUS-MT, and the translations of a small model, whose numbers it repeats. Commands take turns, each in a
process of its own. A run on the first sentence shows the CPU time of loading, which is subtracted.
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
from transformers import AutoTokenizer, MarianConfig, MarianMTModel

GENERATE = """
import sys
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
folder, text, beams, new_tokens, batch_size, order = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
lines = [line.rstrip("\\n") for line in open(text, encoding="utf-8")]
size = int(batch_size)
if order == "sorted":
    lines.sort(key=len)
for start in range(0, len(lines), size):
    batch = tokenizer(lines[start : start + size], return_tensors="pt", padding=True)
    tokenizer.batch_decode(model.generate(**batch, num_beams=int(beams), max_new_tokens=int(new_tokens)))
"""
BEAMS = 4
NEW_TOKENS = 100
GENERATED = {
    "generate(), 32 sentences in the order of the file": ("32", "file"),
    "generate(), one sentence, as pipeline() does": ("1", "file"),
    "generate(), 32 sentences of like length": ("32", "sorted"),
}
COMMANDS = (*GENERATED, "translate", "translate --dtype int8")
WIDTH = 512
HEAD = 64
VOCABULARY = 54688
SIZE = {"d_model": WIDTH, "vocab_size": VOCABULARY, "decoder_vocab_size": VOCABULARY, "max_position_embeddings": 512}
SIDE = {"layers": 6, "attention_heads": WIDTH // HEAD, "ffn_dim": 4 * WIDTH}
"""Sizes of opus-mt-en-mg."""


def main() -> None:
    """Make the stand-ins, measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a small Marian model")
    parser.add_argument("text", type=Path, help="a text file, one sentence a line")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder for the two stand-ins")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    args = parser.parse_args()
    folders = stand_ins(args)
    first = args.output_dir / "first"
    first.write_text(args.text.read_text(encoding="utf-8").partition("\n")[0] + "\n", encoding="utf-8")
    runs = [(command, "float32") for command in COMMANDS]
    runs.append(("translate", "float16"))
    times = defaultdict(list)
    for _ in range(args.rounds):
        for command, dtype in runs:
            loading = cpu_seconds(args, command, folders[dtype], first)
            whole = cpu_seconds(args, command, folders[dtype], args.text)
            times[f"{command}, {dtype} file"].append(whole - loading)
        times["only the products of the decoder, float32"].append(products(args, folders["float32"]))
    plain = statistics.median(times[f"{COMMANDS[0]}, float32 file"])
    print("| | CPU seconds | times as fast as the first row |\n| --- | ---: | ---: |")
    for name, seconds in times.items():
        middle = statistics.median(seconds)
        spread = f"{min(seconds):.1f}–{max(seconds):.1f}"
        print(f"| {name} | {middle:.1f} ({spread}) | {plain / middle:.2f} |")


def cpu_seconds(args: argparse.Namespace, name: str, folder: str, text: Path) -> float:
    """Return the CPU time of a process that translates a file.

    Args:
        args: of the command.
        name: one of `COMMANDS`.
        folder: of the model.
        text: a file, one sentence a line.
    """
    output = args.output_dir / "translations"
    output.unlink(missing_ok=True)
    if name in GENERATED:
        command = ["-c", GENERATE, folder, text, BEAMS, NEW_TOKENS, *GENERATED[name]]
    else:
        limits = ["--num_beams", BEAMS, "--max_new_tokens", NEW_TOKENS, "--device", "cpu"]
        files = ["--model", folder, "--input_file", text, "--output_file", output]
        command = ["-m", "hf_capsule_mt", *name.split(), *files, *limits]
    before = os.times().children_user
    subprocess.run([sys.executable, *map(str, command)], check=True, capture_output=True)
    return os.times().children_user - before


def products(args: argparse.Namespace, folder: str) -> float:
    """Return the CPU time of the decoder's matrix products for the last translations.

    No exact decoder in float32 can do without them.
    """
    config = MarianConfig.from_pretrained(folder)
    width = config.d_model
    inner = config.decoder_ffn_dim
    batch = 32 * BEAMS
    # Query, key, value and output of self-attention, query and output of cross-attention.
    layer = [(width, width)] * 6 + [(width, inner), (inner, width)]
    shapes = layer * config.decoder_layers + [(width, config.vocab_size)]
    weights = [torch.randn(out, into) for into, out in shapes]
    states = {size: torch.randn(batch, size) for size in (width, inner)}
    text = (args.output_dir / "translations").read_text(encoding="utf-8")
    lines = text.removesuffix("\n").split("\n")
    token_ids = AutoTokenizer.from_pretrained(folder)(text_target=lines)["input_ids"]
    tokens = sum(len(ids) for ids in token_ids)
    before = os.times().user
    for _ in range(tokens * BEAMS // batch):
        for weight in weights:
            torch.nn.functional.linear(states[weight.shape[1]], weight)
    return os.times().user - before


def stand_ins(args: argparse.Namespace) -> dict[str, str]:
    """Write `pytorch_model.bin` in both precisions, and return the folders."""
    small = MarianMTModel.from_pretrained(args.folder, dtype="float32").eval()
    large = enlarged(small)
    inputs = {"input_ids": torch.arange(3, 9).view(2, 3), "decoder_input_ids": torch.arange(4, 10).view(2, 3)}
    with torch.no_grad():
        of_large = large(**inputs).logits.log_softmax(-1)
        of_small = small(**inputs).logits.log_softmax(-1)
    torch.testing.assert_close(of_large[..., : small.config.vocab_size], of_small, rtol=0, atol=1e-3)
    folders = {}
    for dtype in ("float32", "float16"):
        folder = args.output_dir / dtype
        shutil.copytree(args.folder, folder, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
        large.to(getattr(torch, dtype)).config.dtype = dtype
        large.config.save_pretrained(folder)
        weights = {name: value.clone() for name, value in large.state_dict().items() if name != "lm_head.weight"}
        torch.save(weights, folder / "pytorch_model.bin")
        folders[dtype] = str(folder)
    return folders


def enlarged(small: MarianMTModel) -> MarianMTModel:
    """Return a model of OPUS-MT's size with the same logits. Each of its vectors repeats the small model's vector.

    Further layers add nothing, and further words have next to no probability.
    """
    config, sides = small.config, ("encoder", "decoder")
    shape = {f"{side}_{name}": size for side in sides for name, size in SIDE.items()}
    model = MarianMTModel(MarianConfig(**{**config.to_dict(), **SIZE, **shape})).eval()
    width, old_head = config.d_model, config.d_model // config.encoder_attention_heads
    repeats, head_repeats = WIDTH / width, HEAD / old_head
    state = torch.arange(WIDTH) % width
    heads = torch.cat(
        [torch.arange(HEAD) % old_head + head % (width // old_head) * old_head for head in range(WIDTH // HEAD)]
    )
    inner = torch.arange(4 * WIDTH) % config.encoder_ffn_dim
    outputs = {"self_attn.out_proj", "encoder_attn.out_proj", "fc2"}

    def copy_linear(name: str, into: torch.nn.Linear, out_of: torch.nn.Linear) -> None:
        rows = heads if name.endswith(("q_proj", "k_proj", "v_proj")) else inner if name == "fc1" else state
        columns = heads if name.endswith("out_proj") else inner if name == "fc2" else state
        into.weight.copy_(out_of.weight[rows][:, columns] * (out_of.in_features / into.in_features))
        into.bias.copy_(out_of.bias[rows])
        if name.endswith("q_proj"):
            # Products of queries and keys are sums of more numbers, divided by the root of how many.
            for parameter in into.parameters():
                parameter.div_(head_repeats**0.5)

    def copy_norm(into: torch.nn.LayerNorm, out_of: torch.nn.LayerNorm, factor: float = 1) -> None:
        for new, old in zip(into.parameters(), out_of.parameters()):
            new.copy_(old[state] * factor)

    with torch.no_grad():
        embeddings = model.model.shared.weight.zero_()
        embeddings[: config.vocab_size] = small.model.shared.weight[:, state] / repeats**0.5
        # Further words are never chosen. With lower logits their exponentials would underflow, which is slow.
        model.final_logits_bias.fill_(-30)[:, : config.vocab_size] = small.final_logits_bias
        for side in sides:
            stack, old_stack = getattr(model.model, side), getattr(small.model, side)
            positions = stack.embed_positions.weight
            positions.copy_(old_stack.embed_positions.weight[: len(positions), state])
            for layer, old in zip(stack.layers, old_stack.layers):
                for name, module in old.named_modules():
                    if isinstance(module, torch.nn.Linear):
                        copy_linear(name, layer.get_submodule(name), module)
                    elif isinstance(module, torch.nn.LayerNorm):
                        copy_norm(layer.get_submodule(name), module)
            for layer in stack.layers[len(old_stack.layers) :]:
                for name, parameter in layer.named_parameters():
                    if name.rpartition(".")[0] in outputs:
                        parameter.zero_()
            # Further layers normalise again, which changes nothing if only the last one has the learned scale.
            norm = stack.layers[len(old_stack.layers) - 1].final_layer_norm
            norm.weight.fill_(1)
            norm.bias.zero_()
            factor = repeats**-0.5 if side == "decoder" else 1
            copy_norm(stack.layers[-1].final_layer_norm, old_stack.layers[-1].final_layer_norm, factor)
    return model


if __name__ == "__main__":
    main()
