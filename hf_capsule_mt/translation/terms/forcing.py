"""Terms of a glossary in translations: which ones are missing, and a second search that writes them.

The first search knows no terms, so a translation that has them by itself stays as it is. Only sentences whose
translations lack a term are searched again.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import regex
from transformers import GenerationConfig, PreTrainedTokenizerBase

from hf_capsule_mt.data.languages import TOKENIZING
from hf_capsule_mt.decoding.search.term_automaton import Forms, WordBoundaries
from hf_capsule_mt.decoding.search.term_banks import MOST_FINISHED, TermBanks, default_bank_width
from hf_capsule_mt.errors import UserError

from ..generation.decoder import Decoded, Decoder
from ..text.words import IN_WORD
from ..translation import Sentence
from .glossary import Entry, Glossary, Term, capitalised, copies, placed_forms

logger = logging.getLogger(__name__)

_LETTER = regex.compile(IN_WORD)
_PART_OF_LETTER = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer of bytes makes of a part of a letter."""
_BEFORE_A_FORM = ("a ", "\u201e", "(")
"""A form is spelled behind a word, behind a quote and behind a bracket."""
_WIDE = 8
"""Hypotheses of a bank in a second try, if a term has found no place."""
_CHECKED_TOGETHER = 1_000
"""Forms of one call of a tokenizer. While it runs, no other thread can read a text."""
_boundaries: WeakKeyDictionary[PreTrainedTokenizerBase, WordBoundaries] = WeakKeyDictionary()


@dataclass(frozen=True)
class PlacedTerm:
    """What became of a term of the source."""

    source: str
    """The words of the source."""
    target: str
    """The first form of the glossary."""
    form: str | None
    """The form in the translation, or None."""
    state: str
    """"model" if the translation had it without the glossary, "forced" if the search wrote it, or "missing"."""
    copies: int
    """How often one of the forms is there beyond the times that the source asks for."""
    aligned: bool | None = None
    """Whether the model looked at the source term when it wrote the form. None if nobody asked, or it is missing."""


