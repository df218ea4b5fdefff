"""Measure which made errors the fields of a report find, and whether calibrations hold on new sentences.

    python benchmarks/trust.py make --data_dir tatoeba/en-de --output_file trust.jsonl
    python benchmarks/trust.py run --data_dir tatoeba/en-de --errors trust.jsonl \
        --model checkpoints/tatoeba-en-de-transformer --output_file transformer.json
    python benchmarks/trust.py page --records transformer.json --page docs/trust.md

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
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize

from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.evaluation.calibration import expected_calibration_error, fit_calibration, sentence_chrf
from hf_capsule_mt.evaluation.report_fields import auroc
from hf_capsule_mt.evaluation.tables import table_in_markdown
from hf_capsule_mt.files import read_json, replace_text, write_json
from hf_capsule_mt.translation.decoding_options import DecodingOptions
from hf_capsule_mt.translation.surface_checks import WORD, compare_numbers, copied_share, wrong_script
from hf_capsule_mt.translation.texts import TextTranslator
from hf_capsule_mt.translation.translation_report import judge
from hf_capsule_mt.translation.trust import force_targets, read_signs

KINDS = ("third", "clause", "one word", "two words", "first only", "added", "repeated", "wrong word", "swapped")
KINDS += ("copied",)
OMISSIONS = ("third", "clause")
BAD = 40.0
SEED = 1
BATCH = 50
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
    "FUTURE's share at the end": ("future_share", 1),
}
"""Fields by their names in the table, and whether larger ones are signs of errors."""
COMBINED = ("score", "lowest", "end", "length_ratio", "coverage", "uncovered", "entropy")
BEGIN = "<!-- The tables are made by benchmarks/trust.py. -->"
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
            if kind != "first only":
                damaged = damage(kind, source, target, long_pairs, generator)
                if damaged is not None and damaged != target:
                    rows.append({"group": number, "kind": kind, "source": source, "whole": target, "damaged": damaged})
    for number in range(args.sentences):
        first, second = short_pairs[2 * number : 2 * number + 2]
        row = {"source": f"{first[0]} {second[0]}", "whole": f"{first[1]} {second[1]}", "damaged": first[1]}
        rows.append({"group": args.sentences + number, "kind": "first only", **row})
    replace_text(args.output_file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_pairs(folder: Path, name: str) -> list[tuple[str, str]]:
    """Return the pairs of a part of the corpus."""
    return list(zip(read_lines(folder / f"{name}.en.gz"), read_lines(folder / f"{name}.de.gz"), strict=True))


def damage(
    kind: str, source: str, target: str, pairs: Sequence[tuple[str, str]], generator: random.Random
) -> str | None:
    """Return a damaged translation, or None if it cannot be damaged in this way."""
    words = target.split()
    mark = words[-1][-1] if words[-1][-1] in ".!?" else ""
    content = [index for index, word in enumerate(words) if len(WORD.findall(word)) == 1 and len(word) >= 4]
    if kind == "third":
        return " ".join(words[: len(words) * 2 // 3]).rstrip(",") + mark
    if kind == "clause":
        return without_clause(words, mark, generator)
    if kind in ("one word", "two words"):
        number = 1 if kind == "one word" else 2
        if len(content) < number:
            return None
        removed = generator.sample(content, number)
        kept = " ".join(word for index, word in enumerate(words) if index not in removed)
        return kept if kept.endswith(mark) else kept + mark
    if kind == "added":
        other = generator.choice(pairs)[1].split()
        return f"{target} {' '.join(other[: max(len(other) // 2, 1)])}"
    if kind == "repeated":
        place = generator.randrange(max(len(words) - 3, 1))
        return " ".join([*words[: place + 3], *words[place : place + 3] * 2, *words[place + 3 :]])
    if kind == "wrong word":
        if not content:
            return None
        place = generator.choice(content)
        others = [word for word in generator.choice(pairs)[1].split() if len(word) >= 4 and word.isalpha()]
        if not others:
            return None
        return " ".join([*words[:place], generator.choice(others), *words[place + 1 :]])
    if kind == "swapped":
        others = [other for _, other in pairs if other != target]
        return min(others, key=lambda other: (abs(len(other) - len(target)), other))
    return source


def without_clause(words: Sequence[str], mark: str, generator: random.Random) -> str:
    """Return words without what stands between two commas, or after the only one, or without a quarter."""
    commas = [index for index, word in enumerate(words) if word.endswith(",")]
    if commas:
        place = generator.choice(range(len(commas)))
        end = commas[place + 1] if place + 1 < len(commas) else len(words) - 1
        kept = [*words[: commas[place] + 1], *words[end + 1 :]]
    else:
        length = max(len(words) // 4, 1)
        place = generator.randrange(len(words) - length)
        kept = [*words[:place], *words[place + length :]]
    text = " ".join(kept).rstrip(",")
    return text if text.endswith(mark) else text + mark


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
        "command": shlex.join(["python", "benchmarks/trust.py", *map(str, sys.argv[1:])]),
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
    lines = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout.splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("Model name:")]
    return names[0] if names else platform.machine()


def fields_of(translator: TextTranslator, sources: Sequence[str], targets: Sequence[str]) -> list[dict[str, Any]]:
    """Return the fields of a report for given translations."""
    tokenizer = translator.tokenizer
    source_ids = [tokenizer(source)["input_ids"] for source in sources]
    target_ids = [tokenizer(text_target=target)["input_ids"] for target in targets]
    # Sentences of like length share a batch.
    order = sorted(range(len(sources)), key=lambda index: len(source_ids[index]) + len(target_ids[index]))
    records: list[dict[str, Any]] = [{} for _ in order]
    for begin in range(0, len(order), BATCH):
        batch = order[begin : begin + BATCH]
        forced_targets = force_targets(
            translator.model, [source_ids[index] for index in batch], [target_ids[index] for index in batch]
        )
        for index, forced in zip(batch, forced_targets, strict=True):
            source = (sources[index], source_ids[index])
            target = (targets[index], target_ids[index][:-1])
            signs = read_signs(forced, tokenizer, source, target, has_end=True)
            judgement = judge(source_ids[index], target[1], True, targets[index], forced.score, signs)
            records[index] = judgement.fields()
    return records


def values_of(records: Sequence[dict[str, Any]], field: str) -> np.ndarray:
    """Return a field of all records as numbers. A list counts its entries."""
    values = [record[field] for record in records]
    return np.array([len(value) if isinstance(value, list) else float(value) for value in values])


def measure_errors(
    translator: TextTranslator, rows: Sequence[dict[str, Any]]
) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Return the AUROC of each field for each kind of error, and what fields do together for omissions."""
    # Several damaged translations share a whole one.
    wholes = list(dict.fromkeys((row["source"], row["whole"]) for row in rows))
    of_whole = dict(zip(wholes, fields_of(translator, *zip(*wholes)), strict=True))
    damaged = fields_of(translator, [row["source"] for row in rows], [row["damaged"] for row in rows])
    errors: dict[str, dict[str, float]] = {}
    for name, (field, direction) in FIELDS.items():
        if damaged[0][field] is None:
            continue
        errors[name] = {}
        for kind in KINDS:
            indices = [index for index, row in enumerate(rows) if row["kind"] == kind]
            bad = values_of([damaged[index] for index in indices], field)
            good = values_of([of_whole[rows[index]["source"], rows[index]["whole"]] for index in indices], field)
            is_bad = np.arange(len(bad) + len(good)) < len(bad)
            errors[name][kind] = auroc(is_bad, direction * np.concatenate([bad, good]))
    indices = [index for index, row in enumerate(rows) if row["kind"] in OMISSIONS]
    bad_records = [damaged[index] for index in indices]
    good_records = [of_whole[rows[index]["source"], rows[index]["whole"]] for index in indices]
    groups = np.array([rows[index]["group"] for index in indices] * 2)
    is_bad = np.arange(2 * len(indices)) < len(indices)
    combined = {"seven fields": combine([*bad_records, *good_records], COMBINED, is_bad, groups)}
    if damaged[0]["future_share"] is not None:
        fields = (*COMBINED, "future_share")
        combined["with FUTURE's share"] = combine([*bad_records, *good_records], fields, is_bad, groups)
    return errors, combined


