"""Training and decoding speed, and memory, next to a plain model: Train and Decode of Dou et al. 2019, Table 1.

The two models take turns on the same batches in the same process, so that whatever slows the machine slows both.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForSeq2SeqLM, MarianConfig, PreTrainedConfig, PreTrainedModel

from benchmarks.speed.memory import peak_memory
from hf_capsule_mt.checkpoints import count_parameters
from hf_capsule_mt.configuration import RNMTConfig
from hf_capsule_mt.data.batching import TokenBudgetBatchSampler
from hf_capsule_mt.records import Comparison, Rates
from hf_capsule_mt.translation.source_limits import positions

# Word pieces in a sentence: about those of newstest under 32,000 joint merges.
MEDIAN_LENGTH, LENGTH_SPREAD, LENGTH_LIMITS = 24, 0.5, (4, 96)
_LENGTH_RATIO_SPREAD = 0.15
FIRST_WORD = 3  # the ids before it are special tokens
_POOL = 2000  # pairs that training batches are cut from
MEMORY_LENGTH = 128  # words of source and target of every sentence, where memory is measured

Batch = dict[str, Tensor]
T = TypeVar("T")


def check_numbers(numbers: Mapping[str, int], least: Mapping[str, int] = MappingProxyType({})) -> None:
    """Raise ValueError unless every one of the named numbers is at least its `least`, or 1 where that has none."""
    for name, value in numbers.items():
        if value < least.get(name, 1):
            raise ValueError(f"{name} is {value}; it must be at least {least.get(name, 1)}")


def check_positions(row: str, config: PreTrainedConfig, words: int) -> None:
    """Raise ValueError unless the model of a row has positions for so many words, and what decoding starts with."""
    most = positions(config)
    if most is not None and most <= words:
        raise ValueError(
            f"{row} has {most} positions, too few for {words} words and a start token; give it "
            f"max_position_embeddings={words + 1}"
        )


@dataclass(frozen=True)
class Workload:
    """Work that is timed.

    Attributes:
        max_tokens: padded tokens of a training batch, see [`TokenBudgetBatchSampler`].
        batch_size: sentences that are decoded together.
        num_beams: of decoding.
        new_tokens: exact length of every translation, so that all models do the same work.
        rounds: timed turns of each model.
        warmup_rounds: turns before them that do not count.
        seed: of weights, lengths and words.

    Raises:
        ValueError: if a number is too small.
    """

    max_tokens: int
    batch_size: int
    num_beams: int
    new_tokens: int
    rounds: int
    warmup_rounds: int
    seed: int

    def __post_init__(self) -> None:
        least = {"max_tokens": LENGTH_LIMITS[1], "warmup_rounds": 0, "seed": 0}
        check_numbers(dataclasses.asdict(self), least)


def plain_config(config: PreTrainedConfig) -> MarianConfig | RNMTConfig:
    """The configuration of the plain model of the same size: `transformers.MarianMTModel`, or RNMT without capsules.

    Raises:
        ValueError: if the family has no plain model.
    """
    if isinstance(config, RNMTConfig):
        return RNMTConfig(**{**config.to_dict(), "guided_routing": None, "sentence_aggregation": None})
    if not isinstance(config, MarianConfig):
        raise ValueError(f"{config.model_type} has no plain model to be compared with; Marian's family and RNMT's have")
    known = {field.name for field in dataclasses.fields(MarianConfig)}
    fields = {name: value for name, value in config.to_dict().items() if name in known}
    return MarianConfig(**{**fields, "architectures": None})


def compare_with_plain(
    config: PreTrainedConfig,
    workload: Workload,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Comparison:
    """Time the model of `config` and the plain one of its size, both with random weights, and measure their memory.

    Args:
        config: what is compared, with a vocabulary of more than 3 words.
        workload: batches and rounds.
        device: where both run.
        dtype: float32, or a lower precision: training then autocasts float32 weights to it, decoding has weights of it.

    Raises:
        ValueError: if the model has too few positions.
    """
    # Sources and labels have no start token in front of them.
    check_positions(f"the {config.model_type}", config, max(workload.new_tokens, MEMORY_LENGTH - 1))
    torch.manual_seed(workload.seed)
    plain, method = (AutoModelForSeq2SeqLM.from_config(each).to(device) for each in (plain_config(config), config))
    batches = training_batches(workload, config.vocab_size, device)
    counts = [int((batch["labels"] >= 0).sum()) for batch in batches]
    trainers = make_trainer(plain, dtype), make_trainer(method, dtype)
    seconds = take_turns(trainers, batches, device)
    training = _rates(seconds, counts, workload.warmup_rounds)
    batch = memory_batch(workload, config.vocab_size, device)
    memory = [update_memory(*pair, batch) for pair in zip((plain, method), trainers)]
    batches = decoding_batches(workload, config.vocab_size, device)
    counts = [workload.batch_size] * len(batches)
    runs = _decoder(plain, dtype, workload), _decoder(method, dtype, workload)
    seconds = take_turns(runs, batches, device)
    decoding = _rates(seconds, counts, workload.warmup_rounds)
    sizes = [count_parameters(model) for model in (plain, method)]
    return Comparison(*sizes, training, decoding, *memory)


def training_batches(workload: Workload, vocab_size: int, device: torch.device) -> list[Batch]:
    """Batches of random words for every round, cut as the training command cuts them."""
    generator = torch.Generator().manual_seed(workload.seed)
    lengths = _draw_lengths(_POOL, generator)
    sampler = TokenBudgetBatchSampler(lengths, workload.max_tokens, seed=workload.seed)
    batches = islice(cycle(sampler), workload.warmup_rounds + workload.rounds)
    return [random_batch([lengths[index] for index in indices], vocab_size, generator, device) for indices in batches]


def memory_batch(workload: Workload, vocab_size: int, device: torch.device) -> Batch:
    """Return a training batch of pairs of 128 words a side, as many as it may hold, but at least one.

    With 1,024 tokens it is the batch of B = 8, S = T = 128.
    """
    generator = torch.Generator().manual_seed(workload.seed)
    lengths = [(MEMORY_LENGTH, MEMORY_LENGTH)] * max(1, workload.max_tokens // MEMORY_LENGTH)
    return random_batch(lengths, vocab_size, generator, device)


def update_memory(model: PreTrainedModel, trainer: Callable[[Batch], None], batch: Batch) -> int:
    """Bytes of the weights, of AdamW's two means of each, and of all else that an update has at one time.

    Args:
        model: in float32.
        trainer: of [`make_trainer`], after its first update, which makes the optimizer's means.
        batch: what is trained on.
    """
    weights = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
    means = 2 * sum(weight.nbytes for weight in model.parameters() if weight.requires_grad)
    return weights + means + peak_memory(lambda: trainer(batch), model.device)


def decoding_batches(workload: Workload, vocab_size: int, device: torch.device) -> list[Batch]:
    """Sources of random words for every round, similar lengths together as the translation command puts them."""
    generator = torch.Generator().manual_seed(workload.seed)
    size = workload.batch_size
    lengths = sorted(_draw_lengths(size * (workload.warmup_rounds + workload.rounds), generator))
    batches = []
    for start in range(0, len(lengths), size):
        batch = random_batch(lengths[start : start + size], vocab_size, generator, device)
        del batch["labels"]
        batches.append(batch)
    return batches


def _draw_lengths(count: int, generator: torch.Generator) -> list[tuple[int, int]]:
    """Source and target lengths: log-normal, and so is the ratio of the two."""
    median = torch.tensor(float(MEDIAN_LENGTH)).log()
    source = torch.empty(count).log_normal_(median, LENGTH_SPREAD, generator=generator)
    target = source * torch.empty(count).log_normal_(0, _LENGTH_RATIO_SPREAD, generator=generator)
    return torch.stack([source, target], 1).round().clamp(*LENGTH_LIMITS).int().tolist()


def long_batch(sentences: int, length: int, vocab_size: int, device: torch.device) -> Batch:
    """Return sources of `length` random words each."""
    input_ids = torch.randint(FIRST_WORD, vocab_size, (sentences, length), device=device)
    return {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}


def random_batch(
    lengths: Sequence[tuple[int, int]], vocab_size: int, generator: torch.Generator, device: torch.device
) -> Batch:
    """Return pairs of random words, of so many on each side."""
    sources, targets = (
        [torch.randint(FIRST_WORD, vocab_size, (length,), generator=generator) for length in side]
        for side in zip(*lengths)
    )
    input_ids = pad_sequence(sources, batch_first=True).to(device)
    labels = pad_sequence(targets, batch_first=True, padding_value=-100).to(device)
    return {"input_ids": input_ids, "attention_mask": (input_ids > 0).long(), "labels": labels}


def make_trainer(model: PreTrainedModel, dtype: torch.dtype = torch.float32) -> Callable[[Batch], None]:
    """A full update: forward, backward, the Trainer's default optimizer, gradients cleared."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def update(batch: Batch) -> None:
        with torch.autocast(model.device.type, dtype, enabled=dtype != torch.float32):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