class TermWriter:
    """Writes the terms of a glossary.

    Args:
        tokenizer: the tokenizer of the model.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer

    def complete(self, decoder: Decoder, sentences: Sequence[Sentence], decoded: Sequence[Decoded]) -> list[Decoded]:
        """Return the translation of each sentence with its terms, and with what became of them.

        A warning counts the terms that are missing.

        Args:
            decoder: has decoded them, and decodes again those that lack terms.
            sentences: the sentences, with one target language.
            decoded: their translations without the glossary.

        Raises:
            UserError: if the engine cannot decode, or a form of a term has characters that the tokenizer lacks, or
                tokens that the model never writes.
        """
        results: list[Decoded] = []
        for sentence, one, text in zip(sentences, decoded, self._texts(decoded), strict=True):
            terms = placed_terms(text, sentence.terms, by_model=sentence.terms)
            results.append(replace(one, terms=terms))

        # Sentences with as many terms have as many rows in the search.
        lacking: dict[int, list[int]] = {}
        for index, one in enumerate(results):
            if _num_missing(one.terms):
                lacking.setdefault(len(one.terms), []).append(index)

        most_rows = len(sentences) * (decoder.settings.num_beams or 1)
        for indices in lacking.values():
            of_indices = [sentences[index] for index in indices]
            ordered = [_missing_first(sentences[index].terms, results[index].terms) for index in indices]
            found = self._search(decoder, of_indices, ordered, most_rows)
            for index, one in zip(indices, found, strict=True):
                before = results[index].terms
                after = self._placed_again(one, sentences[index].terms, before)
                # With more terms than the search has room for, it may lose some that the model has written.
                if _num_missing(after) < _num_missing(before):
                    results[index] = replace(one, terms=after)

        missing = sum(_num_missing(one.terms) for one in results)
        if missing:
            # It does not name them, because they are texts of a server's client.
            logger.warning(
                "%d terms of the glossary are missing in the translations. Most often they have no room: a translation "
                "has a limit of tokens, and of 15 terms.",
                missing,
            )

        return results

    def _placed_again(
        self, decoded: Decoded, terms: Sequence[Term], before: Sequence[PlacedTerm]
    ) -> tuple[PlacedTerm, ...]:
        """Return what became of terms in a second translation, of which the first one had some by itself."""
        [text] = self._texts([decoded])
        by_model = [term for term, placed in zip(terms, before, strict=True) if placed.state == "model"]
        return placed_terms(text, terms, by_model)

    def _search(
        self, decoder: Decoder, sentences: Sequence[Sentence], terms: Sequence[Sequence[Term]], most_rows: int
    ) -> list[Decoded]:
        """Search again for some sentences with the same number of terms. Return the best translation of each.

        Args:
            decoder: decodes.
            sentences: the sentences.
            terms: those of each, first those that must not be left out.
            most_rows: hypotheses of a batch, so that it takes no more memory than the first search.
        """
        num_beams = decoder.settings.num_beams or 1
        best = self._best(decoder, sentences, terms, default_bank_width(num_beams), most_rows)

        again = []
        for row, (missing, _) in enumerate(best):
            if missing and num_beams > 1:
                again.append(row)

        if again:
            their_terms = [terms[row] for row in again]
            wider = self._best(decoder, [sentences[row] for row in again], their_terms, _WIDE, most_rows)
            for row, translation in zip(again, wider, strict=True):
                best[row] = min(best[row], translation, key=_rank)
        return [decoded for _, decoded in best]

    def _best(
        self,
        decoder: Decoder,
        sentences: Sequence[Sentence],
        terms: Sequence[Sequence[Term]],
        width: int,
        most_rows: int,
    ) -> list[tuple[int, Decoded]]:
        """Return the translation of each sentence with fewest missing terms, then fewest copies, then the best score.

        The number of missing terms stands in front of it.
        """
        alternatives = self._alternatives(decoder, sentences, terms, width, most_rows)
        best = []
        for of_sentence, translations in zip(terms, alternatives, strict=True):
            best.append(self._best_of(of_sentence, translations))
        return best

    def _alternatives(
        self,
        decoder: Decoder,
        sentences: Sequence[Sentence],
        terms: Sequence[Sequence[Term]],
        width: int,
        most_rows: int,
    ) -> list[list[Decoded]]:
        """Return several translations of each sentence by the search with terms, the best by their scores first."""
        size = decoder.model.get_output_embeddings().weight.shape[0]
        suppressed = suppressed_tokens(decoder.settings)
        forms = []
        for of_sentence in terms:
            forms.append([self._token_forms(term, suppressed) for term in of_sentence])
        boundaries = word_boundaries(self._tokenizer, size)

        # A hypothesis for each number of terms that it has, from none to all.
        rows = (len(terms[0]) + 1) * width
        size_of_batch = max(1, most_rows // rows)

        alternatives = []
        for start in range(0, len(sentences), size_of_batch):
            batch = sentences[start : start + size_of_batch]
            sources = [sentence.token_ids for sentence in batch]
            alternatives += decoder.decode(
                sources,
                MOST_FINISHED,
                first_token=batch[0].direction.first_token,
                terms=TermBanks.of(forms[start : start + len(batch)], width, boundaries),
            )
        return alternatives

    def _best_of(self, terms: Sequence[Term], alternatives: Sequence[Decoded]) -> tuple[int, Decoded]:
        """Return the translation with fewest missing terms, then fewest copies, behind its number of missing terms."""
        ranked = []
        for rank, (text, decoded) in enumerate(zip(self._texts(alternatives), alternatives, strict=True)):
            placed = placed_terms(text, terms, by_model=())
            num_copies = sum(term.copies for term in placed)
            ranked.append(((_num_missing(placed), num_copies, rank), decoded))
        (missing, _, _), chosen = min(ranked, key=_rank)
        return missing, chosen

    def _texts(self, decoded: Sequence[Decoded]) -> list[str]:
        return self._tokenizer.batch_decode([one.token_ids for one in decoded], skip_special_tokens=True)

    def _token_forms(self, term: Term, suppressed: frozenset[int]) -> Forms:
        """Return the forms of a term as token ids, as they are spelled in different places of a sentence."""
        spellings: list[Sequence[int]] = []
        for form in term.entry.targets:
            spellings += token_spellings(self._tokenizer, form, term.entry.place, suppressed)
        return list(dict.fromkeys(spellings))


def _num_missing(placed: Sequence[PlacedTerm]) -> int:
    return sum(term.state == "missing" for term in placed)


def _missing_first(terms: Sequence[Term], placed: Sequence[PlacedTerm]) -> list[Term]:
    """Return the terms of a sentence, first those that its translation lacks. The search may have no room for all."""
    missing: list[Term] = []
    others: list[Term] = []
    for term, of_term in zip(terms, placed, strict=True):
        if of_term.state == "missing":
            missing.append(term)
        else:
            others.append(term)
    return [*missing, *others]


def _rank(result: tuple[Any, Decoded]) -> Any:
    return result[0]


def placed_terms(text: str, terms: Sequence[Term], by_model: Sequence[Term]) -> tuple[PlacedTerm, ...]:
    """Return what became of each term in a translation. Those `by_model` were there without the glossary."""
    placed = []
    for term, form, extra in zip(terms, placed_forms(text, terms), copies(text, terms), strict=True):
        state = "missing"
        if form is not None:
            state = "forced"
            if term in by_model:
                state = "model"
        placed.append(PlacedTerm(term.source, term.entry.targets[0], form, state, extra))
    return tuple(placed)


def word_boundaries(tokenizer: PreTrainedTokenizerBase, size: int) -> WordBoundaries:
    """Return which tokens begin or end with a letter, by what they add to a text. It is found once per tokenizer.

    Args:
        tokenizer: the tokenizer.
        size: tokens that the model can write. Many models have some that their tokenizer does not know.
    """
    if tokenizer not in _boundaries:
        begins_inside = []
        ends_inside = []
        for added in _added_texts(tokenizer):
            begins_inside.append(_is_in_word(added[:1]))
            ends_inside.append(_is_in_word(added[-1:]))
        _boundaries[tokenizer] = WordBoundaries(begins_inside, ends_inside)
    begins_inside, ends_inside = _boundaries[tokenizer]
    unknown = [False] * (size - len(begins_inside))
    return WordBoundaries([*begins_inside, *unknown], [*ends_inside, *unknown])


def _added_texts(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return what each token adds to a text that ends with a letter."""
    [before] = _token_ids(tokenizer, ["a"])
    [text] = tokenizer.batch_decode([before])
    size = max(tokenizer.get_vocab().values()) + 1
    longer = tokenizer.batch_decode([[*before, token] for token in range(size)], skip_special_tokens=True)
    return [decoded[len(text) :] for decoded in longer]


