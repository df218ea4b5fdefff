"""Milliseconds to translate one sentence (Wang et al. 2019, Table 3)."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedConfig

from hf_capsule_mt.markdown import table_in_markdown
from hf_capsule_mt.records import LatencyRecord

from .speed import check_numbers, decode, seconds


def measure_latency(
    configs: Mapping[str, PreTrainedConfig],
    sentences: Sequence[tuple[Sequence[int], int]],
    *,
    num_beams: int,
    rounds: int,
    seed: int,
    device: torch.device,
) -> dict[str, list[float]]:
    """Decode every sentence alone with every model; the models take turns on each.

    Args:
        configs: the models, by the name of their row; their weights are random, which changes no time.
        sentences: token ids of each source, and the number of words that every model has to write.
        num_beams: of decoding; 1 is greedy.
        rounds: how often all sentences are decoded, after the first of them a few times that do not count.
        seed: of weights.
        device: where the models run.

    Returns:
        Seconds for each decoding, by row: all sentences of the first round, then of the next.

    Raises:
        ValueError: if a number is too small, or there is no sentence.
    """
    check_numbers({"num_beams": num_beams, "rounds": rounds, "the number of sentences": len(sentences)})
    torch.manual_seed(seed)
    models = {row: AutoModelForSeq2SeqLM.from_config(config).to(device).eval() for row, config in configs.items()}
    times = {row: [] for row in configs}
    for words, new_tokens in [*sentences[:1] * 3, *[*sentences] * rounds]:
        input_ids = torch.tensor([words], device=device)
        batch = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
        for row, model in models.items():
            run = partial(decode, model, new_tokens=new_tokens, num_beams=num_beams)
            times[row].append(seconds(run, batch, device))
    return {row: found[3:] for row, found in times.items()}


def report(record: LatencyRecord) -> str:
    """Return the table in Markdown, and under it how it was measured."""
    settings = record.settings
    means = {row: 1000 * sum(found) / len(found) for row, found in record.seconds.items()}
    first = next(iter(means))
    rows = [["model", "milliseconds a sentence", f"times as fast as {first}"]]
    rows += [[row, f"{mean:.1f}", f"{means[first] / mean:.2f}"] for row, mean in means.items()]
    search = "greedy" if settings.num_beams == 1 else f"{settings.num_beams} beams"
    caption = (
        f"Means over {record.sentences} sentences ({record.words.source} source tokens, {record.words.target} "
        f"written), one at a time, {settings.rounds} round(s), the models in turns; {search}. `{settings.size}`, "
        f"vocabulary of {settings.vocab_size}, float32, {record.environment}."
    )
    return f"{table_in_markdown(rows)}\n\n{caption}"
