"""What a model says of translations that it is made to write: its attention, and the probability of each token."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from hf_capsule_mt.decoding.fingerprint import Fingerprint, with_shared_weights
from hf_capsule_mt.errors import UserError

from ..generation.decoder import pad_rows

Head = tuple[int, int]
"""A layer of the decoder that attends to the source, and a head of it, both from 0."""
_MOST_SCORES = 1 << 25
"""The most scores and attention weights that are in memory together."""

_attending: WeakKeyDictionary[nn.Module, tuple[Fingerprint, nn.Module]] = WeakKeyDictionary()
"""For each model a copy that returns its attention. Making one takes long."""


@dataclass(frozen=True)
class ForcedTarget:
    """What a model makes of a translation that it is made to write."""

    log_probabilities: list[float] | None = None
    """Of its tokens, with the end if there is one. A code of the language that is always written is left out."""
    attention: Tensor | None = None
    """How much each step attends to each source token, `[target, source]`, by the heads that align words best."""
    mean_attention: Tensor | None = None
    """The same by all heads of the last two layers. Both are None if the model has no attention."""

    @property
    def mean_log_probability(self) -> float:
        """The mean over its tokens, 0 without tokens."""
        return sum(self.log_probabilities) / max(len(self.log_probabilities), 1)

    def of_tokens(self, are_seen: Sequence[bool]) -> "ForcedTarget":
        """Return the same of some tokens only. `are_seen` has one for each token of the translation, with its end."""
        if all(are_seen):
            return self

        seen = self
        if self.log_probabilities is not None:
            # A code of the language is not among them.
            first = len(are_seen) - len(self.log_probabilities)
            seen = replace(seen, log_probabilities=list(compress(self.log_probabilities, are_seen[first:])))

        if self.mean_attention is not None:
            rows = torch.tensor(are_seen, dtype=torch.bool)
            seen = replace(seen, attention=self.attention[rows], mean_attention=self.mean_attention[rows])
        return seen

    def sequence_score(self, length: int, length_penalty: float | None) -> float:
        """Return the score, as `sequences_scores` of `generate()`, of a translation of so many tokens."""
        if length_penalty is None:
            length_penalty = 1.0
        # A language that is always written costs nothing in a search, but counts as a token.
        return sum(self.log_probabilities) / max(length, 1) ** length_penalty


@torch.no_grad()
def forced_pass(
    model: PreTrainedModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    scores: bool = True,
    attention: bool = True,
    first_token: int | None = None,
) -> list[ForcedTarget]:
    """Let a model write finished translations, in one pass for as many as fit in memory.

    They have the model's own probabilities, also where settings such as `repetition_penalty` change those of a search.

    Args:
        model: in evaluation mode.
        sources: token ids with their ends.
        targets: token ids with their ends, without a start token.
        scores: whether the probabilities of tokens are wanted.
        attention: whether the attention is wanted, if the model has any.
        first_token: the token of a language that every translation was made to begin with, by default that of the
            model's settings.
    """
    if first_token is None:
        first_token = model.generation_config.forced_bos_token_id
    longest_source = max(map(len, sources), default=1)
    longest_target = max(map(len, targets), default=1)
    rows = _rows_in_memory(model.config, longest_source, longest_target, has_scores=scores)
    forced: list[ForcedTarget] = []
    for start in range(0, len(targets), rows):
        part = slice(start, start + rows)
        forced += _force(model, sources[part], targets[part], scores, attention, first_token)
    return forced


def _rows_in_memory(config: PreTrainedConfig, longest_source: int, longest_target: int, *, has_scores: bool) -> int:
    """Return how many translations are forced together, at least one.

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


def _force(
    model: PreTrainedModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    scores: bool,
    attention: bool,
    first_token: int | None,
) -> list[ForcedTarget]:
    """Force one batch. The arguments are those of [`forced_pass`]."""
    if not any(targets):
        nothing = ForcedTarget(log_probabilities=[] if scores else None)
        return [nothing] * len(targets)

    reader = model
    if attention:
        reader = attending(model)
    forced = teacher_force(reader, sources, targets, with_head=scores, output_attentions=attention)

    log_probabilities: list[list[float]] | None = None
    if scores:
        of_tokens = forced.output.logits.float().log_softmax(-1)
        written = of_tokens.gather(-1, forced.targets.unsqueeze(-1))
        log_probabilities = written.squeeze(-1).tolist()

    aligning = None
    mean = None
    if attention:
        aligning, mean = _attentions(model, forced.output)

    results = []
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        # Nothing else can stand there, so it says nothing.
        first = 0
        if first_token is not None and len(target) > 1 and target[0] == first_token:
            first = 1

        result = ForcedTarget()
        if log_probabilities is not None:
            result = replace(result, log_probabilities=log_probabilities[row][first : len(target)])
        if mean is not None:
            without_padding = row, slice(len(target)), slice(len(source))
            result = replace(result, attention=aligning[without_padding], mean_attention=mean[without_padding])
        results.append(result)
    return results


def _attentions(model: PreTrainedModel, output: Any) -> tuple[Tensor | None, Tensor | None]:
    """Return the attention of the heads that align words, and of all of the last layers, `[batch, target, source]`."""
    layers = [layer.float() for layer in _cross_attentions(output)]
    if not layers:
        return None, None
    mean = aligning_attention(layers, None).cpu()
    heads = alignment_heads(model)
    return mean if heads is None else aligning_attention(layers, heads).cpu(), mean


