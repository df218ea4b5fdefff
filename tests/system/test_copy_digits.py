"""CapsNMT must learn to copy strings of five digits that it has never seen, by the commands that users type.

Without attention nothing of the source reaches the decoder but the vectors of the sentence, so all five digits and
their order must pass through these. Copying asks more of them than reversing does: what an encoder's last state
remembers best, the digits at the end, is wanted last. One length, so that nothing is to be learned about where to stop.
"""

import pytest
import torch
from digits import learned_bleu, write_digits
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

MODEL = ["d_model=64", "encoder_layers=2", "decoder_layers=2", "dropout=0"]
SCHEDULE = ["--max_tokens_per_batch", "1024", "--max_steps", "450", "--learning_rate", "4e-3", "--warmup_steps", "200"]


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
    write_digits(tmp_path, (5, 5), lambda line: line)
    assert learned_bleu("capsnmt", MODEL, SCHEDULE) > 90
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained("run"), AutoTokenizer.from_pretrained("run")
    batch = tokenizer((tmp_path / "test.source").read_text().splitlines(), return_tensors="pt")
    with torch.no_grad():
        routing = model(**batch, labels=batch["input_ids"], output_routing="all").sentence_routing
        whole, *without_one = losses_without_each_vector(model, {**batch, "labels": batch["input_ids"]})
    # Every capsule carries something that the others do not.
    assert len(without_one) == 6
    assert min(without_one) > whole + 0.2
    # The assignment is decided step by step: from uniform, it gets sharper with every iteration.
    entropies = -(routing * routing.clamp(min=1e-9).log()).sum(-1).mean((0, 2))
    assert entropies[0] > entropies[1] + 0.05 > entropies[2] + 0.1