def combine(
    records: Sequence[dict[str, Any]], fields: Sequence[str], is_bad: np.ndarray, groups: np.ndarray
) -> dict[str, Any]:
    """Predict errors by logistic regression, in five folds over sentences.

    Returns:
        `auroc`, and `false_alarms` where nine of ten errors are found, each with an interval of 95 % by a bootstrap
        over sentences.
    """
    features = np.stack([values_of(records, field) for field in fields], axis=1)
    features = (features - features.mean(0)) / features.std(0).clip(min=1e-9)
    features = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    predicted = np.zeros(len(is_bad))
    for fold in range(5):
        is_held_out = groups % 5 == fold
        weights = logistic_weights(features[~is_held_out], is_bad[~is_held_out])
        predicted[is_held_out] = features[is_held_out] @ weights
    generator = np.random.default_rng(SEED)
    different = np.unique(groups)
    rows_of = {group: np.flatnonzero(groups == group) for group in different}
    samples = []
    for _ in range(200):
        drawn = np.concatenate([rows_of[group] for group in generator.choice(different, len(different))])
        samples.append((auroc(is_bad[drawn], predicted[drawn]), false_alarms(is_bad[drawn], predicted[drawn])))
    low, high = np.quantile(np.array(samples), [0.025, 0.975], axis=0)
    return {
        "auroc": [auroc(is_bad, predicted), low[0], high[0]],
        "false_alarms": [false_alarms(is_bad, predicted), low[1], high[1]],
    }


