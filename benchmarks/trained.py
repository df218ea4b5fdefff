"""Measure decoding of trained models on a whole file: BLEU and time of every decoder, CTranslate2's among them.

    python benchmarks/trained.py --models transformer=runs/transformer/average gdr=runs/gdr/average \
        --test test.en test.de --output_file benchmarks/records/decoding_trained.json

Decoders take turns on the file, which each of them splits into tokens, sorts by length, translates and joins. Loading a
model is not part of the time. BLEU is that of the text as it is in the file.
The engine in float32 finds what `generate()` finds.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.speed.decoders import CTRANSLATE2_PRECISIONS, ctranslate2_translator, for_ctranslate2
from benchmarks.speed.speed import clock, seconds
from hf_capsule_mt.checkpoints import load_tokenizer
from hf_capsule_mt.data.parallel_text import read_lines
from hf_capsule_mt.decoding.precisions import PRECISIONS
from hf_capsule_mt.evaluation.scores import score_translations
from hf_capsule_mt.files import hash_text
from hf_capsule_mt.records import DataFile, Environment, FileDecoder, FileDecodingRecord, Score, write
from hf_capsule_mt.translation.translator import translate_lines

if TYPE_CHECKING:
    from ctranslate2 import Translator

CPU = torch.device("cpu")
TOKENS_PER_BATCH = 4096


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, metavar="ROW=FOLDER", help="checkpoints by their row")
    parser.add_argument("--test", type=Path, nargs=2, required=True, help="sources and references (.gz)")
    parser.add_argument("--num_beams", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--output_file", type=Path, required=True)
    args = parser.parse_args()
    sources, references = map(read_lines, args.test)
    models = {}
    for row, _, folder in (item.partition("=") for item in args.models):
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        decoders = file_decoders(model, load_tokenizer(folder), args.num_beams)
        models[row] = measure(decoders, sources, references, args.rounds)
        for name, found in models[row].items():
            print(row, name, f"BLEU {found.bleu.score:.2f}, seconds", *(f"{one:.1f}" for one in found.seconds))
    files = [DataFile(str(file), hash_text(lines)) for file, lines in zip(args.test, (sources, references))]
    record = FileDecodingRecord(
        num_beams=args.num_beams, clock=clock(CPU), test=files, models=models, environment=Environment.here("cpu")
    )
    write(record, args.output_file)


def file_decoders(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, num_beams: int
) -> dict[str, Callable[[list[str]], list[str]]]:
    """Return what translates lines, by name."""
    translate = partial(
        translate_lines,
        model,
        tokenizer,
        max_tokens_per_batch=TOKENS_PER_BATCH,
        num_beams=num_beams,
        length_penalty=1.0,
    )
    found: dict[str, Callable[[list[str]], list[str]]] = {
        f"engine {precision}": partial(translate, dtype=precision) for precision in PRECISIONS
    }
    if (plain := for_ctranslate2(model)) is not None:
        longest = plain.config.max_position_embeddings - 1
        for precision in CTRANSLATE2_PRECISIONS:
            translator = ctranslate2_translator(plain, precision)
            found[f"CTranslate2 {precision}"] = partial(translate_file, translator, tokenizer, num_beams, longest)
    return found


def translate_file(
    translator: "Translator", tokenizer: PreTrainedTokenizerBase, num_beams: int, longest: int, lines: list[str]
) -> list[str]:
    """Translate by CTranslate2's `translate_file`."""
    with TemporaryDirectory() as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        translator.translate_file(
            str(source),
            str(target),
            beam_size=num_beams,
            max_decoding_length=longest,
            max_batch_size=TOKENS_PER_BATCH,
            batch_type="tokens",
            read_batch_size=100 * TOKENS_PER_BATCH,
            source_tokenize_fn=lambda line: [str(word) for word in tokenizer(line)["input_ids"]],
            target_detokenize_fn=lambda words: tokenizer.decode(list(map(int, words)), skip_special_tokens=True),
        )
        return read_lines(target)


def measure(
    decoders: dict[str, Callable[[list[str]], list[str]]], sources: list[str], references: list[str], rounds: int
) -> dict[str, FileDecoder]:
    """Let the decoders take turns on the sources; the first round, which warms them up, is not counted."""
    translations: dict[str, list[str]] = {}
    times: dict[str, list[float]] = {name: [] for name in decoders}
    for number in range(rounds + 1):
        for name, decode in decoders.items():
            taken = seconds(lambda lines: translations.update({name: decode(lines)}), sources, CPU)  # noqa: B023
            times[name] += [taken] if number else []
    found = {}
    for name, lines in translations.items():
        score = score_translations(lines, [references], tokenize="none", metrics=("bleu",))["bleu"]
        found[name] = FileDecoder(times[name], Score(**score))
    return found


if __name__ == "__main__":
    main()
