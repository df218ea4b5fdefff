"""Work that is timed: updates and decoding of random words, by models with random weights."""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from itertools import cycle, islice
from typing import Any
from weakref import finalize

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForSeq2SeqLM, MarianConfig, PreTrainedConfig, PreTrainedModel

from benchmarks.common.records import Record
from hf_capsule_mt.configuration import RNMTConfig, preset_config
from hf_capsule_mt.data.batching import TokenBudgetBatchSampler
from hf_capsule_mt.training.options import parse_override

METHODS = ("transformer", "linear-combination", "dynamic-combination", "dynamic-routing", "em-routing")
"""What is measured if no method is named."""
# Word pieces in a sentence: about those of newstest under 32,000 joint merges.
MEDIAN_LENGTH = 24
LENGTH_SPREAD = 0.5
LENGTH_LIMITS = (4, 96)
_LENGTH_RATIO_SPREAD = 0.15
FIRST_WORD = 3  # the ids before it are special tokens
_POOL = 2000  # pairs that training batches are cut from

Batch = dict[str, Tensor]
Measured = tuple[dict[str, Any], Callable[[Record], str]]
"""Results, and what makes the table of their record."""


def add_row_options(parser: argparse.ArgumentParser, methods: Sequence[str]) -> None:
    """Add the options that name what is measured, by default `methods`."""
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(methods),
        metavar="ROW",
        help='METHOD or "METHOD NAME=VALUE ..." (default: %(default)s)',
    )
    parser.add_argument("--size", default="base", help="tiny, base (default) or big")
    parser.add_argument("--config_overrides", nargs="+", default=[], metavar="NAME=VALUE", help="of every row")
    parser.add_argument("--vocab_size", type=int, default=32000, help="default: %(default)s")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=device, help="default: cuda where there is one")
    parser.add_argument("--seed", type=int, default=0, help="of weights and words (default: %(default)s)")
    parser.add_argument("--output_file", help="a JSON record of every measurement")


def add_workload_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of batches and rounds."""

    def add(option: str, default: int, description: str, dest: str | None = None) -> None:
        parser.add_argument(option, dest=dest, type=int, default=default, help=f"{description} (default: %(default)s)")

    # The records have the names max_tokens and new_tokens.
    add("--max_tokens_per_batch", 1024, "padded tokens of a training batch", dest="max_tokens")
    add("--batch_size", 16, "sentences decoded together")
    add("--num_beams", 4, "beams in decoding")
    add("--max_new_tokens", 24, "length of every translation, in tokens", dest="new_tokens")
    add("--rounds", 5, "timed turns of each model")
    add("--warmup_rounds", 1, "turns before them that do not count")


def configs_of_rows(args: argparse.Namespace, longest: int) -> dict[str, PreTrainedConfig]:
    """Return the configuration of every row, with positions for sentences of `longest` words."""
    configs = {}
    for row in args.methods:
        method, *of_row = row.split()
        overrides = dict(parse_override(text) for text in [*args.config_overrides, *of_row])
        config = preset_config(method, args.size, vocab_size=args.vocab_size, **overrides)
        if hasattr(config, "max_position_embeddings"):
            config.max_position_embeddings = max(config.max_position_embeddings, longest + 1)
        configs[row] = config
    return configs


def plain_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """Return the configuration of the plain model of the same size: `transformers.MarianMTModel`, or RNMT."""
    if isinstance(config, RNMTConfig):
        return RNMTConfig(**{**config.to_dict(), "guided_routing": None, "sentence_aggregation": None})
    if not isinstance(config, MarianConfig):
        raise ValueError(f"{config.model_type} has no plain model to be compared with.")
    known = {field.name for field in fields(MarianConfig)}
    values = {name: value for name, value in config.to_dict().items() if name in known}
    return MarianConfig(**{**values, "architectures": None})


def new_model(config: PreTrainedConfig, device: torch.device) -> PreTrainedModel:
    """Return a model with random weights, in evaluation mode."""
    return AutoModelForSeq2SeqLM.from_config(config).to(device).eval()


def training_batches(args: argparse.Namespace) -> list[Batch]:
    """Return batches of random words for every round, cut as the training command cuts them."""
    generator = torch.Generator().manual_seed(args.seed)
    lengths = _draw_lengths(_POOL, generator)
    sampler = TokenBudgetBatchSampler(lengths, args.max_tokens, seed=args.seed)
    batches = []
    for indices in islice(cycle(sampler), args.warmup_rounds + args.rounds):
        of_batch = [lengths[index] for index in indices]
        batches.append(random_batch(of_batch, args.vocab_size, generator, args.device))
    return batches


def decoding_batches(args: argparse.Namespace) -> list[Batch]:
    """Return sources of random words for every round, similar lengths together as the translation command puts them."""
    generator = torch.Generator().manual_seed(args.seed)
    size = args.batch_size
    lengths = sorted(_draw_lengths(size * (args.warmup_rounds + args.rounds), generator))
    batches = []
    for start in range(0, len(lengths), size):
        batch = random_batch(lengths[start : start + size], args.vocab_size, generator, args.device)
        batches.append(without_labels(batch))
    return batches


def number_of_words(batch: Batch) -> int:
    """Return the number of target words of a batch, without padding."""
    is_word = batch["labels"] >= 0
    return int(is_word.sum())


def without_labels(batch: Batch) -> Batch:
    """Return the sources of a batch."""
    return {name: value for name, value in batch.items() if name != "labels"}


def _draw_lengths(count: int, generator: torch.Generator) -> list[tuple[int, int]]:
    """Return source and target lengths: log-normal, and so is the ratio of the two."""
    median = torch.tensor(float(MEDIAN_LENGTH)).log()
    source = torch.empty(count).log_normal_(median, LENGTH_SPREAD, generator=generator)
    target = source * torch.empty(count).log_normal_(0, _LENGTH_RATIO_SPREAD, generator=generator)
    return torch.stack([source, target], 1).round().clamp(*LENGTH_LIMITS).int().tolist()


def random_batch(
    lengths: Sequence[tuple[int, int]], vocab_size: int, generator: torch.Generator, device: torch.device | str
) -> Batch:
    """Return pairs of random words.

    Args:
        lengths: of source and target of each pair.
        vocab_size: token ids are below it.
        generator: draws the words.
        device: of the tensors.
    """

    def draw(length: int) -> Tensor:
        return torch.randint(FIRST_WORD, vocab_size, (length,), generator=generator)

    # All sources are drawn before the targets.
    sources = [draw(length) for length, _ in lengths]
    targets = [draw(length) for _, length in lengths]
    input_ids = pad_sequence(sources, batch_first=True).to(device)
    labels = pad_sequence(targets, batch_first=True, padding_value=-100).to(device)
    return {"input_ids": input_ids, "attention_mask": (input_ids > 0).long(), "labels": labels}


def make_trainer(model: PreTrainedModel, dtype: torch.dtype = torch.float32) -> Callable[[Batch], None]:
    """Return a full update: forward, backward, the Trainer's default optimizer, gradients cleared."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def update(batch: Batch) -> None:
        with torch.autocast(model.device.type, dtype, enabled=dtype != torch.float32):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


