"""What one forced pass of a model, and the words themselves, say about whether a translation can be trusted.

The model is made to write a translation that is there already. It gives the log-probability of each token, and how much
each token attends to each token of the source. Both come from the same pass. None of these numbers needs a reference.
`evaluate --quality` measures which errors each one finds.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import regex
import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .attention import aligning_attention, attending, source_spans
from .surface_checks import WORD, compare_numbers, copied_share, wrong_script
from .token_rows import behind_start, pad_rows

_MOST_SCORES = 1 << 25
"""The most scores and attention weights that are in memory together."""
_LEAST_ATTENTION = 1e-6
"""A smaller sum counts as this one, so that its logarithm is finite."""
UNCOVERED = 0.2
"""A word of the source is uncovered if all tokens of the translation together attend to it less than to this part of a
token."""


@dataclass(frozen=True)
class ForcedTarget:
    """What a model makes of a translation that it is made to write."""

    log_probabilities: list[float]
    """Of its tokens, with the end if there is one. A code of the language that is always written is left out."""
    attention: Tensor | None = None
    """How much each step attends to each source token, `[target, source]`. None if the model has no attention."""
    future_share: float | None = None
    """FUTURE's share in PAST and FUTURE together at the last step, with guided routing."""

    @property
    def score(self) -> float:
        """The mean log-probability, 0 without tokens."""
        return sum(self.log_probabilities) / max(len(self.log_probabilities), 1)


@dataclass(frozen=True)
class Signs:
    """What may tell a good translation from a bad one. None is what cannot be known."""

    lowest: float | None = None  # The log-probability of the least likely token.
    lowest_word: str | None = None  # The word with this token, or an empty string for the end.
    end: float | None = None  # The log-probability of the end of the translation.
    coverage: float | None = None  # Geometric mean over source tokens of their attention, at most 1 each.
    uncovered: list[dict[str, Any]] | None = None  # Source words with almost no attention, and their places.
    entropy: float | None = None  # The mean entropy of the attention, in nats.
    copied: float | None = None  # The share of its words that stand in the source.
    new_numbers: list[str] | None = None  # Numbers that the source does not have.
    missing_numbers: list[str] | None = None  # Numbers of the source that it does not have.
    script: str | None = None  # Its script, only if the language is not written in it.
    future_share: float | None = None  # FUTURE's share at the end, with guided routing.


def guided_groups(config: PreTrainedConfig) -> tuple[int, int]:
    """Return the number of PAST columns of `guided_routing`, and of FUTURE columns, or (0, 0)."""
    # A stranger's Marian model may have any field, which means nothing in its class.
    is_known = hasattr(type(config), "guided_routing")
    if not is_known or config.guided_routing is None:
        return 0, 0
    if config.guided_routing == "gdr":
        return config.num_past_capsules, config.num_future_capsules
    # The baselines of guided dynamic routing assign words to PAST and FUTURE as a whole.
    return 1, 1


@torch.no_grad()
def force_targets(
    model: PreTrainedModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    first_token: int | None = None,
) -> list[ForcedTarget]:
    """Let a model write given translations, in one pass.

    The mean log-probability is `sequences_scores` of `generate()` with a length penalty of 1.

    Args:
        model: in evaluation mode.
        sources: token ids with their ends.
        targets: token ids with their ends, without a start token.
        first_token: the token of a language that every translation was made to begin with, by default that of the
            model's settings.
    """
    if first_token is None:
        first_token = model.generation_config.forced_bos_token_id
    rows = rows_in_memory(model.config, max(map(len, sources), default=1), max(map(len, targets), default=1))
    reader = attending(model)
    forced: list[ForcedTarget] = []
    for start in range(0, len(targets), rows):
        end = start + rows
        forced += _force_batch(model, reader, sources[start:end], targets[start:end], first_token)
    return forced


