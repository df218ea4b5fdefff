"""Measure decoding of trained models on a whole file: BLEU and time of every decoder, CTranslate2's among them.

    python -m benchmarks.decoding trained --models transformer=runs/transformer/average gdr=runs/gdr/average \\
        --input_file test.en --references test.de --output_file decoding_trained.json

Decoders take turns on the file, which each of them splits into tokens, sorts by length, translates and joins. Loading a
model is not part of the time. BLEU is that of the text as it is in the file.
"""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.common.ctranslate2_models import CTRANSLATE2_PRECISIONS, ctranslate2_translator, for_ctranslate2
from benchmarks.common.workload import Measured, clock, seconds
from benchmarks.decoding.decoding_tables import file_report
from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.decoding.precision import PRECISIONS
from hf_capsule_mt.evaluation.scores import score_translations
from hf_capsule_mt.files import hash_text
from hf_capsule_mt.translation.preparation import TooLong
from hf_capsule_mt.translation.text_translator import TextTranslator

TOKENS_PER_BATCH = 4096
Translate = Callable[[list[str]], list[str]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--models", nargs="+", required=True, metavar="ROW=FOLDER", help="checkpoints by their row")
    parser.add_argument("--input_file", type=Path, required=True, help="sources (.gz)")
    parser.add_argument("--references", type=Path, required=True, help="their references (.gz)")
    parser.add_argument("--num_beams", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--output_file", help="a JSON record of every measurement")


def measure(args: argparse.Namespace) -> Measured:
    """Measure all models."""
    args.device = "cpu"
    sources = read_lines(args.input_file)
    references = read_lines(args.references)
    models = {}
    for named in args.models:
        row, _, folder = named.partition("=")
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        decoders = file_decoders(model, AutoTokenizer.from_pretrained(folder), args.num_beams)
        models[row] = take_turns(decoders, sources, references, args.rounds)
    files = [
        {"file": str(args.input_file), "sha256": hash_text(sources)},
        {"file": str(args.references), "sha256": hash_text(references)},
    ]
    return {"num_beams": args.num_beams, "clock": clock("cpu"), "test": files, "models": models}, file_report


def file_decoders(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, num_beams: int) -> dict[str, Translate]:
    """Return what translates lines, by name."""
    translate = partial(_translate_by_engine, TextTranslator(model, tokenizer), num_beams)
    decoders: dict[str, Translate] = {f"engine {dtype}": partial(translate, dtype) for dtype in PRECISIONS}
    plain = for_ctranslate2(model)
    if plain is not None:
        longest = plain.config.max_position_embeddings - 1
        for precision in CTRANSLATE2_PRECISIONS:
            translator = ctranslate2_translator(plain, precision)
            decoders[f"CTranslate2 {precision}"] = partial(_translate_file, translator, tokenizer, num_beams, longest)
    return decoders


def _translate_by_engine(translator: TextTranslator, num_beams: int, dtype: str, lines: list[str]) -> list[str]:
    """Translate lines as `translate` does."""
    prepared = [translator.reader.prepare(line, too_long=TooLong.CUT) for line in lines]
    sentences = [text.sentences[0] for text in prepared]
    batches = batch_by_tokens([len(sentence.token_ids) for sentence in sentences], TOKENS_PER_BATCH)
    ranked = translator.decode(sentences, batches, dtype=dtype, num_beams=num_beams, length_penalty=1.0)
    return [translator.join(*of_text).text for of_text in zip(prepared, ([one] for one in ranked), strict=True)]


def _translate_file(
    translator: Any, tokenizer: PreTrainedTokenizerBase, num_beams: int, longest: int, lines: list[str]
) -> list[str]:
    """Translate lines with CTranslate2, which splits and joins them by the tokenizer."""

    def tokenize(line: str) -> list[str]:
        return [str(token_id) for token_id in tokenizer(line)["input_ids"]]

    def detokenize(tokens: list[str]) -> str:
        return tokenizer.decode([int(token) for token in tokens], skip_special_tokens=True)

    with TemporaryDirectory() as folder:
        source = Path(folder, "source")
        target = Path(folder, "target")
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        translator.translate_file(
            str(source),
            str(target),
            beam_size=num_beams,
            max_decoding_length=longest,
            max_batch_size=TOKENS_PER_BATCH,
            batch_type="tokens",
            read_batch_size=100 * TOKENS_PER_BATCH,
            source_tokenize_fn=tokenize,
            target_detokenize_fn=detokenize,
        )
        return read_lines(target)


def take_turns(
    decoders: Mapping[str, Translate], sources: list[str], references: list[str], rounds: int
) -> dict[str, dict[str, Any]]:
    """Let the decoders take turns on the sources.

    Args:
        decoders: by name.
        sources: the lines of a file.
        references: as many lines.
        rounds: how often each translates, after a first round that does not count.

    Returns:
        By decoder "seconds" of every round, and "bleu" of the last translations.
    """
    translations: dict[str, list[str]] = {}
    times: dict[str, list[float]] = {name: [] for name in decoders}

    def run(name: str) -> None:
        translations[name] = decoders[name](sources)

    for number in range(rounds + 1):
        for name in decoders:
            taken = seconds(partial(run, name), "cpu")
            if number > 0:
                times[name].append(taken)
    results = {}
    for name, lines in translations.items():
        scores = score_translations(lines, [references], tokenize="none", metrics=("bleu",))
        results[name] = {"seconds": times[name], "bleu": scores["bleu"]}
    return results