def decode(model: PreTrainedModel, batch: Batch, new_tokens: int, num_beams: int, **options: Any) -> Tensor:
    """Write exactly so many words for every sentence, by greedy or beam search.

    Args:
        model: translates.
        batch: the sources.
        new_tokens: length of every translation.
        num_beams: 1 is greedy search.
        **options: of `generate()`.

    Returns:
        Token ids, `[batch, 1 + new_tokens]`.
    """
    model.generation_config.update(max_length=None, forced_eos_token_id=None)
    lengths = {"min_new_tokens": new_tokens, "max_new_tokens": new_tokens}
    return model.generate(**batch, num_beams=num_beams, **lengths, **options)


def take_turns(
    runs: Sequence[Callable[[Any], object]], batches: Sequence[Any], device: torch.device | str
) -> list[tuple[float, ...]]:
    """Return the seconds of all on every batch: the first, the second, ..., the first, the second, ..."""
    times = []
    for batch in batches:
        times.append(tuple(seconds(partial(run, batch), device) for run in runs))
    return times


def seconds(run: Callable[[], object], device: torch.device | str) -> float:
    """Return the seconds that `run()` takes by [`clock`], with the work it starts on the device.

    `torch.utils.benchmark.Timer` would run it twice before, so that models could not take turns on new batches.
    """
    now = time.process_time if clock(device) == "cpu" else time.perf_counter
    _synchronize(device)
    start = now()
    run()
    _synchronize(device)
    return now() - start


def clock(device: torch.device | str) -> str:
    """Return "cpu", which other processes disturb less, where one thread does all the work; else "wall"."""
    return "cpu" if torch.device(device).type == "cpu" and torch.get_num_threads() == 1 else "wall"


def _synchronize(device: torch.device | str) -> None:
    if torch.device(device).type != "cpu":
        torch.accelerator.synchronize(device)


def peak_memory(run: Callable[[], object], device: torch.device | str) -> int:
    """Return the most bytes of tensors that `run()` has on the device at one time, beyond those before it.

    On a CPU what an operation uses inside itself does not count.
    """
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with _LiveTensors() as live:
        run()
    return live.peak


class _LiveTensors(TorchDispatchMode):
    """Counts the memory of the tensors that operations return, until it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._bytes = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable, types: Sequence[type], args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        before = {tensor.untyped_storage()._cdata for tensor in _tensors((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            if storage._cdata not in before and storage._cdata not in self._known:
                self._known.add(storage._cdata)
                self._bytes += storage.nbytes()
                self.peak = max(self.peak, self._bytes)
                finalize(storage, self._forget, storage._cdata, storage.nbytes())
        return result

    def _forget(self, address: int, size: int) -> None:
        self._known.discard(address)
        self._bytes -= size


def _tensors(values: Any) -> list[Tensor]:
    # The memory of tensors in oneDNN's layout cannot be asked for. They are weights.
    return [x for x in tree_leaves(values) if isinstance(x, Tensor) and x.layout == torch.strided]
