"""Measure what a scale for each row of the input of a product in int8 costs, instead of one for each call.

    OMP_NUM_THREADS=1 python benchmarks/int8_rows.py

A row is brought to the range from 0 to 1 before PyTorch's product, which then has the same scale in every call. The
model has the size of OPUS-MT and random weights. Both ways take turns.
"""

import statistics
import time

import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from hf_capsule_mt.decoding import generate
from hf_capsule_mt.decoding.products import int8

TOKENS = 20
SHAPES = ((1, 1, 9), (1, 4, 9), (32, 1, 7), (32, 4, 5))
"""Sentences, beams, and runs of both ways."""
_OfCall = int8.Int8Product


class _OfRow(_OfCall):
    """A product whose result for a row does not depend on other rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None, in_float32: None) -> None:
        super().__init__(weight, None, in_float32)
        integers, scales = int8.quantized(weight.t().float())
        self._sums = (integers.float() * scales.unsqueeze(1)).sum(1)
        self._bias = bias

    def __call__(self, inputs: Tensor) -> Tensor:
        """Map `[rows, in]` to `[rows, out]`."""
        low, high = torch.aminmax(inputs, dim=1, keepdim=True)
        span = (high - low).clamp_(min=torch.finfo(torch.float32).tiny)
        outputs = super().__call__((inputs - low).div_(span))
        outputs.mul_(span).addcmul_(low, self._sums)
        return outputs if self._bias is None else outputs.add_(self._bias)


def make_model() -> MarianMTModel:
    """Return a model of the size of OPUS-MT."""
    side = {"layers": 6, "attention_heads": 8, "ffn_dim": 2048}
    sizes = {f"{name}_{key}": value for name in ("encoder", "decoder") for key, value in side.items()}
    config = MarianConfig(
        d_model=512, vocab_size=54688, pad_token_id=54687, eos_token_id=0, decoder_start_token_id=54687, **sizes
    )
    torch.manual_seed(0)
    return MarianMTModel(config).eval()


def seconds(model: MarianMTModel, kind: type, sentences: int, beams: int) -> float:
    """Return the CPU time of decoding. The engine of a model is made in the first call."""
    int8.Int8Product = kind
    token_ids = torch.randint(1, 50_000, (sentences, 20), generator=torch.Generator().manual_seed(1))
    options = {"num_beams": beams, "max_new_tokens": TOKENS, "min_new_tokens": TOKENS}
    start = time.process_time()
    model.generate(
        token_ids, attention_mask=torch.ones_like(token_ids), custom_generate=generate, dtype="int8", **options
    )
    return time.process_time() - start


def main() -> None:
    """Measure, and print a table."""
    models = {_OfCall: make_model(), _OfRow: make_model()}
    for kind, model in models.items():
        seconds(model, kind, 2, 1)
        seconds(model, kind, 32, 4)
    print("| sentences | beams | CPU seconds, one scale a call | one scale a row | ratio |\n" + "| --- " * 5 + "|")
    for sentences, beams, runs in SHAPES:
        times = {kind: [] for kind in models}
        for _ in range(runs):
            for kind, model in models.items():
                times[kind].append(seconds(model, kind, sentences, beams))
        ratio = statistics.median(new / old for old, new in zip(*times.values()))
        old, new = map(statistics.median, times.values())
        print(f"| {sentences} | {beams} | {old:.3f} | {new:.3f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