def rows_in_memory(
    config: PreTrainedConfig, longest_source: int, longest_target: int, *, has_scores: bool = True
) -> int:
    """Return how many translations a model reads in one pass that returns its attention, at least one.

    Args:
        config: of the model.
        longest_source: tokens of the longest source.
        longest_target: tokens of the longest translation.
        has_scores: whether the pass also returns scores of the vocabulary.
    """
    longest_source = max(longest_source, 1)
    longest_target = max(longest_target, 1)
    layers = getattr(config, "num_hidden_layers", 1) or 1
    heads = getattr(config, "num_attention_heads", 1) or 1
    # All weights of attention are in memory for each token, and the scores of a vocabulary.
    of_token = layers * heads * (longest_source + longest_target)
    if has_scores:
        of_token += config.vocab_size
    return max(_MOST_SCORES // (longest_target * of_token), 1)


def sequence_scores(
    model: PreTrainedModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    settings: GenerationConfig,
) -> list[float]:
    """Return the scores of given translations, as `sequences_scores` of `generate()`, by one pass of the model.

    They have the model's own probabilities, also where settings such as `repetition_penalty` change those of a search.

    Args:
        model: in evaluation mode.
        sources: token ids with their ends.
        targets: token ids with their ends, without a start token.
        settings: those of the translations.
    """
    penalty = 1.0 if settings.length_penalty is None else settings.length_penalty
    forced_targets = force_targets(model, sources, targets, settings.forced_bos_token_id)
    scores = []
    for forced, target in zip(forced_targets, targets, strict=True):
        # A language that is always written costs nothing in a search, but counts as a token.
        scores.append(sum(forced.log_probabilities) / max(len(target), 1) ** penalty)
    return scores


def _force_batch(
    model: PreTrainedModel,
    reader: PreTrainedModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    first_token: int | None,
) -> list[ForcedTarget]:
    """Force one batch. The reader has the weights of the model, and returns its attention."""
    padding = model.config.pad_token_id
    input_ids, source_mask = pad_rows(sources, padding, model.device)
    target_ids, _ = pad_rows(targets, padding, model.device)
    if not target_ids.shape[1]:
        return [ForcedTarget([]) for _ in targets]
    num_past, num_future = guided_groups(model.config)
    options = {"output_routing": True} if num_future else {}
    output = reader(
        input_ids=input_ids,
        attention_mask=source_mask.long(),
        decoder_input_ids=behind_start(model, target_ids)[:, :-1],
        use_cache=False,
        output_attentions=True,
        **options,
    )
    log_probabilities = output.logits.float().log_softmax(-1)
    scores = log_probabilities.gather(-1, target_ids.unsqueeze(-1)).squeeze(-1).tolist()
    attention = _attention(output)
    forced = []
    for row, target in enumerate(targets):
        length = len(target)
        # Nothing else can stand there, so it says nothing.
        first = 1 if first_token is not None and length > 1 and target[0] == first_token else 0
        weights = None
        if attention is not None:
            weights = attention[row, :length, : len(sources[row])]
        future_share = None
        if num_future and length:
            future_share = _future_share(output.guided_routing[row, length - 1], num_past, num_future)
        forced.append(ForcedTarget(scores[row][first:length], weights, future_share))
    return forced


def _future_share(assignment: Tensor, num_past: int, num_future: int) -> float:
    """Return FUTURE's share in PAST and FUTURE together, from the assignment of one step, `[source, columns]`."""
    # Padding of the source is assigned to nothing.
    assignment = assignment.float()
    past = assignment[:, :num_past].sum().item()
    future = assignment[:, num_past : num_past + num_future].sum().item()
    return future / max(past + future, _LEAST_ATTENTION)


def _attention(output: Any) -> Tensor | None:
    """Return the mean over the heads and the last two layers, `[batch, target, source]`, or None without attention."""
    layers = [layer for layer in getattr(output, "cross_attentions", None) or () if layer is not None]
    if not layers:
        return None
    last_layers = [layer.float() for layer in layers[-2:]]
    return aligning_attention(last_layers, heads=None).cpu()


def read_signs(
    forced: ForcedTarget,
    tokenizer: PreTrainedTokenizerBase,
    source: tuple[str, Sequence[int]],
    target: tuple[str, Sequence[int]],
    *,
    has_end: bool,
    language: str | None = None,
) -> Signs:
    """Return the signs of one translation.

    Args:
        forced: of the translation, by [`force_targets`].
        tokenizer: the model's.
        source: the text, and the token ids that the model read.
        target: the translation, and its token ids without the end.
        has_end: whether the model wrote an end.
        language: the language to write, such as "de" or "deu_Latn". Without it no script is wrong.
    """
    source_text, source_ids = source
    target_text, target_ids = target
    new_numbers, missing_numbers = compare_numbers(source_text, target_text)
    signs = Signs(
        copied=_rounded(copied_share(source_text, target_text)),
        new_numbers=new_numbers,
        missing_numbers=missing_numbers,
        script=wrong_script(source_text, target_text, language),
        future_share=_rounded(forced.future_share),
    )
    scores = forced.log_probabilities
    if not scores:
        return signs
    lowest = min(scores)
    # A code of the language is not among the scores.
    left_out = len(target_ids) + has_end - len(scores)
    signs = replace(
        signs,
        lowest=_rounded(lowest),
        lowest_word=_word_of(tokenizer, target_ids, scores.index(lowest) + left_out),
        end=_rounded(scores[-1]) if has_end else None,
    )
    if forced.attention is None:
        return signs
    # The step that writes the end looks for what is left, and would hide what is missing.
    writing = forced.attention[:-1] if has_end else forced.attention
    received = writing.sum(0).tolist()
    spans = source_spans(tokenizer, source_text, source_ids)
    return replace(
        signs,
        coverage=_rounded(_coverage(received, spans)),
        uncovered=_uncovered_words(received, spans, source_text),
        entropy=_rounded(torch.special.entr(forced.attention).sum(-1).mean().item()),
    )


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)


