"""Compare decoders at the shape of NLLB-600M: generate(), the engine, and CTranslate2, with all words and with a set.

    OMP_NUM_THREADS=1 python -m benchmarks.decoding nllb --words 32768 --output_file nllb.json
    OMP_NUM_THREADS=1 python -m benchmarks.decoding nllb --model mbart --vocab_size 250054 --output_file mbart50.json

`--model mbart` has the same sizes and the layers of mBART.

Weights are random, because they change no time: every translation has the same length. The decoders of a precision take
turns with generate() on the same batches. Then their memory is freed. The next precision takes turns with generate()
again.
"""

import argparse
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    PreTrainedModel,
)

from benchmarks.common.tables import GENERATE, clock_in_words, machine
from benchmarks.common.workload import Batch, decode, peak_memory, take_turns
from hf_capsule_mt.decoding import ShortlistLogitsProcessor, engine_of, generate, release
from hf_capsule_mt.evaluation.tables import table_in_markdown

PRECISIONS = ("float32", "bfloat16", "int8")
MODELS = {
    "m2m100": (M2M100Config, M2M100ForConditionalGeneration),
    "mbart": (MBartConfig, MBartForConditionalGeneration),
}
"""The configuration and the class of each model."""
GOALS = {
    ("float32", 1): "1.6 / 1.4",
    ("float32", 16): "1.5 / 1.0",
    ("bfloat16", 1): "2.7 / –",
    ("bfloat16", 16): "3.7 / –",
    ("int8", 1): "4.5 / 1.1",
    ("int8", 16): "5.5 / 1.6",
}
GOALS_OF_WORDS = {
    ("float32", 1): "3.0 / 1.3",
    ("float32", 16): "2.8 / 0.85",
    ("bfloat16", 1): "5.0 / –",
    ("bfloat16", 16): "6.5 / –",
    ("int8", 1): "7.5 / 0.7",
    ("int8", 16): "9.0 / 1.1",
}
"""Times as fast as generate(), and as CTranslate2 in the same precision."""
_END, _UNKNOWN, _FIRST_WORD = 2, 3, 4
_NOISE = 1_000_003
"""Random numbers that all weights repeat. Drawing each of 615 million takes much longer."""
_GIB = 2**30

Decoder = Callable[[Batch], object]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = partial(parser.add_argument, type=int)
    add("--words", default=32_768, help="size of the set of words (default: %(default)s)")
    add("--batch_sizes", nargs="+", default=[1, 16], help="sentences (default: 1 16)")
    add("--length", default=24, help="tokens of every source and translation (default: %(default)s)")
    add("--num_beams", default=4, help="beams (default: %(default)s)")
    add("--rounds", default=3, help="batches that are timed (default: %(default)s)")
    add("--vocab_size", default=256_206, help="words (default: %(default)s)")
    add("--layers", default=12, help="layers of the encoder, and of the decoder (default: %(default)s)")
    add("--d_model", default=1024, help="width (default: %(default)s)")
    add("--memory_tokens", default=4096, help="source tokens whose memory is measured, 0 for none (default: 4096)")
    add("--seed", default=0)
    parser.add_argument("--model", choices=MODELS, default="m2m100", help="class of the model (default: %(default)s)")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--output_file", type=Path, help="write a record in JSON")
    parser.set_defaults(device="cpu")


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], str]]:
    """Measure all precisions. Return the results, and what makes the table of their record."""
    model = random_model(args)
    # Later, an engine would take memory that timing has freed, and seem to need none.
    memory = _memory(args, model) if args.memory_tokens else {}
    release(model)
    words = [*range(args.words - 1), _language(args)]
    seconds: dict[str, dict[str, dict[str, list[float]]]] = {}
    for precision in args.precisions:
        runs = {GENERATE: partial(_by_model, model, args, None, None)}
        runs["engine"] = partial(_by_model, model, args, precision, None)
        runs["engine, words"] = partial(_by_model, model, args, precision, ShortlistLogitsProcessor(words))
        if precision != "bfloat16":
            # CTranslate2 has no fast products in bfloat16 on these machines.
            translator = _ctranslate2(args, precision, words)
            runs["CTranslate2"] = partial(_by_ctranslate2, translator, args, False)
            runs["CTranslate2, words"] = partial(_by_ctranslate2, translator, args, True)
        seconds[precision] = {str(size): _seconds(args, runs, size) for size in args.batch_sizes}
        runs.clear()
        translator = None
        release(model)
    return {"results": {}, "seconds": seconds, "memory": memory}, report


def _language(args: argparse.Namespace) -> int:
    """Return the token of the target language, which is one of the last."""
    return args.vocab_size - 159


