"""Which words of a translation belong to which of its source, by the cross-attention of the model that wrote it."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, takewhile

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .source_limits import TOKENIZING
from .teacher_forcing import attending, cross_attentions_of

Span = tuple[int, int]


def cross_attention(model: PreTrainedModel, sequences: Tensor, **source: Tensor) -> Tensor:
    """Return how much each step of a translation attends to each source token, `[batch, length - 1, source]`.

    The weights are those of the step that writes a token, the mean of the last two layers, or of one if it is alone.

    Args:
        model: an encoder-decoder in evaluation mode.
        sequences: translations, `[batch, length]`, each beginning with what decoding starts from, and filled up at its
            end.
        **source: what the encoder takes, `[batch, ...]`.

    Raises:
        ValueError: if the model has no cross-attention.
    """
    # The last word is not read: it may be one more than there are positions.
    return last_two(layers_of_attention(model, sequences[:, :-1], **source)).cpu()


def last_two(layers: Sequence[Tensor]) -> Tensor:
    """Return the mean of the last two layers of [`layers_of_attention`], or of one if it is alone."""
    return torch.stack(list(layers[-2:])).mean(0)


@torch.no_grad()
def layers_of_attention(model: PreTrainedModel, sequences: Tensor, **source: Tensor) -> list[Tensor]:
    """Return the attention of each layer, the mean over its heads, `[batch, length, source]`: that of step t writes the
    word t + 1 of the sequences, and reads the word t. The rest is as of [`cross_attention`].
    """
    # What fills up a translation may be no word.
    read = sequences.clamp(min=0)
    reader = attending(model).base_model
    output = reader(**source, decoder_input_ids=read, use_cache=False, output_attentions=True)
    layers = cross_attentions_of(output)
    if not layers:
        raise ValueError(
            f"a {model.config.model_type} model has no attention, by which tags and what is kept find their places in "
            "a translation; translate with a model of another family, such as rnmt, or leave out tags and keep"
        )
    return [weights.float().mean(1) for weights in layers]


class AttentionAligner:
    """Tells how much each word of a translation belongs to each word of its source.

    Args:
        attention: `[target tokens, source tokens]`.
        source: where the source tokens are in the text of the source; None for special tokens.
        target: where the target tokens are in the translation, likewise.
    """

    def __init__(self, attention: Tensor, source: Sequence[Span | None], target: Sequence[Span | None]) -> None:
        self._attention, self._source, self._target = attention, source, target

    def __call__(self, source_words: Sequence[Span], target_words: Sequence[Span]) -> list[list[float]]:
        """Return a weight `[target word][source word]`: of the attention of all words to the tokens of the other, the
        share of this word. So an article that looks at its noun belongs to the article.
        """
        columns = _membership(self._source, source_words)
        rows = _membership(self._target, target_words)
        attention = self._attention[: len(self._target), : len(self._source)].double()
        weights = rows.T @ attention @ columns / rows.sum(0).clamp(min=1).unsqueeze(-1)
        return (weights / weights.sum(0, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)).tolist()


def aligner(
    attention: Tensor,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    ids: Sequence[int],
    words: Sequence[int],
    clean_up_tokenization_spaces: bool | None = None,
) -> AttentionAligner:
    """Return what aligns a text and its translation.

    Args:
        attention: `[target tokens, source tokens]`.
        tokenizer: of both.
        text: the source.
        ids: of the source, as the model reads it.
        words: ids of the translation, without what decoding starts from.
        clean_up_tokenization_spaces: as the translation was decoded.
    """
    options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": clean_up_tokenization_spaces}
    decode = partial(tokenizer.batch_decode, **options)
    return AttentionAligner(attention, source_spans(tokenizer, text, ids), target_spans(words, decode))


def _membership(tokens: Sequence[Span | None], words: Sequence[Span]) -> Tensor:
    """Return `[tokens, words]`, 1 where a token is in a word."""
    membership = torch.zeros(len(tokens), len(words), dtype=torch.double)
    starts = [start for start, _ in words]
    for number, token in enumerate(tokens):
        if token is None:
            continue
        word = max(bisect_right(starts, token[0]) - 1, 0)
        while word < len(words) and words[word][0] < token[1]:
            # Tokens may be of several words.
            if token[0] < words[word][1]:
                membership[number, word] = 1
            word += 1
    return membership


def source_spans(tokenizer: PreTrainedTokenizerBase, text: str, ids: Sequence[int]) -> list[Span | None]:
    """Return where in a text the tokens that a model reads are; None for special ones, and those of a prefix."""
    is_fast = getattr(tokenizer, "is_fast", False)
    offsets = {"return_offsets_mapping": True} if is_fast else {}
    with TOKENIZING:
        found = tokenizer(text, add_special_tokens=False, **offsets, verbose=False)
    if is_fast:
        spans = [_stripped(text, *span) for span in found["offset_mapping"]]
    else:
        spans = _walked(text, tokenizer.tokenize(text))
    own, ids = list(found["input_ids"]), list(ids)
    # Behind a code of the language or a prefix; what was cut off is not read.
    start = max(range(len(ids)), key=lambda start: (_common(own, ids[start:]), start), default=0)
    read = spans[: _common(own, ids[start:])]
    return [None] * start + read + [None] * (len(ids) - start - len(read))


def target_spans(ids: Sequence[int], decode: Callable[[list[list[int]]], list[str]]) -> list[Span | None]:
    """Return where in a translation its tokens are; None for those that leave no trace.

    Args:
        ids: of the translation.
        decode: returns the texts of several.
    """
    if not ids:
        return []
    texts = decode([list(ids[:end]) for end in range(1, len(ids) + 1)])
    # Half a character is shown as U+FFFD.
    ends = [min(end, len(texts[-1])) for end in accumulate((len(text.rstrip("\ufffd")) for text in texts), max)]
    return [_stripped(texts[-1], start, end) for start, end in zip([0, *ends], ends)]


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of what both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second)))


def _stripped(text: str, start: int, end: int) -> Span | None:
    inner = text[start:end].strip()
    if not inner:
        return None
    start = text.index(inner, start)
    return start, start + len(inner)


def _walked(text: str, pieces: Sequence[str]) -> list[Span | None]:
    """Return where the pieces of a tokenizer that does not tell are."""
    spans: list[Span | None] = []
    place = 0
    for piece in pieces:
        form = piece.replace("▁", " ").strip()
        # Some are not written as the text is: they are taken to be where the last one ends.
        near = text.find(form, place, place + len(form) + 20)
        start = near if near >= 0 else min(place, len(text))
        span = _stripped(text, start, min(start + len(form), len(text)))
        place = start + len(form) if span else place
        spans.append(span)
    return spans