def _decoder(model: PreTrainedModel, dtype: torch.dtype, workload: Workload) -> Callable[[Batch], Tensor]:
    model.to(dtype).eval()
    return lambda batch: decode(model, batch, workload.new_tokens, workload.num_beams)


def decode(model: PreTrainedModel, batch: Batch, new_tokens: int, num_beams: int, **options: Any) -> Tensor:
    """Greedy or beam search that no end-of-sentence word ends early: `new_tokens` words for every sentence."""
    model.generation_config.update(max_length=None, forced_eos_token_id=None)
    lengths = {"min_new_tokens": new_tokens, "max_new_tokens": new_tokens}
    return model.generate(**batch, num_beams=num_beams, **lengths, **options)


def take_turns(
    runs: Sequence[Callable[[T], object]], batches: Sequence[T], device: torch.device
) -> list[tuple[float, ...]]:
    """Return the seconds of all on every batch: the first, the second, ..., the first, the second, ..."""
    return [tuple(seconds(run, batch, device) for run in runs) for batch in batches]


def seconds(run: Callable[[T], object], batch: T, device: torch.device) -> float:
    """Return the seconds that `run(batch)` takes by [`clock`], with the work it starts on the device."""
    now = time.process_time if clock(device) == "cpu" else time.perf_counter
    _synchronize(device)
    start = now()
    run(batch)
    _synchronize(device)
    return now() - start


def clock(device: torch.device) -> str:
    """Return "cpu", which other processes disturb less, where one thread does all the work; else "wall"."""
    return "cpu" if device.type == "cpu" and torch.get_num_threads() == 1 else "wall"


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _rates(seconds: Sequence[tuple[float, ...]], counts: Sequence[int], warmup_rounds: int) -> Rates:
    counted = [(count / plain, count / method) for count, (plain, method) in zip(counts, seconds)][warmup_rounds:]
    plain, method = zip(*counted)
    return Rates(list(plain), list(method))
