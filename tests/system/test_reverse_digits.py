"""A model must learn to reverse strings of digits that it has never seen, by the commands that users type."""

from pathlib import Path

import pytest
import torch
from digits import learned_bleu, write_digits
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

MODEL = [
    *("d_model=64", "dropout=0", "guided_capsule_dim=32", "encoder_ffn_dim=128", "decoder_ffn_dim=128"),
    *("encoder_layers=1", "decoder_layers=1"),
]
SCHEDULE = ["--max_tokens_per_batch", "512", "--max_steps", "250", "--learning_rate", "4e-3", "--warmup_steps", "80"]


def past_assignments(model, tokenizer):
    """The mean assignment to PAST of source digits that have been written already, and of those that have not."""
    sources = tokenizer(Path("test.source").read_text().splitlines(), return_tensors="pt", padding=True)
    targets = tokenizer(Path("test.target").read_text().splitlines(), return_tensors="pt", padding=True)["input_ids"]
    sequences = torch.cat([torch.full_like(targets[:, :1], tokenizer.pad_token_id), targets], dim=1)
    assignment = model.force_decode(sequences, **sources).guided_routing
    past = assignment[..., : model.config.num_past_capsules].sum(-1)
    position = torch.arange(past.shape[2])
    written = torch.arange(past.shape[1])[:, None]
    # The end of the sentence, which has no digit, is the last word of both.
    digits = sources["attention_mask"].sum(1)[:, None, None] - 1
    real = (position < digits) & (written <= digits)
    # In reverse, the digits written so far are the last ones.
    done = position >= digits - written
    return past[real & done].mean(), past[real & ~done].mean()


@pytest.mark.slow
def test_reversing_digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path, (2, 4), lambda line: line[::-1])
    assert learned_bleu("gdr", MODEL, SCHEDULE) > 90
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained("run"), AutoTokenizer.from_pretrained("run")
    written, unwritten = past_assignments(model, tokenizer)
    assert written > unwritten + 0.2
