"""Compare `translate`, in float32 and int8, on float32 and float16 files of OPUS-MT with Transformers' `generate()`.

    OMP_NUM_THREADS=1 python -m benchmarks.decoding.opus_mt checkpoints/tatoeba-en-de-transformer lines.en \\
        --output_dir stand_ins

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
from torch import nn
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
"""Sizes of opus-mt-en-mg."""
SIDES = ("encoder", "decoder")
SIDE = {"layers": 6, "attention_heads": WIDTH // HEAD, "ffn_dim": 4 * WIDTH}
"""Sizes of each of its sides."""


def main() -> None:
    """Make the stand-ins, measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a small Marian model")
    parser.add_argument("text", type=Path, help="a text file, one sentence a line")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder for the two stand-ins")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    args = parser.parse_args()
    folders = stand_ins(args)
    first_line, _, _ = args.text.read_text(encoding="utf-8").partition("\n")
    first = args.output_dir / "first"
    first.write_text(f"{first_line}\n", encoding="utf-8")
    runs = [(command, "float32") for command in COMMANDS]
    runs.append(("translate", "float16"))
    times = defaultdict(list)
    for _ in range(args.rounds):
        for command, dtype in runs:
            loading = cpu_seconds(args, command, folders[dtype], first)
            whole = cpu_seconds(args, command, folders[dtype], args.text)
            times[f"{command}, {dtype} file"].append(whole - loading)
        taken = products(args, folders["float32"])
        times["only the products of the decoder, float32"].append(taken)
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
            nn.functional.linear(states[weight.shape[1]], weight)
    return os.times().user - before


