"""A model must learn to reverse strings of digits that it has never seen, by the commands that users type."""

import pytest
from digits import learned_bleu, write_digits

SMALL = ["d_model=64", "dropout=0"]
TRANSFORMER = [*SMALL, "encoder_ffn_dim=128", "decoder_ffn_dim=128", "encoder_layers=2", "decoder_layers=2"]
EVERY_SITE = ["head_aggregation_decoder_layers=null", "head_aggregation_cross_layers=null"]
METHODS = {
    "em-routing": (TRANSFORMER, 1000),
    "head-simple-routing": ([*TRANSFORMER, *EVERY_SITE], 1000),
    "rnmt": (SMALL, 700),
    "capsnmt-hybrid": (SMALL, 500),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_reversing_digits(method, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path, (3, 8), lambda line: line[::-1])
    config_overrides, updates = METHODS[method]
    schedule = ["--max_tokens_per_batch", "768", "--max_steps", str(updates), "--learning_rate", "3e-3"]
    assert learned_bleu(method, config_overrides, schedule) > 90
