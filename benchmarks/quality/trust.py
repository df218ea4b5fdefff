"""Measure which made errors the fields of a report find, and whether calibrations hold on new sentences.

    python -m benchmarks.quality.trust make --data_dir tatoeba/en-de --output_file trust.jsonl
    python -m benchmarks.quality.trust run --data_dir tatoeba/en-de --errors trust.jsonl \
        --model checkpoints/tatoeba-en-de-transformer --output_file transformer.json
    python -m benchmarks.quality.trust page --records transformer.json --page docs/trust.md

`make` damages references in ten ways. `run` lets each model write them by force, and compares the fields of damaged
and whole references. Then it calibrates the model on val, and tests on test and test_long. Seeds are fixed. `page`
puts the tables of several records between the two marks of a page.
"""

import argparse
import json
import platform
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize

from benchmarks.quality.calibration import BAD, Quality, fit_calibration
from benchmarks.quality.damaged_references import KINDS, Pair, damage, first_only
from benchmarks.quality.measures import auroc, expected_calibration_error, sentence_chrf
from benchmarks.quality.trust_tables import tables_of
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.files import read_json, replace_text, write_json
from hf_capsule_mt.translation.alignment.forced import forced_pass
from hf_capsule_mt.translation.generation.model_options import DecodingOptions
from hf_capsule_mt.translation.quality.faults import Evidence
from hf_capsule_mt.translation.quality.judge import judge, judged
from hf_capsule_mt.translation.quality.signals import read_signals
from hf_capsule_mt.translation.quality.surface import compare_numbers, copied_share, wrong_script
from hf_capsule_mt.translation.text_translator import TextTranslator

Fields = dict[str, Any]
"""The fields of a report on a translation, by name. Also a line of the file of made errors."""

OMISSIONS = ("third", "clause")
SEED = 1
BATCH = 50
"""Sentences that are read or translated together."""
FIELDS = {
    "mean log-probability": ("score", -1),
    "lowest log-probability": ("lowest", -1),
    "log-probability of the end": ("end", -1),
    "short for its source": ("length_ratio", -1),
    "long for its source": ("length_ratio", 1),
    "coverage": ("coverage", -1),
    "number of uncovered words": ("uncovered", 1),
    "entropy of attention": ("entropy", 1),
    "copied words": ("copied", 1),
    "repeats": ("repeats", 1),
}
"""Fields by their names in the table, and whether larger ones are signals of errors."""
COMBINED = ("score", "lowest", "end", "length_ratio", "coverage", "uncovered", "entropy")
BEGIN = "<!-- The tables are made by benchmarks/quality/trust.py. -->"
END = "<!-- The end of the tables. -->"


