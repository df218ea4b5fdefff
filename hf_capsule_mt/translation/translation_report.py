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
_LONG_SOURCE = 10
_LEAST_SHARE = 0.4
"""A translation is too short if its source has so many tokens, and it has less than this share of them."""
_LONGEST_PHRASE = 16
_TIMES_IN_A_ROW = 3
_REPEATED_TOKENS = 4
"""A repetition: the longest phrase, how often it stands in a row, and how many tokens are copies."""
_FAULTS = {
    "empty": "empty",
    "too_short": "far too short",
    "limit_reached": "at the limit of their length",
    "repeats": "repeating",
    "source_cut": "of a source that was cut",
}
"""What may be wrong with a translation, and the words for it."""


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


def judge(source: Sequence[int], target: Sequence[int], ended: bool, text: str, score: float | None) -> Judgement:
    """Judge a translation.

    Args:
        source: token ids of its source, with the end.
        target: its token ids without the end.
        ended: whether the model wrote an end.
        text: the translation.
        score: the mean log-probability of its tokens, or None if it was not computed.
    """
    copies = repeated_tokens(target)
    # Without the end.
    source_length = max(len(source) - 1, 1)
    is_long = source_length >= _LONG_SOURCE
    return Judgement(
        score=None if score is None else round(score, 4),
        length_ratio=round(len(target) / source_length, 4),
        limit_reached=not ended,
        empty=not text.strip(),
        too_short=is_long and len(target) < _LEAST_SHARE * source_length,
        repeats=copies >= _REPEATED_TOKENS and copies > repeated_tokens(source),
    )


def repeated_tokens(ids: Sequence[int]) -> int:
    """Return how many tokens are copies of the phrase before them, for phrases three times in a row or more."""
    most = 0
    longest = min(_LONGEST_PHRASE, len(ids) // _TIMES_IN_A_ROW)
    for length in range(1, longest + 1):
        copies = 0
        for index in range(length, len(ids)):
            is_copy = ids[index] == ids[index - length]
            copies = copies + 1 if is_copy else 0
            if copies >= length * (_TIMES_IN_A_ROW - 1):
                most = max(most, copies)
    return most


@torch.no_grad()
def sequence_scores(
    model: PreTrainedModel, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[float]:
    """Return the mean log-probability of the tokens of each target.

    It is `sequences_scores` of `generate()` with a length penalty of 1, and 0 for a target without tokens. A forced
    code of the language does not count. Sources and targets have their ends. The model is in evaluation mode.
    """
    longest = max(1, *map(len, targets))
    # All scores of a vocabulary are in memory, for each token of each target.
    rows = max(_MOST_SCORES // (longest * model.config.vocab_size), 1)
    scores: list[float] = []
    for start in range(0, len(targets), rows):
        end = start + rows
        scores += _scores_of_batch(model, sources[start:end], targets[start:end])
    return scores


def _scores_of_batch(
    model: PreTrainedModel, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[float]:
    padding = model.config.pad_token_id
    input_ids, source_mask = pad_rows(sources, padding, model.device)
    target_ids, counted = pad_rows(targets, padding, model.device)
    if not target_ids.shape[1]:
        return [0.0] * len(targets)
    read = behind_start(model, target_ids)[:, :-1]
    output = model(input_ids=input_ids, attention_mask=source_mask.long(), decoder_input_ids=read, use_cache=False)
    log_probabilities = output.logits.float().log_softmax(-1)
    scores = log_probabilities.gather(-1, target_ids.unsqueeze(-1)).squeeze(-1)
    forced = model.generation_config.forced_bos_token_id
    if forced is not None and target_ids.shape[1] > 1:
        counted[:, 0] &= target_ids[:, 0] != forced
    means = scores.where(counted, 0).sum(1) / counted.sum(1).clamp(min=1)
    return means.tolist()


def faults(report: Iterable[str]) -> str | None:
    """Return a sentence about the translations of a report that look wrong, or None if all look right.

    `report` has the lines of the report, in JSON.
    """
    counts: Counter[str] = Counter()
    marked_lines = []
    total = 0
    missing_terms = 0
    for line in report:
        judged = json.loads(line)
        total += 1
        kinds = [kind for kind in _FAULTS if judged[kind]]
        missing_terms += sum(term["state"] == "missing" for term in judged.get("terms", ()))
        counts.update(kinds)
        if kinds:
            marked_lines.append(judged["line"])
    terms = f"{missing_terms} terms of the glossary are missing." if missing_terms else None
    if not marked_lines:
        return terms
    parts = [f"{counts[kind]} {words}" for kind, words in _FAULTS.items()]
    marked = (
        f"{len(marked_lines)} of {total} translations are marked: {', '.join(parts)}. The first is of line "
        f"{marked_lines[0]}."
    )
    return f"{marked} {terms}" if terms else marked
