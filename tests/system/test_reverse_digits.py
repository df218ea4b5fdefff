"""A model must learn to reverse strings of digits that it has never seen, by the commands that users type."""

import json
import random

import pytest

from hf_capsule_mt.cli import evaluate, train, train_tokenizer, translate

WIDTHS = ["d_model=64", "encoder_ffn_dim=128", "decoder_ffn_dim=128"]
MODEL = [*WIDTHS, "encoder_layers=2", "decoder_layers=2", "dropout=0"]
EVERY_SITE = ["head_aggregation_decoder_layers=null", "head_aggregation_cross_layers=null"]
METHODS = {"em-routing": [], "head-simple-routing": EVERY_SITE}
SIZES = {"train": 6000, "test": 200}


def write_digits(folder):
    """No string is in both parts."""
    generator = random.Random(0)
    strings = {}
    while len(strings) < sum(SIZES.values()):
        strings[" ".join(generator.choices("0123456789", k=generator.randint(3, 8)))] = None
    remaining = iter(strings)
    for part, size in SIZES.items():
        lines = [next(remaining) for _ in range(size)]
        (folder / f"{part}.forward").write_text("".join(f"{line}\n" for line in lines))
        (folder / f"{part}.backward").write_text("".join(f"{line[::-1]}\n" for line in lines))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_reversing_digits(method, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path)
    data = ["--train_file", "train.forward", "train.backward"]
    train_tokenizer.main([*data, "--vocab_size", "269", "--output_dir", "tokenizer"])
    model = ["--method", method, "--size", "tiny", "--config_overrides", *MODEL, *METHODS[method]]
    schedule = ["--max_tokens_per_batch", "768", "--max_steps", "1000", "--learning_rate", "3e-3"]
    train.main(
        [*model, "--tokenizer_name", "tokenizer", *data, "--output_dir", "run", *schedule]
        + ["--warmup_steps", "200", "--report_to", "none", "--use_cpu"]
    )
    translate.main(
        ["--model", "run", "--input_file", "test.forward", "--output_file", "test.output", "--device", "cpu"]
    )
    evaluate.main(["--hypotheses", "test.output", "--references", "test.backward", "--output_file", "scores.json"])
    assert json.loads((tmp_path / "scores.json").read_text())["scores"]["bleu"]["score"] > 90
