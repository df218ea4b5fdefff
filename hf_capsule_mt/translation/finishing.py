"""What becomes of generated words: texts with the tags of their sources, and what a report says of them."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.parallel_text import unbroken
from hf_capsule_mt.translation.attention import aligner, cross_attention
from hf_capsule_mt.translation.documents import Segment
from hf_capsule_mt.translation.marked_segments import MarkedSegment
from hf_capsule_mt.translation.teacher_forcing import pad_rows

from .translation_report import judge, sequence_scores
from .translator import Written

Found: TypeAlias = dict[str, Any]
"""A translation as its `text`, and what a report says of it."""


class Finisher:
    """Finishes the batches of some lines.

    Args:
        model: has written the translations; in evaluation mode.
        tokenizer: the model's.
        encoded: source tokens of every line.
        segments: what stands in the place of the lines, if it is not they.
        reports: whether translations are judged.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        encoded: Sequence[Sequence[int]],
        segments: Sequence[Segment] | None = None,
        reports: bool = False,
    ) -> None:
        self._model, self._tokenizer, self._encoded = model, tokenizer, encoded
        self._segments, self._reports = segments, reports

    def __call__(
        self, batch: Sequence[int], generated: Tensor, written: Sequence[Written], texts: list[str]
    ) -> list[Found]:
        """Return the translations of a batch, each with what is said of it, if they are judged.

        Args:
            batch: indices of the lines.
            generated: token ids, `[batch, length]`.
            written: their words, and ends.
            texts: as they were decoded.
        """
        judged = self._judged(batch, written, texts) if self._reports else [{}] * len(texts)
        if self._segments is not None:
            texts = self._put_back(batch, generated, written, unbroken(texts, "translations of a batch"))
        return [{"text": text, **judgement} for text, judgement in zip(texts, judged, strict=True)]

    def _judged(self, batch: Sequence[int], written: Sequence[Written], texts: list[str]) -> list[dict[str, Any]]:
        sources = [self._encoded[index] for index in batch]
        scores = sequence_scores(self._model, sources, [each.ids for each in written])
        rows = zip(sources, written, texts, scores, strict=True)
        return [vars(judge(source, each.words, each.end is not None, *rest)) for source, each, *rest in rows]

    def _put_back(
        self, batch: Sequence[int], generated: Tensor, written: Sequence[Written], texts: list[str]
    ) -> list[str]:
        segments = [self._segments[index] for index in batch]
        marked = [(row, segment) for row, segment in enumerate(segments) if isinstance(segment, MarkedSegment)]
        aligned = [row for row, segment in marked if segment.needs_alignment]
        attention = {}
        if aligned:
            sources = [self._encoded[batch[row]] for row in aligned]
            input_ids, mask = pad_rows(sources, self._model.config.pad_token_id, self._model.device)
            found = cross_attention(self._model, generated[aligned], input_ids=input_ids, attention_mask=mask.long())
            attention = dict(zip(aligned, found))
        finished = list(texts)
        for row, segment in marked:
            align = None
            if row in attention:
                pair = self._encoded[batch[row]], written[row].words
                align = aligner(attention[row], self._tokenizer, segment.text, *pair)
            finished[row] = segment.put_back(texts[row], align)
        return finished