def main() -> None:
    """Make damaged references, or measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("make", help="damage references")
    make.add_argument("--data_dir", type=Path, required=True, help="test.en.gz, test_long.en.gz and their references")
    make.add_argument("--sentences", type=int, default=400, help="default: %(default)s")
    make.add_argument("--output_file", type=Path, required=True)
    make.set_defaults(function=make_errors)
    run = commands.add_parser("run", help="measure")
    run.add_argument("--data_dir", type=Path, required=True, help="the same, and val")
    run.add_argument("--errors", type=Path, required=True, help="the file of make")
    run.add_argument("--model", required=True, help="folder of a checkpoint")
    run.add_argument("--test_sentences", type=int, default=1000, help="of each test of calibration")
    run.add_argument("--num_beams", type=int, default=4, help="of calibration (default: %(default)s)")
    run.add_argument("--output_file", type=Path, required=True, help="record in JSON")
    run.set_defaults(function=measure)
    page = commands.add_parser("page", help="write the tables")
    page.add_argument("--records", type=Path, nargs="+", required=True, help="files of run")
    page.add_argument("--page", type=Path, required=True, help="page whose tables are replaced")
    page.set_defaults(function=write_page)
    args = parser.parse_args()
    args.function(args)


def make_errors(args: argparse.Namespace) -> None:
    """Write damaged references, each with its whole one."""
    long_pairs = read_pairs(args.data_dir, "test_long")[: args.sentences]
    short_pairs = read_pairs(args.data_dir, "test")
    generator = random.Random(SEED)
    generator.shuffle(short_pairs)
    rows = []
    for number, (source, target) in enumerate(long_pairs):
        for kind in KINDS:
            if kind == "first only":
                continue
            damaged = damage(kind, source, target, long_pairs, generator)
            if damaged is not None and damaged != target:
                rows.append({"group": number, "kind": kind, "source": source, "whole": target, "damaged": damaged})
    for number in range(args.sentences):
        first, second = short_pairs[2 * number : 2 * number + 2]
        row = first_only(first, second)
        rows.append({"group": args.sentences + number, **row})
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    text = "".join(f"{line}\n" for line in lines)
    replace_text(args.output_file, text)


def read_pairs(folder: Path, name: str) -> list[Pair]:
    """Return the pairs of a part of the corpus."""
    sources = read_lines(folder / f"{name}.en.gz")
    targets = read_lines(folder / f"{name}.de.gz")
    return list(zip(sources, targets, strict=True))


def measure(args: argparse.Namespace) -> None:
    """Measure a model, and write the record."""
    begin = time.process_time()
    rows = [json.loads(line) for line in read_lines(args.errors)]
    options = DecodingOptions(args.model, num_beams=args.num_beams)
    translator = TextTranslator(*options.load(torch.device("cpu")))
    errors, combined = measure_errors(translator, rows)
    calibration = measure_calibration(translator, args)
    record = {
        "model": Path(args.model).name,
        "errors": errors,
        "combined": combined,
        "calibration": calibration,
        "false_flags": measure_flags(args.data_dir),
        "made_errors": len(rows),
        "test_sentences": args.test_sentences,
        "num_beams": args.num_beams,
        "machine": processor(),
        "date": date.today().isoformat(),
        "cpu_seconds": round(time.process_time() - begin),
        "command": shlex.join(["python", "-m", "benchmarks.quality.trust", *map(str, sys.argv[1:])]),
    }
    write_json(args.output_file, record)


def write_page(args: argparse.Namespace) -> None:
    """Put the tables of records between the marks of a page."""
    tables = tables_of([read_json(path) for path in args.records])
    text = args.page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    replace_text(args.page, f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}")


def processor() -> str:
    """Return the name of the processor by lscpu."""
    process = subprocess.run(["lscpu"], capture_output=True, text=True, check=True)
    for line in process.stdout.splitlines():
        name, _, value = line.partition(":")
        if name == "Model name":
            return value.strip()
    return platform.machine()


def fields_of(translator: TextTranslator, sources: Sequence[str], targets: Sequence[str]) -> list[Fields]:
    """Return the fields of a report for given translations."""
    tokenizer = translator.tokenizer
    source_ids = [tokenizer(source)["input_ids"] for source in sources]
    target_ids = [tokenizer(text_target=target)["input_ids"] for target in targets]

    def length(index: int) -> int:
        return len(source_ids[index]) + len(target_ids[index])

    # Sentences of like length share a batch.
    order = sorted(range(len(sources)), key=length)
    records: list[dict[str, Any]] = [{} for _ in order]
    for begin in range(0, len(order), BATCH):
        batch = order[begin : begin + BATCH]
        batch_sources = [source_ids[index] for index in batch]
        batch_targets = [target_ids[index] for index in batch]
        forced_targets = forced_pass(translator.model, batch_sources, batch_targets)
        for index, forced in zip(batch, forced_targets, strict=True):
            # The end is no word.
            words = target_ids[index][:-1]
            source = (sources[index], source_ids[index])
            target = (targets[index], words)
            signals = read_signals(forced, tokenizer, source, target, has_end=True)
            score = forced.mean_log_probability
            evidence = Evidence(source_ids[index], words, targets[index], signals=signals)
            records[index] = judged(evidence, score).fields()
    return records


def values_of(records: Sequence[Fields], field: str) -> np.ndarray:
    """Return a field of all records as numbers. A list counts its entries."""
    values = []
    for record in records:
        value = record[field]
        values.append(len(value) if isinstance(value, list) else float(value))
    return np.array(values)


@dataclass(frozen=True)
class Damaged:
    """A damaged reference and its whole one, with the fields of a report for both."""

    kind: str
    group: int
    """The number of its sentence. What is made of one sentence has the same."""
    damaged: Fields
    whole: Fields


def measure_errors(
    translator: TextTranslator, rows: Sequence[Fields]
) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Return the AUROC of each field for each kind of error, and what fields do together for omissions."""
    pairs = read_damaged(translator, rows)
    known_fields = [field for field, value in pairs[0].damaged.items() if value is not None]
    errors: dict[str, dict[str, float]] = {}
    for name, (field, direction) in FIELDS.items():
        if field in known_fields:
            errors[name] = {kind: area_of(pairs, kind, field, direction) for kind in KINDS}
    omissions = [pair for pair in pairs if pair.kind in OMISSIONS]
    records = [pair.damaged for pair in omissions] + [pair.whole for pair in omissions]
    groups = np.array([pair.group for pair in omissions] * 2)
    is_bad = first_of(len(omissions), len(records))
    combined = {"seven fields": combine(records, COMBINED, is_bad, groups)}
    return errors, combined


