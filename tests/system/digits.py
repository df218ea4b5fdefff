"""Strings of ten letters, as digits, that a model must learn to rewrite, by the commands that users type."""

import json
import random

from hf_capsule_mt.cli import evaluate, train, train_tokenizer, translate

SIZES = {"train": 6000, "test": 200}


def write_digits(folder, lengths, rewrite):
    """Write sources and targets of both parts, which share no string. `translate` would copy real digits."""
    generator = random.Random(0)
    strings = {}
    while len(strings) < sum(SIZES.values()):
        strings[" ".join(generator.choices("abcdefghij", k=generator.randint(*lengths)))] = None
    remaining = iter(strings)
    for part, size in SIZES.items():
        lines = [next(remaining) for _ in range(size)]
        (folder / f"{part}.source").write_text("".join(f"{line}\n" for line in lines))
        (folder / f"{part}.target").write_text("".join(f"{rewrite(line)}\n" for line in lines))


def learned_bleu(method, config_overrides, schedule):
    """Train in the current folder, which then has the model in `run`, and return BLEU of strings it has never seen."""
    data = ["--train_file", "train.source", "train.target"]
    train_tokenizer.main([*data, "--vocab_size", "269", "--output_dir", "tokenizer"])
    model = ["--method", method, "--size", "tiny", "--config_overrides", *config_overrides]
    train.main(
        [*model, "--tokenizer_name", "tokenizer", *data, "--output_dir", "run", *schedule]
        + ["--report_to", "none", "--use_cpu"]
    )
    translate.main(["--model", "run", "--input_file", "test.source", "--output_file", "output", "--device", "cpu"])
    evaluate.main(["--hypotheses", "output", "--references", "test.target", "--output_file", "scores.json"])
    with open("scores.json", encoding="utf-8") as file:
        return json.load(file)["scores"]["bleu"]["score"]