def _word_of(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], index: int) -> str:
    """Return the word that a token is part of, or an empty string for the end."""
    if index >= len(ids):
        return ""
    beginnings = [ids, ids[:index], ids[: index + 1]]
    text, before, with_token = tokenizer.batch_decode(beginnings, skip_special_tokens=True)
    first = len(before.rstrip())
    last = len(with_token.rstrip()) - 1
    for word in regex.finditer(r"\S+", text):
        if word.end() > first and word.start() <= last < word.end():
            return word[0]
    return ""


def _coverage(received: Sequence[float], spans: Sequence[tuple[int, int] | None]) -> float | None:
    """Return the geometric mean of the attention that each token of the text receives, at most 1 each."""
    logarithms = []
    for amount, span in zip(received, spans, strict=True):
        if span is not None:
            amount = min(max(amount, _LEAST_ATTENTION), 1.0)
            logarithms.append(math.log(amount))
    if not logarithms:
        return None
    mean = sum(logarithms) / len(logarithms)
    return math.exp(mean)


def _uncovered_words(
    received: Sequence[float], spans: Sequence[tuple[int, int] | None], text: str
) -> list[dict[str, Any]]:
    """Return the words of a text that receive almost no attention, with their places."""
    words = list(WORD.finditer(text))
    ends = [word.end() for word in words]
    totals = [0.0] * len(words)
    is_read = [False] * len(words)
    for amount, span in zip(received, spans, strict=True):
        if span is None:
            continue
        index = bisect_right(ends, span[0])
        if index < len(words) and words[index].start() < span[1]:
            totals[index] += amount
            is_read[index] = True
    uncovered = []
    for index, word in enumerate(words):
        # The model did not read the end of a source that was cut.
        if is_read[index] and totals[index] < UNCOVERED:
            uncovered.append({"word": word[0], "start": word.start(), "end": word.end()})
    return uncovered
