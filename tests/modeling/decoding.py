"""Decoding step by step and beam search by hand, for models of any family."""

import torch
from aggregated_models import EOS, PAD, VOCABULARY

from hf_capsule_mt.modeling.transformers_versions import CACHE

TARGETS = torch.tensor([[0, 9, 4, 17, 5, 8], [0, 0, 6, 6, 21, 7], [0, 11, 3, 12, 4, 30]])
# The second target is shorter: padded on the left, as prompts are.
TARGET_MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])


@torch.no_grad()
def uncached(model, source, targets, mask=None):
    return model(**source, decoder_input_ids=targets, decoder_attention_mask=mask, use_cache=False).logits


@torch.no_grad()
def cached(model, source, encoded, targets, cache, mask=None, start=0, stop=None, chunk=1):
    """Logits of the target positions from `start`, a few at a time."""
    steps = []
    for begin in range(start, stop or targets.shape[1], chunk):
        outputs = model(
            attention_mask=source["attention_mask"],
            encoder_outputs=encoded,
            decoder_input_ids=targets[:, begin : begin + chunk],
            decoder_attention_mask=None if mask is None else mask[:, : begin + chunk],
            cache=cache,
            use_cache=True,
        )
        assert outputs[CACHE] is cache
        steps.append(outputs.logits)
    return torch.cat(steps, dim=1)


def trimmed(sequences):
    """Lists of words without the padding after EOS."""
    return [row[: row.index(EOS, 1) + 1] if EOS in row[1:] else row for row in sequences.tolist()]


def alone(source, row):
    """One sentence of a batch, without its padding."""
    length = source["attention_mask"][row].sum()
    return {name: value[row : row + 1, :length] for name, value in source.items()}


def beam_search(model, source, num_beams, max_new_tokens, length_penalty):
    """Textbook beam search for one sentence, every prefix computed anew: [(score, words)], best first."""
    running, finished = [(0.0, [PAD])], []
    for length in range(1, max_new_tokens + 1):
        prefixes = torch.tensor([words for _, words in running])
        sources = {name: value.expand(len(running), -1) for name, value in source.items()}
        step = uncached(model, sources, prefixes)[:, -1].log_softmax(-1)
        candidates = sorted(
            (
                (score + step[beam, word].item(), [*words, word])
                for beam, (score, words) in enumerate(running)
                for word in range(VOCABULARY)
            ),
            reverse=True,
        )
        for score, words in candidates[:num_beams]:
            if words[-1] == EOS or length == max_new_tokens:
                finished.append((score / length**length_penalty, words))
        running = [candidate for candidate in candidates if candidate[1][-1] != EOS][:num_beams]
    return sorted(finished, reverse=True)[:num_beams]