def random_model(args: argparse.Namespace) -> PreTrainedModel:
    """Return a model of the shape of NLLB-600M whose weights repeat one block of noise."""
    config_class, model_class = MODELS[args.model]
    side = {"layers": args.layers, "attention_heads": args.d_model // 64, "ffn_dim": 4 * args.d_model}
    shape = {f"{name}_{key}": value for name in ("encoder", "decoder") for key, value in side.items()}
    shape |= {"vocab_size": args.vocab_size, "d_model": args.d_model, "max_position_embeddings": 1024}
    config = config_class(**shape, scale_embedding=True, decoder_start_token_id=_END)
    with torch.device("meta"):
        model = model_class(config)
    model.to_empty(device="cpu")
    model.tie_weights()
    noise = torch.randn(_NOISE, generator=torch.Generator().manual_seed(args.seed)) * 0.02
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.fill_(float(name.endswith("weight")))
            else:
                _fill(parameter, noise)
    if args.model == "m2m100":
        _make_positions(model)
    else:
        model.final_logits_bias.zero_()
    return model.eval()


def _make_positions(model: M2M100ForConditionalGeneration) -> None:
    """Compute the sinusoids, which are no parameters."""
    for stack in (model.model.encoder, model.model.decoder):
        positions = stack.embed_positions
        positions.make_weights(len(positions.weights), positions.embedding_dim, positions.padding_idx)


def _fill(parameter: Tensor, noise: Tensor) -> None:
    flat = parameter.view(-1)
    for start in range(0, len(flat), len(noise)):
        part = flat[start : start + len(noise)]
        part.copy_(noise[: len(part)])


def _batch(args: argparse.Namespace, sentences: int, generator: torch.Generator, length: int | None = None) -> Batch:
    """Return random sources, each with its language in front and its end."""
    ids = torch.randint(_FIRST_WORD, _language(args), (sentences, length or args.length), generator=generator)
    ids[:, 0] = _language(args)
    ids[:, -1] = _END
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _seconds(args: argparse.Namespace, runs: Mapping[str, Decoder], sentences: int) -> dict[str, list[float]]:
    """Return the seconds of every decoder in every round."""
    generator = torch.Generator().manual_seed(args.seed)
    batches = [_batch(args, sentences, generator) for _ in range(args.rounds)]
    for run in runs.values():
        # What is made at the first call is not timed.
        run(batches[0], length=2)
    rounds = take_turns([*runs.values()], batches, args.device)
    return {name: list(times) for name, times in zip(runs, zip(*rounds, strict=True), strict=True)}


def _by_model(
    model: PreTrainedModel,
    args: argparse.Namespace,
    precision: str | None,
    words: ShortlistLogitsProcessor | None,
    batch: Batch,
    length: int | None = None,
) -> Tensor:
    """Decode by the engine in a precision, which reads the sources too. Without one only the model decodes."""
    options: dict[str, Any] = {"forced_bos_token_id": _language(args)}
    if words is not None:
        options["logits_processor"] = LogitsProcessorList([words])
    if precision is not None:
        options["encoder_outputs"] = engine_of(model, precision).encode(**batch)
        options["custom_generate"] = partial(generate, dtype=precision)
    return decode(model, batch, length or args.length, args.num_beams, **options)


def _ctranslate2(args: argparse.Namespace, precision: str, words: list[int]) -> Any:
    """Return CTranslate2's translator of the model. Its words are the token ids, as text, and its vmap is the set."""
    import ctranslate2
    from ctranslate2.converters.transformers import M2M100Loader, MBartLoader

    # A model of its own: the conversion to int8 multiplies the weights that it is given by their scales.
    model = random_model(args)
    if isinstance(model, MBartForConditionalGeneration):
        # As the configurations of the published models say it.
        model.config.normalize_before = True
        spec = MBartLoader().get_model_spec(model)
    else:
        spec = M2M100Loader().get_model_spec(model)
    vocabulary = [str(word) for word in range(model.config.vocab_size)]
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.bos_token = "0"
    spec.config.eos_token = spec.config.decoder_start_token = str(_END)
    spec.config.unk_token = str(_UNKNOWN)
    with TemporaryDirectory() as folder:
        vmap = Path(folder, "words")
        vmap.write_text("\t" + " ".join(map(str, words)) + "\n")
        spec.register_vocabulary_mapping(str(vmap))
        spec.validate()
        spec.optimize(quantization="int8" if precision == "int8" else None)
        converted = Path(folder, "model")
        converted.mkdir()
        spec.save(str(converted))
        del spec, model
        return ctranslate2.Translator(str(converted), compute_type=precision, intra_threads=torch.get_num_threads())


def _by_ctranslate2(
    translator: Any, args: argparse.Namespace, has_set: bool, batch: Batch, length: int | None = None
) -> None:
    length = length or args.length
    sources = [[str(token) for token in row] for row in batch["input_ids"].tolist()]
    results = translator.translate_batch(
        sources,
        target_prefix=[[str(_language(args))]] * len(sources),
        use_vmap=has_set,
        beam_size=args.num_beams,
        max_batch_size=len(sources),
        min_decoding_length=length,
        max_decoding_length=length,
    )
    lengths = {len(result.hypotheses[0]) for result in results}
    if lengths != {length}:
        raise RuntimeError(f"CTranslate2 wrote {lengths} words, not {length}")


def _memory(args: argparse.Namespace, model: PreTrainedModel) -> dict[str, float]:
    """Return what an engine in int8 takes of the process's memory, and what long sources take, in GiB."""
    before = _resident()
    with _highest_resident() as highest:
        engine_of(model, "int8")
    memory = {"engine": _resident() - before, "making it": highest[0] - before}
    sentences = args.memory_tokens // 128
    batch = _batch(args, sentences, torch.Generator().manual_seed(args.seed), 128)
    for name, precision in ((f"{GENERATE}, sources", None), ("engine, sources", "int8")):
        run = partial(_by_model, model, args, precision, None, batch, 4)
        memory[name] = peak_memory(run, args.device)
    return {name: size / _GIB for name, size in memory.items()}


def _resident() -> int:
    """Return the memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@contextmanager
def _highest_resident() -> Iterator[list[int]]:
    """Yield a list with the most memory that this process has had in the block, once it has ended."""
    highest = [_resident()]
    stops = Event()

    def watch() -> None:
        while not stops.is_set():
            highest[0] = max(highest[0], _resident())
            time.sleep(0.005)

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield highest
    finally:
        stops.set()
        watcher.join()


def report(record: Mapping[str, Any]) -> str:
    """Return the tables of a record in Markdown."""
    settings = record["settings"]
    number = settings["rounds"]
    rounds = "One round" if number == 1 else f"Median of {number} rounds"
    lines = [_speed(record)]
    lines.append(
        f"Times as fast as generate(), then as CTranslate2 in the same precision. Higher is faster. "
        f"{rounds} of {clock_in_words(settings['clock'])}. {settings['num_beams']} beams, "
        f"{settings['length']} tokens read and written, sets of {settings['words']:,} words. "
        f"{machine(record['environment'], ctranslate2=record['environment']['packages'].get('ctranslate2'))}."
    )
    if record["memory"]:
        lines.append(_memory_table(record["memory"]))
    return "\n\n".join(lines)


def _speed(record: Mapping[str, Any]) -> str:
    sizes = record["settings"]["batch_sizes"]
    # Older records are all of this model.
    has_goals = record["settings"].get("model", "m2m100") == "m2m100"
    header = ["", *(f"{size} sentence{'s' * (size > 1)}{rest}" for rest in ("", ", a set of words") for size in sizes)]
    table = [header]
    for precision, of_sizes in record["seconds"].items():
        cells = [precision]
        goals = [f"{precision}, goal"]
        for rest, known_goals in (("", GOALS), (", words", GOALS_OF_WORDS)):
            for size in sizes:
                cells.append(_cell(of_sizes[str(size)], rest))
                goals.append(known_goals.get((precision, size), ""))
        table.append(cells)
        if has_goals:
            table.append(goals)
    times = ["seconds of generate()"]
    for size in sizes:
        of_all = [time for of_sizes in record["seconds"].values() for time in of_sizes[str(size)][GENERATE]]
        times.append(f"{median(of_all):.1f} ({min(of_all):.1f}–{max(of_all):.1f})")
    table.append([*times, *[""] * len(sizes)])
    return table_in_markdown(table)


def _cell(seconds: Mapping[str, list[float]], rest: str) -> str:
    """Return how many times as fast the engine is as `generate()`, and as CTranslate2 with the same words."""
    own = seconds[f"engine{rest}"]
    cells = []
    for name in (GENERATE, f"CTranslate2{rest}"):
        if name in seconds:
            ratios = [other / time for other, time in zip(seconds[name], own, strict=True)]
            cells.append(f"{median(ratios):.2f}")
        else:
            cells.append("–")
    return " / ".join(cells)


def _memory_table(memory: Mapping[str, float]) -> str:
    table = [["int8", "GiB"], *([name, f"{size:.2f}"] for name, size in memory.items())]
    return table_in_markdown(table)