@dataclass(frozen=True)
class TeacherForcedPass:
    """Output of the model. Position t of the target writes `targets[:, t]`."""

    output: Any
    source_mask: Tensor  # `[batch, source]` bool, False for padding.
    target_mask: Tensor  # `[batch, target]` bool, False for padding.
    sources: Tensor  # Padded token ids, `[batch, source]`.
    targets: Tensor  # Padded token ids, `[batch, target]`.


@torch.no_grad()
def teacher_force(
    model: PreTrainedModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    with_head: bool = False,
    **options: Any,
) -> TeacherForcedPass:
    """Run the model over given translations in one pass.

    Args:
        model: the model.
        sources: token ids with the end of the sentence.
        targets: token ids without a start token.
        with_head: whether the language model head gives scores of all tokens.
        **options: of the model's forward, such as `output_attentions=True`, or `output_routing="all"`.
    """
    padding = model.config.pad_token_id
    source_ids, source_mask = pad_rows(sources, padding, model.device)
    target_ids, target_mask = pad_rows(targets, padding, model.device)

    forward = model.base_model
    if with_head:
        forward = model
    output = forward(
        input_ids=source_ids,
        attention_mask=source_mask.long(),
        # The last token is not read: it may be one more than there are positions.
        decoder_input_ids=behind_start(model, target_ids)[:, :-1],
        use_cache=False,
        **options,
    )
    return TeacherForcedPass(output, source_mask, target_mask, source_ids, target_ids)


def attending(model: PreTrainedModel) -> PreTrainedModel:
    """Return a model with the same weights that can return its attention."""
    # Transformers has no public way to read which attention a model uses.
    if model.config._attn_implementation == "eager":
        return model

    fingerprint, reader = _attending.get(model, (None, None))
    if fingerprint is None or not fingerprint.is_of(model):
        # The model itself stays as it is: another thread may be in the middle of a pass, with masks of another kind.
        reader = with_shared_weights(model)
        # Encoder and decoder of T5 have configurations of their own, which old versions do not set with the model's.
        for part in reader.modules():
            if isinstance(part, PreTrainedModel):
                part.set_attn_implementation("eager")
        _attending[model] = (Fingerprint(model), reader)

    # The model may have changed from training to evaluation since then.
    for copied_module, module in zip(reader.modules(), model.modules(), strict=True):
        copied_module.training = module.training
    return reader


def _cross_attentions(output: Any) -> list[Tensor]:
    """Return the cross-attention in a model's output, `[batch, heads, target, source]` of each layer that has any."""
    return [layer for layer in getattr(output, "cross_attentions", None) or () if layer is not None]


def cross_attentions_of(model: PreTrainedModel, output: Any) -> list[Tensor]:
    """Return the cross-attention in a model's output, `[batch, heads, target, source]` of each layer that has any.

    Raises:
        UserError: if no layer has any.
    """
    layers = _cross_attentions(output)
    if not layers:
        raise no_attention(model)
    return layers


def no_attention(model: PreTrainedModel) -> UserError:
    """Return the error for a model whose attention is needed, and that has none."""
    return UserError(
        f"A {model.config.model_type} model has no attention. Use another family, such as rnmt. If only addresses "
        "need it, give translate_addresses."
    )


def alignment_heads(model: PreTrainedModel) -> list[Head] | None:
    """Return the heads whose attention aligns words, if `alignment_heads` has stored any with the model.

    They are `alignment_heads` of its generation config, as Whisper has them.
    """
    heads = getattr(getattr(model, "generation_config", None), "alignment_heads", None)
    return heads and [(int(layer), int(head)) for layer, head in heads]


def aligning_attention(cross_attentions: Sequence[Tensor], heads: Sequence[Head] | None) -> Tensor:
    """Return the attention that aligns words, `[batch, target, source]`.

    Args:
        cross_attentions: `[batch, heads, target, source]` of each layer.
        heads: the mean is over these, a layer and a head of it, both from 0. None is all heads of the last two layers,
            which place words best if nothing is known of a model (benchmarks/tags/README.md).

    Raises:
        UserError: if there is no such head.
    """
    if heads is None:
        last_layers = [layer.mean(1) for layer in cross_attentions[-2:]]
        return torch.stack(last_layers).mean(0)
    chosen = []
    for layer, head in heads:
        if not (0 <= layer < len(cross_attentions) and 0 <= head < cross_attentions[layer].shape[1]):
            raise UserError(f"alignment_heads names head {head} of layer {layer}, which the model does not have.")
        chosen.append(cross_attentions[layer][:, head])
    return torch.stack(chosen).mean(0)


def start_token(model: PreTrainedModel) -> int:
    """Return the token with which `generate()` begins translations."""
    # A model without its head has no generation config.
    settings = getattr(model, "generation_config", None)
    starts = [
        getattr(settings, "decoder_start_token_id", None),
        model.config.decoder_start_token_id,
        # generate() begins with it where there is no start.
        getattr(settings, "bos_token_id", None),
    ]
    # 0 is a token too.
    return next(token_id for token_id in starts if token_id is not None)


def behind_start(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Return token ids `[batch, target]` after the start token of `generate()`, `[batch, 1 + target]`."""
    starts = ids.new_full((len(ids), 1), start_token(model))
    return torch.cat([starts, ids], dim=1)
