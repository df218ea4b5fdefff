"""A model must learn to reverse strings of digits that it has never seen, by the commands that users type."""

import pytest
from digits import learned_bleu, write_digits

WIDTHS = ["d_model=64", "encoder_ffn_dim=128", "decoder_ffn_dim=128"]
MODEL = [*WIDTHS, "encoder_layers=2", "decoder_layers=2", "dropout=0"]
EVERY_SITE = ["head_aggregation_decoder_layers=null", "head_aggregation_cross_layers=null"]
METHODS = {"em-routing": [], "head-simple-routing": EVERY_SITE}
SCHEDULE = ["--max_tokens_per_batch", "768", "--max_steps", "1000", "--learning_rate", "3e-3"]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_reversing_digits(method, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path, (3, 8), lambda line: line[::-1])
    assert learned_bleu(method, [*MODEL, *METHODS[method]], SCHEDULE) > 90