def stand_ins(args: argparse.Namespace) -> dict[str, str]:
    """Write `pytorch_model.bin` in both precisions, and return the folders."""
    small = MarianMTModel.from_pretrained(args.folder, dtype="float32").eval()
    large = enlarged(small)
    check_same_logits(large, small)
    folders = {}
    for dtype in ("float32", "float16"):
        folder = args.output_dir / dtype
        shutil.copytree(args.folder, folder, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
        large.to(getattr(torch, dtype))
        large.config.dtype = dtype
        large.config.save_pretrained(folder)
        weights = {name: value.clone() for name, value in large.state_dict().items()}
        # It is the embedding of the words. A file of OPUS-MT has it once.
        del weights["lm_head.weight"]
        torch.save(weights, folder / "pytorch_model.bin")
        folders[dtype] = str(folder)
    return folders


@torch.no_grad()
def check_same_logits(large: MarianMTModel, small: MarianMTModel) -> None:
    """Check that both models give the small one's words the same probabilities."""
    inputs = {"input_ids": torch.arange(3, 9).view(2, 3), "decoder_input_ids": torch.arange(4, 10).view(2, 3)}
    of_large = large(**inputs).logits.log_softmax(-1)
    of_small = small(**inputs).logits.log_softmax(-1)
    torch.testing.assert_close(of_large[..., : small.config.vocab_size], of_small, rtol=0, atol=1e-3)


def enlarged(small: MarianMTModel) -> MarianMTModel:
    """Return a model of OPUS-MT's size with the same logits. Each of its vectors repeats the small model's vector.

    Further layers add nothing, and further words have next to no probability.
    """
    config = small.config
    shape = {}
    for side in SIDES:
        for name, size in SIDE.items():
            shape[f"{side}_{name}"] = size
    large = MarianMTModel(MarianConfig(**{**config.to_dict(), **SIZE, **shape})).eval()
    repetition = _Repetition(config)
    with torch.no_grad():
        _copy_vocabulary(large, small, repetition)
        for side in SIDES:
            stack = getattr(large.model, side)
            small_stack = getattr(small.model, side)
            positions = stack.embed_positions.weight
            positions.copy_(small_stack.embed_positions.weight[: len(positions), repetition.state])
            for layer, small_layer in zip(stack.layers, small_stack.layers):
                _copy_layer(layer, small_layer, repetition)
            # Products with the vocabulary sum up each number so often, and its vectors are divided by the root of that.
            factor = repetition.times**-0.5 if side == "decoder" else 1
            _make_further_layers_add_nothing(stack, small_stack, repetition, factor)
    return large


class _Repetition:
    """Which numbers of the small model's vectors those of a large one repeat.

    Args:
        config: of the small model.
    """

    def __init__(self, config: MarianConfig) -> None:
        width = config.d_model
        heads = config.encoder_attention_heads
        small_head = width // heads
        self.times = WIDTH / width
        """How often a vector is repeated."""
        self.times_in_head = HEAD / small_head
        self.state = torch.arange(WIDTH) % width
        self.inner = torch.arange(4 * WIDTH) % config.encoder_ffn_dim
        # A head repeats the numbers of one head.
        of_heads = []
        for head in range(WIDTH // HEAD):
            first = head % heads * small_head
            of_heads.append(first + torch.arange(HEAD) % small_head)
        self.heads = torch.cat(of_heads)


def _copy_vocabulary(large: MarianMTModel, small: MarianMTModel, repetition: _Repetition) -> None:
    """Copy the embeddings and the bias of the output."""
    words = small.config.vocab_size
    embeddings = large.model.shared.weight.zero_()
    embeddings[:words] = small.model.shared.weight[:, repetition.state] / repetition.times**0.5
    # Further words are never chosen. With lower logits their exponentials would underflow, which is slow.
    bias = large.final_logits_bias.fill_(-30)
    bias[:, :words] = small.final_logits_bias


def _copy_layer(layer: nn.Module, small_layer: nn.Module, repetition: _Repetition) -> None:
    """Copy all linear maps and norms of a layer."""
    for name, small_module in small_layer.named_modules():
        if isinstance(small_module, nn.Linear):
            _copy_linear(name, layer.get_submodule(name), small_module, repetition)
        elif isinstance(small_module, nn.LayerNorm):
            _copy_norm(layer.get_submodule(name), small_module, repetition)


def _copy_linear(name: str, linear: nn.Linear, small_linear: nn.Linear, repetition: _Repetition) -> None:
    """Copy a linear map. Its name says which vectors it maps."""
    rows = repetition.state
    columns = repetition.state
    if name.endswith(("q_proj", "k_proj", "v_proj")):
        rows = repetition.heads
    elif name.endswith("out_proj"):
        columns = repetition.heads
    elif name == "fc1":
        rows = repetition.inner
    elif name == "fc2":
        columns = repetition.inner
    weight = small_linear.weight[rows][:, columns]
    # Products are sums of more numbers.
    linear.weight.copy_(weight * (small_linear.in_features / linear.in_features))
    linear.bias.copy_(small_linear.bias[rows])
    if name.endswith("q_proj"):
        # Products of queries and keys are sums of more numbers, divided by the root of how many.
        for parameter in linear.parameters():
            parameter.div_(repetition.times_in_head**0.5)


def _copy_norm(norm: nn.LayerNorm, small_norm: nn.LayerNorm, repetition: _Repetition, factor: float = 1) -> None:
    """Copy the scale and the bias of a norm, times a factor."""
    for parameter, small_parameter in zip(norm.parameters(), small_norm.parameters()):
        parameter.copy_(small_parameter[repetition.state] * factor)


def _make_further_layers_add_nothing(
    stack: nn.Module, small_stack: nn.Module, repetition: _Repetition, factor: float
) -> None:
    """Let the layers that the small model lacks leave the states as they are.

    Args:
        stack: the large encoder or decoder, with the layers of the small one.
        small_stack: the small one.
        repetition: how vectors are repeated.
        factor: what the last states are multiplied by.
    """
    outputs = {"self_attn.out_proj", "encoder_attn.out_proj", "fc2"}
    number = len(small_stack.layers)
    for layer in stack.layers[number:]:
        for name, parameter in layer.named_parameters():
            module, _, _ = name.rpartition(".")
            if module in outputs:
                parameter.zero_()
    # Further layers normalise again, which changes nothing if only the last one has the learned scale.
    last_copied = stack.layers[number - 1].final_layer_norm
    last_copied.weight.fill_(1)
    last_copied.bias.zero_()
    _copy_norm(stack.layers[-1].final_layer_norm, small_stack.layers[-1].final_layer_norm, repetition, factor)


if __name__ == "__main__":
    main()
