"""Marks that show a model, inside a source, how a term is translated: `⟨term⟩ printer ⟨is⟩ Drucker ⟨/term⟩`.

A model learns in training to use the marked form, and to inflect it. The tokenizer of such a model has three tokens for
the marks, so that a checkpoint says by itself whether it reads them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import TOKENIZING

from .attention import source_spans
from .glossary import Term

MARKS = ("⟨term⟩", "⟨is⟩", "⟨/term⟩")


@dataclass(frozen=True)
class TermMarks:
    """The token ids of the marks."""

    start: int
    middle: int
    end: int

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> "TermMarks | None":
        """Return the marks of a tokenizer, or None if its model was trained without them."""
        vocabulary = tokenizer.get_added_vocab()
        if not all(mark in vocabulary for mark in MARKS):
            return None
        return cls(*(vocabulary[mark] for mark in MARKS))

    def marked(
        self,
        tokenizer: PreTrainedTokenizerBase,
        text: str,
        token_ids: Sequence[int],
        forms: Mapping[Term, str],
    ) -> list[int]:
        """Return the token ids of a source with marks around its terms.

        Args:
            tokenizer: the model's.
            text: the source.
            token_ids: those of the source, which may begin with a code and end with an end.
            forms: what stands behind each term of the source.
        """
        spans = source_spans(tokenizer, text, token_ids)
        marked = list(token_ids)
        # From right to left, so that the places of the other terms stay.
        for term in sorted(forms, key=lambda term: term.start, reverse=True):
            covered = []
            for place, span in enumerate(spans):
                if span is not None and span[0] < term.end and term.start < span[1]:
                    covered.append(place)
            # Of a source that was cut, the term may be gone.
            if covered:
                first, last = covered[0], covered[-1]
                form = _ids_of_form(tokenizer, forms[term])
                inserted = [self.start, *token_ids[first : last + 1], self.middle, *form, self.end]
                marked[first : last + 1] = inserted
        return marked

    def without(self, token_ids: Sequence[int], attention: Tensor) -> tuple[list[int], Tensor]:
        """Return the token ids and the attention of a source as if it had no marks.

        The attention to a mark, or to a form that it shows, goes to the last token of the term.

        Args:
            token_ids: those of a source, perhaps with marks.
            attention: `[target, source]`.
        """
        kept_ids: list[int] = []
        column_of: list[int] = []
        is_form = False
        for token_id in token_ids:
            if token_id == self.middle:
                is_form = True
            is_kept = not is_form and token_id not in (self.start, self.end)
            if token_id == self.end:
                is_form = False
            if is_kept:
                kept_ids.append(token_id)
            # In front of the first token is only the mark of the first term.
            column_of.append(max(0, len(kept_ids) - 1))
        columns = torch.tensor(column_of, device=attention.device)
        folded = attention.new_zeros(len(attention), len(kept_ids))
        folded.index_add_(1, columns, attention[:, : len(column_of)])
        return kept_ids, folded


def _ids_of_form(tokenizer: PreTrainedTokenizerBase, form: str) -> list[int]:
    with TOKENIZING:
        return tokenizer(text_target=form, add_special_tokens=False, verbose=False)["input_ids"]