def read_damaged(translator: TextTranslator, rows: Sequence[Fields]) -> list[Damaged]:
    """Return damaged references with the fields of a report."""
    # Several damaged translations share a whole one.
    wholes = list(dict.fromkeys((row["source"], row["whole"]) for row in rows))
    whole_fields = fields_of(translator, *zip(*wholes))
    fields_of_whole = dict(zip(wholes, whole_fields, strict=True))
    sources = [row["source"] for row in rows]
    damaged_fields = fields_of(translator, sources, [row["damaged"] for row in rows])
    pairs = []
    for row, fields in zip(rows, damaged_fields, strict=True):
        whole = fields_of_whole[row["source"], row["whole"]]
        pairs.append(Damaged(row["kind"], row["group"], fields, whole))
    return pairs


def area_of(pairs: Sequence[Damaged], kind: str, field: str, direction: int) -> float:
    """Return the AUROC of a field for a kind of error.

    Args:
        pairs: damaged references of all kinds.
        kind: one of `KINDS`.
        field: of a report.
        direction: 1 if larger values are signals of errors, else -1.
    """
    of_kind = [pair for pair in pairs if pair.kind == kind]
    bad = values_of([pair.damaged for pair in of_kind], field)
    good = values_of([pair.whole for pair in of_kind], field)
    values = np.concatenate([bad, good])
    return auroc(first_of(len(bad), len(values)), direction * values)


def first_of(count: int, size: int) -> np.ndarray:
    """Return which of `size` are among the first `count`, `[size]`."""
    return np.arange(size) < count


def combine(records: Sequence[Fields], fields: Sequence[str], is_bad: np.ndarray, groups: np.ndarray) -> dict[str, Any]:
    """Predict errors by logistic regression, in five folds over sentences.

    Args:
        records: fields of damaged and whole references.
        fields: those that the prediction reads.
        is_bad: whether a reference is damaged, `[records]`.
        groups: the number of its sentence, `[records]`.

    Returns:
        `auroc`, and `false_alarms` where nine of ten errors are found, each with an interval of 95% by a bootstrap
        over sentences.
    """
    predicted = held_out_predictions(features_of(records, fields), is_bad, groups)
    generator = np.random.default_rng(SEED)
    different = np.unique(groups)
    rows_of = {group: np.flatnonzero(groups == group) for group in different}
    samples = []
    for _ in range(200):
        drawn_groups = generator.choice(different, len(different))
        drawn = np.concatenate([rows_of[group] for group in drawn_groups])
        area = auroc(is_bad[drawn], predicted[drawn])
        samples.append((area, false_alarms(is_bad[drawn], predicted[drawn])))
    low, high = np.quantile(np.array(samples), [0.025, 0.975], axis=0)
    return {
        "auroc": [auroc(is_bad, predicted), low[0], high[0]],
        "false_alarms": [false_alarms(is_bad, predicted), low[1], high[1]],
    }


def features_of(records: Sequence[Fields], fields: Sequence[str]) -> np.ndarray:
    """Return fields with mean 0 and deviation 1, and a last column of ones, `[records, fields + 1]`."""
    columns = [values_of(records, field) for field in fields]
    features = np.stack(columns, axis=1)
    deviations = features.std(0).clip(min=1e-9)
    features = (features - features.mean(0)) / deviations
    ones = np.ones((len(features), 1))
    return np.concatenate([features, ones], axis=1)


