"""Terms of a test set: it is translated with them, and they are counted, in which form and how often too many."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import warn_of_cut
from hf_capsule_mt.data.languages import ONE_PAIR, Direction
from hf_capsule_mt.data.lines import each_line, without_compression
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.preparation import RawText, TooLong
from hf_capsule_mt.translation.terms.forcing import check_terms
from hf_capsule_mt.translation.terms.glossary import Entry, Glossary, Term, copies, placed_forms
from hf_capsule_mt.translation.text_translator import TextTranslator

from .tables import table_in_markdown

MODES = ("none", "proper", "random")
"""Which terms a model is given. The terms that are counted are always the proper ones."""


@dataclass(frozen=True)
class TermScores:
    """What a file of translations has of its terms. Shares are between 0 and 1, and None if nothing is counted."""

    terms: int
    """Terms in the sources, each as often as it stands there."""
    success: float | None
    """The share of terms that have words of their own in the translation."""
    success_any_case: float | None
    """The same, if capitals are ignored."""
    success_first_form: float | None
    """The same, if only the first form of an entry counts."""
    consistency: float | None
    """Of the terms that were found more than once: the share that has the form which the term has most often."""
    sentences: int
    """Sentences with terms."""
    sentences_with_copies: int
    """Those that have a term more often than the source asks for."""


def read_terms(
    path: Path, sources: Sequence[str], source_lang: str | None = None, target_lang: str | None = None
) -> dict[str, list[list[Term]]]:
    """Return the terms of every source, by the mode that a model is given them in: "proper" or "random".

    Args:
        path: a glossary, whose terms are all proper. Or a file `.jsonl` with an object for each source, such as
            `{"proper": {"printer": ["Drucker", "Druckers"]}, "random": {"month": "Monat"}}`.
        sources: the sources.
        source_lang: the source language, for a glossary that has several.
        target_lang: the target language.

    Raises:
        UserError: if the file is damaged, or has not one line for each source.
    """
    path = Path(path)
    if without_compression(path).suffix != ".jsonl":
        glossary = Glossary.read(path, source_lang, target_lang)
        return {"proper": [glossary.terms(source) for source in sources]}

    lines = list(each_line(path))
    if len(lines) != len(sources):
        raise UserError(f"{path} has {len(lines)} lines, but there are {len(sources)} sources. Write one for each.")

    terms: dict[str, list[list[Term]]] = {"proper": [], "random": []}
    for number, (line, source) in enumerate(zip(lines, sources, strict=True), start=1):
        dictionaries = _dictionaries_of(line, f"{path}:{number}")
        for mode, of_lines in terms.items():
            glossary = Glossary(_entries_of(dictionaries.get(mode, {}), f"{path}:{number}"))
            of_lines.append(glossary.terms(source))
    return terms


def measure_terms(translations: Sequence[str], terms: Sequence[Sequence[Term]]) -> TermScores:
    """Measure what translations have of the terms of their sources.

    A form counts at word boundaries, and each term needs words of its own.
    """
    forms = []
    num_any_case = 0
    num_first_form = 0
    num_sentences = 0
    num_with_copies = 0

    for translation, of_line in zip(translations, terms, strict=True):
        forms.append(placed_forms(translation, of_line))
        num_any_case += _num_placed(translation.casefold(), [_in_lower_case(term) for term in of_line])
        num_first_form += _num_placed(translation, [_with_first_form(term) for term in of_line])
        num_sentences += bool(of_line)
        num_with_copies += has_copies(translation, of_line)

    num_terms = sum(map(len, terms))
    num_placed = sum(form is not None for of_line in forms for form in of_line)
    return TermScores(
        terms=num_terms,
        success=_share(num_placed, num_terms),
        success_any_case=_share(num_any_case, num_terms),
        success_first_form=_share(num_first_form, num_terms),
        consistency=_consistency(terms, forms),
        sentences=num_sentences,
        sentences_with_copies=num_with_copies,
    )


def has_copies(translation: str, terms: Sequence[Term]) -> bool:
    """Whether a translation has a term more often than the source asks for."""
    return any(copies(translation, terms))


def term_report(record: Mapping[str, Mapping[str, float | int | None]]) -> str:
    """Return a table of [`TermScores`] and `chrf`, by the name of the translations."""
    heads = ("translations", "terms", "success", "any case", "first form", "consistency", "copies", "chrF")
    rows: list[Sequence[str]] = [heads]
    for name, scores in record.items():
        cells = [name, str(scores["terms"])]
        for share in ("success", "success_any_case", "success_first_form", "consistency"):
            cells.append(_percent(scores[share]))
        cells.append(_percent(_share(scores["sentences_with_copies"], scores["sentences"])))
        cells.append("" if scores["chrf"] is None else f"{scores['chrf']:.2f}")
        rows.append(cells)
    return table_in_markdown(rows)


def _dictionaries_of(line: str, place: str) -> dict[str, dict[str, str | list[str]]]:
    try:
        dictionaries = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{place}: {error}. Write an object of JSON in each line.") from error
    if not isinstance(dictionaries, dict):
        raise UserError(f"{place}: this is no object of JSON.")
    for mode in ("proper", "random"):
        if not isinstance(dictionaries.get(mode, {}), dict):
            raise UserError(f'{place}: "{mode}" must be an object, from source terms to target forms.')
    return dictionaries


def _entries_of(dictionary: dict[str, str | list[str]], place: str) -> list[Entry]:
    entries = []
    for source, targets in dictionary.items():
        forms = [targets] if isinstance(targets, str) else targets
        if not isinstance(forms, list) or not all(isinstance(form, str) for form in forms):
            raise UserError(f"{place}: the target of {source!r} must be a text, or a list of texts.")
        entries.append(Entry((source,), tuple(forms), place))
    return entries


def _num_placed(translation: str, terms: Sequence[Term]) -> int:
    return sum(form is not None for form in placed_forms(translation, terms))


def _in_lower_case(term: Term) -> Term:
    return _with_targets(term, tuple(form.casefold() for form in term.entry.targets))


def _with_first_form(term: Term) -> Term:
    return _with_targets(term, term.entry.targets[:1])


def _with_targets(term: Term, targets: tuple[str, ...]) -> Term:
    return replace(term, entry=replace(term.entry, targets=targets))


def _consistency(terms: Sequence[Sequence[Term]], forms: Sequence[Sequence[str | None]]) -> float | None:
    """Return how often terms have their most frequent form, among terms that were found more than once."""
    forms_of: dict[str, Counter[str]] = {}
    for of_line, of_translation in zip(terms, forms, strict=True):
        for term, form in zip(of_line, of_translation, strict=True):
            if form is not None:
                forms_of.setdefault(term.entry.sources[0].casefold(), Counter())[form] += 1
    repeated = [counts for counts in forms_of.values() if counts.total() > 1]
    most_frequent = sum(max(counts.values()) for counts in repeated)
    return _share(most_frequent, sum(counts.total() for counts in repeated))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}%"


def translate_with_terms(
    translator: TextTranslator,
    sources: Sequence[str],
    terms: Sequence[Sequence[Term]],
    *,
    direction: Direction = ONE_PAIR,
    max_tokens_per_batch: int = 4096,
    **options: Any,
) -> list[str]:
    """Translate each source with its own terms, as `translate --glossary` does with those of a file.

    Args:
        translator: the model and its tokenizer.
        sources: one sentence each.
        terms: those of every source.
        direction: the languages. Models of one pair need none.
        max_tokens_per_batch: the most source tokens of a batch, padding included.
        **options: of `generate()`, such as `num_beams=4`.

    Raises:
        UserError: if the tokenizer cannot write a form of a term, or the engine cannot decode.
    """
    reader = translator.reader
    all_terms = [term for of_source in terms for term in of_source]
    check_terms(all_terms, translator.tokenizer, translator.model.generation_config)
    prepared = reader.prepare_all([RawText(source) for source in sources], direction, TooLong.CUT)
    texts = []
    for text, of_source in zip(prepared, terms, strict=True):
        # A text without options is one sentence. The model does not read one without letters.
        [sentence] = text.sentences
        needed = tuple(of_source) if sentence.token_ids else ()
        texts.append(replace(text, sentences=[replace(sentence, terms=needed)]))
    sentences = [text.sentences[0] for text in texts]
    warn_of_cut([number for number, sentence in enumerate(sentences, 1) if sentence.is_cut], reader.limit)

    batches = batch_by_tokens([len(sentence.token_ids) for sentence in sentences], max_tokens_per_batch)
    ranked = translator.decode(sentences, batches, **options)
    return [translator.join(text, [of_text]).text for text, of_text in zip(texts, ranked, strict=True)]
