"""A report of translations: how likely and how long each is, and whether it looks wrong."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from .translator import behind_start, pad_rows

_MOST_SCORES = 1 << 25
"""The most scores that are in memory together."""
_LONG, _SHARE = 10, 0.4
"""A translation is too short if its source has so many tokens, and it has less than this share of them."""
_LONGEST_PHRASE, _COPIES, _REPEATED = 16, 3, 4
"""A repetition: longest phrase, how often it stands in a row, and how many tokens are copies."""


@dataclass(frozen=True)
class Judgement:
    """The judgement on a translation. A blank line has no score and no ratio."""

    score: float | None = None  # The mean log-probability of its tokens, with its end.
    length_ratio: float | None = None  # Its number of tokens divided by its source's, without the ends.
    limit_reached: bool = False  # It was cut at the limit to its length.
    empty: bool = False  # It has no words.
    too_short: bool = False  # A part must be missing, as happens to lines with several sentences.
    repeats: bool = False  # It repeats a phrase many times, and its source does not.
    source_cut: bool = False  # Its source was too long for the model, so that the rest is not translated.


def judge(source: Sequence[int], target: Sequence[int], ended: bool, text: str, score: float) -> Judgement:
    """Judge a translation: its token ids without the end, whether an end was written, its text, and its score.

    `source` has the token ids of its source, with the end.
    """
    copies, words = repeated_tokens(target), max(len(source) - 1, 1)
    return Judgement(
        score=round(score, 4),
        length_ratio=round(len(target) / words, 4),
        limit_reached=not ended,
        empty=not text.strip(),
        too_short=words >= _LONG and len(target) < _SHARE * words,
        repeats=copies >= _REPEATED and copies > repeated_tokens(source),
    )


def repeated_tokens(ids: Sequence[int]) -> int:
    """Return how many tokens are copies of the phrase before them, for phrases three times in a row or more."""
    most = 0
    for length in range(1, min(_LONGEST_PHRASE, len(ids) // _COPIES) + 1):
        same = 0
        for place in range(length, len(ids)):
            same = same + 1 if ids[place] == ids[place - length] else 0
            if same >= length * (_COPIES - 1):
                most = max(most, same)
    return most


@torch.no_grad()
def sequence_scores(
    model: PreTrainedModel, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[float]:
    """Return the mean log-probability of the tokens of each target.

    It is `sequences_scores` of `generate()` with a length penalty of 1, and 0 for a target without tokens. A forced
    code of the language does not count. Sources and targets have their ends. The model is in evaluation mode.
    """
    padding, forced = model.config.pad_token_id, model.generation_config.forced_bos_token_id
    rows = max(_MOST_SCORES // (max(1, *map(len, targets)) * model.config.vocab_size), 1)
    found: list[float] = []
    for at in range(0, len(targets), rows):
        input_ids, mask = pad_rows(sources[at : at + rows], padding, model.device)
        words, counted = pad_rows(targets[at : at + rows], padding, model.device)
        if not words.shape[1]:
            found += [0.0] * len(words)
            continue
        read = behind_start(model, words)[:, :-1]
        logits = model(input_ids=input_ids, attention_mask=mask.long(), decoder_input_ids=read, use_cache=False).logits
        scores = logits.float().log_softmax(-1).gather(-1, words.unsqueeze(-1)).squeeze(-1)
        if forced is not None and words.shape[1] > 1:
            counted[:, 0] &= words[:, 0] != forced
        found += (scores.where(counted, 0).sum(1) / counted.sum(1).clamp(min=1)).tolist()
    return found


def faults(report: Iterable[str]) -> str | None:
    """Return a sentence about the translations of a report that look wrong, or None if all look right."""
    kinds = {
        "empty": "empty",
        "too_short": "far too short",
        "limit_reached": "at the limit of their length",
        "repeats": "repeating",
        "source_cut": "of a source that was cut",
    }
    counts, marked, total = Counter(), [], 0
    for entry in map(json.loads, report):
        total += 1
        if found := [kind for kind in kinds if entry[kind]]:
            counts.update(found)
            marked.append(entry["line"])
    if not marked:
        return None
    told = ", ".join(f"{counts[kind]} {words}" for kind, words in kinds.items())
    return f"{len(marked)} of {total} translations are marked: {told}. The first is of line {marked[0]}."