def logistic_weights(features: np.ndarray, is_bad: np.ndarray) -> np.ndarray:
    """Return the weights of a logistic regression."""

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = features @ weights
        errors = 1 / (1 + np.exp(-logits)) - is_bad
        value = (np.logaddexp(0, logits) - is_bad * logits).mean() + 5e-4 * weights @ weights
        return value, features.T @ errors / len(is_bad) + 1e-3 * weights

    return minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B").x


def false_alarms(is_bad: np.ndarray, predicted: np.ndarray) -> float:
    """Return the share of good translations that are marked where nine of ten bad ones are."""
    limit = np.quantile(predicted[is_bad], 0.1)
    return float((predicted[~is_bad] >= limit).mean())


def measure_calibration(translator: TextTranslator, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Calibrate on val, and measure on test and test_long."""
    scored = {}
    for name in ("val", "test", "test_long"):
        pairs = read_pairs(args.data_dir, name)
        # The sentences of a part have no order.
        scored[name] = translate(translator, pairs[: args.test_sentences] if name != "val" else pairs, args.num_beams)
    scores, lengths, qualities = scored["val"]
    calibration = fit_calibration(scores, lengths, qualities, settings={}, bad=BAD)
    measured = {"val, held out": dict(calibration.held_out)}
    for name in ("test", "test_long"):
        scores, lengths, qualities = scored[name]
        expected = calibration.expect(scores, lengths)
        probabilities = np.array([row.p_bad for row in expected])
        is_bad = qualities < BAD
        lows = np.array([row.interval[0] for row in expected])
        highs = np.array([row.interval[1] for row in expected])
        measured[name] = {
            "ece": expected_calibration_error(probabilities, is_bad),
            "brier": float(np.mean((probabilities - is_bad) ** 2)),
            "coverage": float(np.mean((lows <= qualities) & (qualities <= highs))),
            "share_bad": float(is_bad.mean()),
            "auroc": auroc(is_bad, probabilities),
        }
    return measured


def translate(
    translator: TextTranslator, pairs: Sequence[tuple[str, str]], num_beams: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean log-probability, the source length and the chrF of the translation of each pair."""
    sentences = [translator.reader.prepare(source).sentences[0] for source, _ in pairs]
    kept = [index for index, sentence in enumerate(sentences) if sentence.token_ids]
    kept.sort(key=lambda index: len(sentences[index].token_ids))
    batches = [kept[begin : begin + BATCH] for begin in range(0, len(kept), BATCH)]
    found = {}
    for batch in translator.decode_batches(sentences, batches, judges=True, num_beams=num_beams):
        found.update(batch)
    indices = sorted(found)
    judgements = [found[index].judgement for index in indices]
    qualities = sentence_chrf([found[index].text for index in indices], [pairs[index][1] for index in indices])
    return (
        np.array([judgement.score for judgement in judgements]),
        np.array([judgement.source_length for judgement in judgements]),
        np.array(qualities),
    )


def measure_flags(folder: Path) -> dict[str, float]:
    """Return the share of the references of test and test_long that are marked wrongly."""
    pairs = [*read_pairs(folder, "test"), *read_pairs(folder, "test_long")]
    marked = {
        "copies": [(copied_share(source, target) or 0) >= 0.5 for source, target in pairs],
        "adds_numbers": [bool(compare_numbers(source, target)[0]) for source, target in pairs],
        "other_script": [wrong_script(source, target, "de") is not None for source, target in pairs],
        "missing numbers (no flag)": [bool(compare_numbers(source, target)[1]) for source, target in pairs],
    }
    return {name: sum(values) / len(pairs) for name, values in marked.items()}


def tables_of(records: Sequence[dict[str, Any]]) -> str:
    """Return the tables of the records of several models in Markdown."""
    parts = []
    for record in records:
        rows = [["field", *KINDS]]
        for field, areas in record["errors"].items():
            rows.append([field, *(f"{areas[kind]:.2f}" for kind in KINDS)])
        parts += [f"### AUROC by kind of error, `{record['model']}`", table_in_markdown(rows)]
    rows = [["model", "fields", "AUROC", "false alarms where 90 % are found"]]
    for record in records:
        for fields, numbers in record["combined"].items():
            area, low, high = numbers["auroc"]
            alarms, fewest, most = numbers["false_alarms"]
            cells = [f"{area:.3f} ({low:.3f} to {high:.3f})", f"{alarms:.0%} ({fewest:.0%} to {most:.0%})"]
            rows.append([f"`{record['model']}`", fields, *cells])
    parts += ["### Omissions (third, clause), fields together", table_in_markdown(rows)]
    rows = [["model", "sentences", "ECE", "Brier", "80 % intervals cover", "AUROC of p_bad", "bad"]]
    for record in records:
        for test, numbers in record["calibration"].items():
            area = f"{numbers['auroc']:.2f}" if numbers.get("auroc") is not None else ""
            cells = [f"{numbers['ece']:.3f}", f"{numbers['brier']:.3f}", f"{numbers['coverage']:.1%}"]
            rows.append([f"`{record['model']}`", test, *cells, area, f"{numbers['share_bad']:.0%}"])
    parts += ["### Calibration on val", table_in_markdown(rows)]
    rows = [["flag", "references marked"]]
    rows += [[name, f"{share:.2%}"] for name, share in records[0]["false_flags"].items()]
    parts += ["### False flags on 3,000 references", table_in_markdown(rows)]
    for record in records:
        minutes = record["cpu_seconds"] / 60
        parts.append(
            f"*{record['machine']}, one thread, {record['date']}, {minutes:.1f} CPU minutes. "
            f"{record['made_errors']:,} made errors. Calibration: 1,000 sentences of val, and "
            f"{record['test_sentences']:,} of each test, with {record['num_beams']} beam(s).*"
        )
        parts.append(f"    {record['command']}")
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
