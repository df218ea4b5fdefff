"""Marks that show a model, inside a source, how a term is translated: `⟨term⟩ printer ⟨is⟩ Drucker ⟨/term⟩`.

A model learns in training to use the marked form, and to inflect it. The tokenizer of such a model has three tokens for
the marks, so that a checkpoint says by itself whether it reads them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import TOKENIZING
from hf_capsule_mt.data.tokenizer import tokenizer_hash
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_text

from .attention import source_spans
from .glossary import Glossary, Term, placed_forms

MARKS = ("⟨term⟩", "⟨is⟩", "⟨/term⟩")
MOST_MARKED = 3
"""Terms of a training source that are marked. With more, the source would be a dictionary."""
SHORTEST_BEGINNING = 4
"""Letters that two forms of one word share at least."""


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


def add_marks(tokenizer: PreTrainedTokenizerBase) -> None:
    """Give a tokenizer the tokens of the marks, if it lacks them. A text that spells them stays text.

    Raises:
        UserError: if the tokenizer has a vocabulary for each language.
    """
    if getattr(tokenizer, "separate_vocabs", False):
        raise UserError("Term marks need a tokenizer with one vocabulary for both languages. Leave out --glossary.")
    tokenizer.add_tokens(list(MARKS), special_tokens=True)


def make_room(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Give a model embeddings for the marks of its tokenizer, and keep it from writing them."""
    marks = TermMarks.of(tokenizer)
    ids = [marks.start, marks.middle, marks.end]
    if model.get_input_embeddings().weight.shape[0] <= max(ids):
        model.resize_token_embeddings(len(tokenizer))
    settings = model.generation_config
    settings.suppress_tokens = sorted({*(settings.suppress_tokens or ()), *ids})


class SourceMarker:
    """Marks terms in a share of the sources of a corpus, where the target has one of their forms.

    Half of the marked sources show the form of the target. The others show the first form of the same word, so that
    the model learns to inflect. The draw of a pair follows from the seed and its number, so it is the same in every
    epoch, and in a resumed run.

    Args:
        tokenizer: one with marks.
        glossary: terms and their forms, the base form first.
        rate: the share of the sources with terms that are marked, above 0 and at most 1.
        seed: what the draws follow from.

    Raises:
        UserError: if the rate is another number.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, glossary: Glossary, rate: float, seed: int) -> None:
        if not 0 < rate <= 1:
            raise UserError(f"term_rate is {rate}. It must be above 0, and at most 1.")
        self._tokenizer = tokenizer
        self._marks = TermMarks.of(tokenizer)
        self._glossary = glossary
        self._rate = rate
        self._seed = seed

    @property
    def identity(self) -> str:
        """A hash of all that decides which marks a source gets."""
        entries = [repr((entry.sources, entry.targets)) for entry in self._glossary.entries]
        return hash_text([tokenizer_hash(self._tokenizer), str(self._rate), str(self._seed), *entries])

    def __call__(self, number: int, source: str, target: str, token_ids: list[int]) -> list[int]:
        """Return the token ids of a source, perhaps with marks.

        Args:
            number: of the pair in its corpus.
            source: its source.
            target: its target.
            token_ids: those of the source.
        """
        generator = np.random.default_rng([self._seed, number])
        if generator.random() >= self._rate:
            return token_ids
        terms = self._glossary.terms(source)
        placed: dict[Term, str] = {}
        for term, form in zip(terms, placed_forms(target, terms), strict=True):
            if form is not None:
                placed[term] = form
        if not placed:
            return token_ids
        count = min(len(placed), int(generator.integers(1, MOST_MARKED + 1)))
        chosen = generator.permutation(len(placed))[:count]
        shows_base = generator.random() < 0.5
        candidates = list(placed)
        forms = {}
        for index in chosen:
            term = candidates[index]
            form = placed[term]
            forms[term] = base_form(term.entry.targets, form) if shows_base else form
        return self._marks.marked(self._tokenizer, source, token_ids, forms)


def base_form(forms: Sequence[str], form: str) -> str:
    """Return the first form of the same word. An entry may have other words for the term, too."""
    for candidate in forms:
        beginning = candidate[: max(SHORTEST_BEGINNING, len(candidate) - 2)]
        if form.startswith(beginning):
            return candidate
    return form


def _ids_of_form(tokenizer: PreTrainedTokenizerBase, form: str) -> list[int]:
    with TOKENIZING:
        return tokenizer(text_target=form, add_special_tokens=False, verbose=False)["input_ids"]