def _is_in_word(letter: str) -> bool:
    return letter == _PART_OF_LETTER or _LETTER.match(letter) is not None


def suppressed_tokens(settings: GenerationConfig) -> frozenset[int]:
    """Return the tokens that a model with these settings never writes."""
    suppressed = set(settings.suppress_tokens or ())
    for token_ids in settings.bad_words_ids or ():
        if len(token_ids) == 1:
            suppressed.update(token_ids)
    return frozenset(suppressed)


def token_spellings(
    tokenizer: PreTrainedTokenizerBase, form: str, place: str = "", suppressed: frozenset[int] = frozenset()
) -> Forms:
    """Return the token ids of a form: inside a sentence, at its beginning, and after a quote or bracket.

    Args:
        tokenizer: the tokenizer.
        form: words of the target language.
        place: file and line of the form, for the error.
        suppressed: tokens that the model never writes.

    Raises:
        UserError: if the tokenizer, or the model, cannot write the form.
    """
    texts = [form, capitalised(form)]
    for before in _BEFORE_A_FORM:
        texts += [before.strip(), before + form]
    first, with_capital, *behind_others = _token_ids(tokenizer, texts)

    spellings = [first, with_capital]
    for before, both in zip(behind_others[::2], behind_others[1::2], strict=True):
        # A token may have parts of both. Then the form has no spelling here.
        if both[: len(before)] == before and len(both) > len(before):
            spellings.append(both[len(before) :])

    if not spellings[0] or tokenizer.unk_token_id in spellings[0]:
        raise UserError(f"{place}: the model's tokenizer cannot write {form!r}. Take the term out of the glossary.")

    known = [spelling for spelling in spellings if tokenizer.unk_token_id not in spelling]
    allowed = [spelling for spelling in known if suppressed.isdisjoint(spelling)]
    # Other spellings are for few places, such as behind a quote.
    if not suppressed.isdisjoint(spellings[0]):
        raise UserError(
            f"{place}: the model's generation config suppresses a token of {form!r}. Take the term out of the glossary."
        )

    return list(dict.fromkeys(map(tuple, allowed)))


def check_glossary(glossary: Glossary, tokenizer: PreTrainedTokenizerBase, settings: GenerationConfig) -> None:
    """Raise a UserError for the first entry with a form that the tokenizer, or a model with settings, cannot write."""
    _check_entries(glossary.entries, tokenizer, settings)


def check_terms(terms: Sequence[Term], tokenizer: PreTrainedTokenizerBase, settings: GenerationConfig) -> None:
    """Raise a UserError for the first term with a form that the tokenizer, or a model with settings, cannot write."""
    _check_entries(list(dict.fromkeys(term.entry for term in terms)), tokenizer, settings)


def _check_entries(entries: Sequence[Entry], tokenizer: PreTrainedTokenizerBase, settings: GenerationConfig) -> None:
    suppressed = suppressed_tokens(settings)
    not_written = suppressed | {tokenizer.unk_token_id}
    forms = []
    for entry in entries:
        forms += [(form, entry.place) for form in entry.targets]

    # Many at once, because there may be tens of thousands.
    for start in range(0, len(forms), _CHECKED_TOGETHER):
        part = forms[start : start + _CHECKED_TOGETHER]
        encoded = _token_ids(tokenizer, [form for form, _ in part])
        for (form, place), token_ids in zip(part, encoded, strict=True):
            if not token_ids or not not_written.isdisjoint(token_ids):
                # It raises the error.
                token_spellings(tokenizer, form, place, suppressed)


def _token_ids(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    # A tokenizer spells sources and targets in two ways, and has one of them at a time for all threads.
    with TOKENIZING:
        return tokenizer(text_target=texts, add_special_tokens=False, verbose=False)["input_ids"]