def held_out_predictions(features: np.ndarray, is_bad: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the logits of errors, each by weights that were fitted to other sentences, `[records]`."""
    predicted = np.zeros(len(is_bad))
    for fold in range(5):
        is_held_out = groups % 5 == fold
        weights = logistic_weights(features[~is_held_out], is_bad[~is_held_out])
        predicted[is_held_out] = features[is_held_out] @ weights
    return predicted


def logistic_weights(features: np.ndarray, is_bad: np.ndarray) -> np.ndarray:
    """Return the weights of a logistic regression."""

    def loss_and_gradient(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = features @ weights
        losses = np.logaddexp(0, logits) - is_bad * logits
        loss = losses.mean() + 5e-4 * weights @ weights
        errors = 1 / (1 + np.exp(-logits)) - is_bad
        gradient = features.T @ errors / len(is_bad) + 1e-3 * weights
        return loss, gradient

    start = np.zeros(features.shape[1])
    return minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B").x


def false_alarms(is_bad: np.ndarray, predicted: np.ndarray) -> float:
    """Return the share of good translations that are marked where nine of ten bad ones are."""
    limit = np.quantile(predicted[is_bad], 0.1)
    return float((predicted[~is_bad] >= limit).mean())


def measure_calibration(translator: TextTranslator, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Calibrate on val, and measure on test and test_long."""
    scores, lengths, qualities = translate(translator, read_pairs(args.data_dir, "val"), args.num_beams)
    calibration = fit_calibration(scores, lengths, qualities)
    measured = {"val, held out": dict(calibration.held_out)}
    for name in ("test", "test_long"):
        # The sentences of a part have no order.
        pairs = read_pairs(args.data_dir, name)[: args.test_sentences]
        scores, lengths, qualities = translate(translator, pairs, args.num_beams)
        measured[name] = measure_expected(calibration.expect(scores, lengths), qualities)
    return measured


def measure_expected(expected: Sequence[Quality], qualities: np.ndarray) -> dict[str, float]:
    """Compare what a calibration expects of translations with their chrF, `[sentences]`."""
    is_bad = qualities < BAD
    probabilities = np.array([row.p_bad for row in expected])
    lows = np.array([row.interval[0] for row in expected])
    highs = np.array([row.interval[1] for row in expected])
    is_covered = (lows <= qualities) & (qualities <= highs)
    squares = (probabilities - is_bad) ** 2
    return {
        "ece": expected_calibration_error(probabilities, is_bad),
        "brier": float(squares.mean()),
        "coverage": float(is_covered.mean()),
        "share_bad": float(is_bad.mean()),
        "auroc": auroc(is_bad, probabilities),
    }


def translate(
    translator: TextTranslator, pairs: Sequence[Pair], num_beams: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean log-probability, the source length and the chrF of the translation of each pair."""
    sentences = [translator.reader.prepare(source).sentences[0] for source, _ in pairs]

    def length(index: int) -> int:
        return len(sentences[index].token_ids)

    kept = [index for index, sentence in enumerate(sentences) if sentence.token_ids]
    kept.sort(key=length)
    batches = [kept[begin : begin + BATCH] for begin in range(0, len(kept), BATCH)]
    ranked = translator.decode(sentences, batches, rereads=True, num_beams=num_beams)
    indices = sorted(kept)
    texts = [ranked[index][0].text for index in indices]
    references = [pairs[index][1] for index in indices]
    judgements = [judge(translator.reader, sentences[index], ranked[index][0]) for index in indices]
    scores = [judgement.score for judgement in judgements]
    lengths = [judgement.source_length for judgement in judgements]
    return np.array(scores), np.array(lengths), np.array(sentence_chrf(texts, references))


def measure_flags(folder: Path) -> dict[str, float]:
    """Return the share of the references of test and test_long that are marked wrongly."""
    marked = {"copies": 0, "adds_numbers": 0, "other_script": 0, "missing numbers (no flag)": 0}
    pairs = [*read_pairs(folder, "test"), *read_pairs(folder, "test_long")]
    for source, target in pairs:
        copied = copied_share(source, target) or 0
        added_numbers, missing_numbers = compare_numbers(source, target)
        marked["copies"] += copied >= 0.5
        marked["adds_numbers"] += bool(added_numbers)
        marked["other_script"] += wrong_script(source, target, "de") is not None
        marked["missing numbers (no flag)"] += bool(missing_numbers)
    return {name: count / len(pairs) for name, count in marked.items()}


if __name__ == "__main__":
    main()
