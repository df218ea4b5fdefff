"""Strings of four letters, as digits, that a model must learn to rewrite, by the commands that users type."""

import json
import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_capsule_mt.cli import evaluate, train, train_tokenizer, translate

SIZES = {"train": 1200, "test": 100}


def write_digits(folder, rewrite):
    """Write sources and targets of both parts, which share no string. `translate` would copy real digits."""
    generator = random.Random(0)
    strings = {}
    while len(strings) < sum(SIZES.values()):
        strings[" ".join(generator.choices("abcdefg", k=4))] = None
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


# As many capsules as digits: with more, one of them may be all but unused.
MODEL = ["d_model=64", "encoder_layers=1", "decoder_layers=3", "dropout=0", "num_sentence_capsules=4"]
SCHEDULE = ["--max_tokens_per_batch", "256", "--max_steps", "210", "--learning_rate", "5e-3", "--warmup_steps", "80"]


def losses_without_each_vector(model, batch):
    """The loss with every vector of the sentence, and then without the first, without the second, ..."""
    weight = model.get_encoder().projection.weight
    parts = [torch.zeros_like(weight[:, :0]), *weight.split(weight.shape[0], dim=1)]
    losses, column = [], 0
    for part in parts:
        width, kept = part.shape[1], part.clone()
        weight[:, column : column + width] = 0
        losses.append(model(**batch).loss.item())
        weight[:, column : column + width] = kept
        column += width
    return losses


@pytest.mark.slow
def test_copying_digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path, lambda line: line)
    assert learned_bleu("capsnmt", MODEL, SCHEDULE) > 90
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained("run"), AutoTokenizer.from_pretrained("run")
    batch = tokenizer((tmp_path / "test.source").read_text().splitlines(), return_tensors="pt")
    with torch.no_grad():
        routing = model(**batch, labels=batch["input_ids"], output_routing="all").sentence_routing
        whole, *without_one = losses_without_each_vector(model, {**batch, "labels": batch["input_ids"]})
    # Every capsule carries something that the others do not.
    assert len(without_one) == 4
    assert min(without_one) > whole + 0.2
    # The assignment is decided step by step: from uniform, it gets sharper with every iteration.
    entropies = -(routing * routing.clamp(min=1e-9).log()).sum(-1).mean((0, 2))
    assert entropies[0] > entropies[1] + 0.03 > entropies[2] + 0.06


REVERSING = [
    *("d_model=64", "dropout=0", "guided_capsule_dim=32", "encoder_ffn_dim=128", "decoder_ffn_dim=128"),
    *("encoder_layers=1", "decoder_layers=1", "guided_routing_iterations=2"),
]
REVERSING_SCHEDULE = [*SCHEDULE[:2], "--max_steps", "160", "--learning_rate", "6e-3", "--warmup_steps", "50"]


def past_assignments(model, tokenizer):
    """The mean assignment to PAST of source digits that have been written already, and of those that have not."""
    sources = tokenizer(Path("test.source").read_text().splitlines(), return_tensors="pt")
    targets = tokenizer(Path("test.target").read_text().splitlines(), return_tensors="pt")["input_ids"]
    sequences = torch.cat([torch.full_like(targets[:, :1], tokenizer.pad_token_id), targets], dim=1)
    assignment = model.force_decode(sequences, **sources).guided_routing
    # The end of the sentence, which has no digit, is the last word of both.
    past = assignment[:, :, :-1, : model.config.num_past_capsules].sum(-1)
    written, digits = past.shape[1:]
    # In reverse, the digits written so far are the last ones.
    done = torch.arange(digits) >= digits - torch.arange(written)[:, None]
    return past[:, done].mean(), past[:, ~done].mean()


@pytest.mark.slow
def test_reversing_digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path, lambda line: line[::-1])
    assert learned_bleu("gdr", REVERSING, REVERSING_SCHEDULE) > 90
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained("run"), AutoTokenizer.from_pretrained("run")
    written, unwritten = past_assignments(model, tokenizer)
    assert written > unwritten + 0.2
