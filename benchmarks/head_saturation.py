"""Tell how far the tanh of routed heads' input capsules (Li et al. 2019, Eq. 5) is saturated in trained models.

    python benchmarks/head_saturation.py runs/head-em-routing/seed1 --input_file test.en

For each routed attention of the encoder: the standard deviation of the concatenated heads over words, and the share of
the input capsules' components beyond 0.99, behind which attention learns next to nothing.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel

from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.loading import load_tokenizer
from hf_capsule_mt.modeling.aggregation import RoutedHeads


def main() -> None:
    """Print a line for each layer of each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="folders of checkpoints")
    parser.add_argument("--input_file", type=Path, required=True, help="sources (.gz)")
    parser.add_argument("--num_sentences", type=int, default=100, help="the first so many (default: %(default)s)")
    args = parser.parse_args()
    lines = read_lines(args.input_file)[: args.num_sentences]
    for folder in args.models:
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        source = load_tokenizer(folder)(lines, return_tensors="pt", padding=True)
        for name, spread, share in saturation(model, source["input_ids"], source["attention_mask"]):
            print(f"{folder} {name}: heads {spread:.2f}, beyond 0.99 {100 * share:.1f}%")


@torch.no_grad()
def saturation(model: PreTrainedModel, input_ids: Tensor, mask: Tensor) -> Iterator[tuple[str, float, float]]:
    """Yield the name of each of the encoder's [`RoutedHeads`], the deviation of its heads, and its share beyond 0.99.

    Args:
        model: of the Marian family, in evaluation mode.
        input_ids: `[batch, source]`.
        mask: `[batch, source]`, 1 where there is a word.

    Raises:
        ValueError: if the encoder routes no heads.
    """
    encoder = model.get_encoder()
    routed = {name: module for name, module in encoder.named_modules() if isinstance(module, RoutedHeads)}
    if not routed:
        raise ValueError(f"the encoder of {model.name_or_path or 'the model'} routes no heads; name a model that does")
    heads_of: dict[RoutedHeads, Tensor] = {}

    def keep(module: RoutedHeads, inputs: tuple[Tensor], output: Tensor) -> None:
        heads_of[module] = inputs[0][mask.bool()]

    hooks = [module.register_forward_hook(keep) for module in routed.values()]
    encoder(input_ids=input_ids, attention_mask=mask)
    for hook in hooks:
        hook.remove()
    for name, module in routed.items():
        heads = heads_of[module]
        capsules = module.input_capsules(heads)
        is_saturated = capsules.abs().gt(0.99)
        yield name, heads.std(0).mean().item(), is_saturated.float().mean().item()


if __name__ == "__main__":
    main()
