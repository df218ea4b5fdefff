"""Measure what it saves to multiply small weights in float32 for a few rows, in an engine in int8.

    OMP_NUM_THREADS=1 python benchmarks/int8_few_rows.py

It decodes one sentence with the small model in `checkpoints/`. Both ways take turns.
"""

import statistics
import time
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel

from hf_capsule_mt.decoding import engine_of, generate
from hf_capsule_mt.decoding.products import int8

CHECKPOINT = Path(__file__).parents[1] / "checkpoints" / "tatoeba-en-de-transformer"
TOKENS = 30
RUNS = 15
WAYS = (0, int8._FLOAT32_ROWS)
"""Rows up to which small weights are multiplied in float32."""


def make_model(float32_rows: int) -> PreTrainedModel:
    """Return the model. Its engine is of this number of rows."""
    int8._FLOAT32_ROWS = float32_rows
    model = AutoModelForSeq2SeqLM.from_pretrained(CHECKPOINT).eval()
    engine_of(model, "int8")
    return model


def milliseconds(model: PreTrainedModel, beams: int) -> float:
    """Return the CPU time of decoding a sentence."""
    token_ids = torch.randint(5, 2000, (1, 24), generator=torch.Generator().manual_seed(1))
    token_ids[0, -1] = model.config.eos_token_id
    states = engine_of(model, "int8").encode(token_ids)
    options = {"num_beams": beams, "max_new_tokens": TOKENS, "min_new_tokens": TOKENS}
    start = time.process_time()
    model.generate(token_ids, encoder_outputs=states, custom_generate=generate, dtype="int8", **options)
    return 1000 * (time.process_time() - start)


def main() -> None:
    """Measure, and print a table."""
    models = [make_model(rows) for rows in WAYS]
    print("| beams | CPU milliseconds, int8 | float32 for few rows | ratio |\n" + "| --- " * 4 + "|")
    for beams in (1, 4, 8):
        for model in models:
            milliseconds(model, beams)
        times = [[milliseconds(model, beams) for model in models] for _ in range(RUNS)]
        before, after = map(statistics.median, zip(*times))
        ratio = statistics.median(new / old for old, new in times)
        print(f"| {beams} | {before:.1f} | {after:.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
