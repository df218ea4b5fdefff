"""Milliseconds to translate one sentence (Wang et al. 2019, Table 3)."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedConfig

from benchmarks.speed.decoders import GENERATE, decoders
from benchmarks.speed.speed import check_numbers, check_positions, seconds
from hf_capsule_mt.markdown import table_in_markdown
from hf_capsule_mt.records import LatencyRecord


def measure_latency(
    configs: Mapping[str, PreTrainedConfig],
    sentences: Sequence[tuple[Sequence[int], int]],
    *,
    num_beams: int,
    rounds: int,
    seed: int,
    device: torch.device,
) -> dict[str, list[float]]:
    """Decode every sentence alone with every decoder of every model; all take turns on each.

    Args:
        configs: the models, by the name of their row; their weights are random, which changes no time.
        sentences: token ids of each source, and the number of words that every model has to write.
        num_beams: of decoding; 1 is greedy.
        rounds: how often all sentences are decoded, after the first of them a few times that do not count.
        seed: of weights.
        device: where the models run.

    Returns:
        Seconds for each decoding, by row, and by its decoder too if that is not `generate()`: all sentences of the
        first round, then of the next.

    Raises:
        ValueError: if a number is too small, there is no sentence, or one is too long for a model.
    """
    check_numbers({"num_beams": num_beams, "rounds": rounds, "the number of sentences": len(sentences)})
    for row, config in configs.items():
        check_positions(row, config, max(max(len(words), new_tokens) for words, new_tokens in sentences))
    torch.manual_seed(seed)
    runs = {}
    for row, config in configs.items():
        model = AutoModelForSeq2SeqLM.from_config(config).to(device).eval()
        for name, decoder in decoders(model, num_beams).items():
            runs[row if name == GENERATE else f"{row}, {name}"] = decoder
    times = {row: [] for row in runs}
    for words, new_tokens in [*sentences[:1] * 3, *[*sentences] * rounds]:
        input_ids = torch.tensor([words], device=device)
        batch = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
        for row, decoder in runs.items():
            times[row].append(seconds(partial(decoder, new_tokens=new_tokens), batch, device))
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
        f"vocabulary of {settings.vocab_size}, float32 but where it says otherwise, "
        f"{'CPU time' if settings.clock == 'cpu' else 'time that passed'}, {record.environment}."
    )
    return f"{table_in_markdown(rows)}\n\n{caption}"
