"""Compare two ways to search for terms: banks, as the package has them, and one beam that all terms share.

    python -m benchmarks.term_beams --model checkpoints/tatoeba-en-de-transformer --test all.en all.de \
        --terms all.jsonl --output_file beams.json

Dynamic beam allocation (DBA, Post and Vilar 2018) has one beam. Each step gives its places in turn to hypotheses with
all tokens of the terms, with one token less, and so on. So a sentence with many terms has no more hypotheses than one
without. Both searches write the same sentences, those whose translations lack a term, with the same decoder.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import torch
from sacrebleu.metrics import CHRF
from transformers import (
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    SuppressTokensLogitsProcessor,
)

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import encode_lines, source_limit
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.decoding import engine_of
from hf_capsule_mt.decoding.engine import Engine
from hf_capsule_mt.decoding.search.constraints import Constraints
from hf_capsule_mt.decoding.search.search import Settings
from hf_capsule_mt.decoding.search.term_automaton import Forms, State, TermAutomaton, WordBoundaries
from hf_capsule_mt.decoding.search.term_banks import Candidate, SentenceBanks, TermBanks
from hf_capsule_mt.environment import environment
from hf_capsule_mt.evaluation.term_scores import has_copies, measure_terms, read_terms
from hf_capsule_mt.files import write_json
from hf_capsule_mt.loading import load_tokenizer
from hf_capsule_mt.translation.generation.decoder import Decoder
from hf_capsule_mt.translation.generation.token_rows import pad_rows
from hf_capsule_mt.translation.terms.forcing import token_spellings, word_boundaries
from hf_capsule_mt.translation.terms.glossary import Term, copies, placed_forms

TOKENS_PER_BATCH = 4096
SENTENCES_PER_BATCH = 32
TokenForms = Sequence[Forms]
"""The forms of each term of a sentence, as token ids."""


class SharedBeam(SentenceBanks):
    """One beam of `width` hypotheses, whose places are shared by the number of tokens of terms that are written."""

    closes = True
    """Whether a hypothesis is closed that wants to end without all terms."""

    @property
    def num_proposals(self) -> int:
        """How many of the best continuations of all hypotheses are looked at."""
        return 2 * self.width

    def closed_rows(self, scores: Sequence[float], end_probabilities: Sequence[float]) -> set[int]:
        """Return the rows that have no continuation."""
        return super().closed_rows(scores, end_probabilities) if self.closes else set()

    def fill(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Choose the next hypotheses from candidates, best first: in turn the best of each bank, the fullest first."""
        banks: dict[int, list[Candidate]] = {}
        for candidate in candidates:
            banks.setdefault(self.num_tokens(candidate.state), []).append(candidate)
        fullest_first = [banks[number] for number in sorted(banks, reverse=True)]
        chosen: list[Candidate] = []
        for turn in zip_longest(*fullest_first):
            chosen += [candidate for candidate in turn if candidate is not None]
        return chosen[: self.width]

    def num_tokens(self, state: State) -> int:
        """Return how many tokens of terms a hypothesis has. A whole term counts as its first form."""
        written = len(state.walk)
        for term, forms in enumerate(self.automaton.terms):
            if state.placed >> term & 1:
                written += len(forms[0])
        return written


class PublishedBeam(SharedBeam):
    """The same as it was published: a hypothesis without all terms may not end, and goes on."""

    closes = False


@dataclass(frozen=True)
class SharedBeams(TermBanks):
    """The terms of a batch, with one beam for each sentence."""

    kind: type[SharedBeam] = SharedBeam

    def settings(self, settings: Settings) -> Settings:
        """Return the settings of a search with one beam."""
        return replace(settings, num_beams=self.width, num_return_sequences=1)

    def of_sentences(self, rows: int) -> list[SentenceBanks]:
        """Return the beam of each sentence."""
        return [self.kind(automaton, rows, self.width) for automaton in self.automata]


@dataclass(frozen=True)
class WayToSearch:
    """A search for terms, and how its translation is chosen.

    Args:
        name: what the record calls it.
        width: hypotheses of a bank, or of the beam.
        beam: how the places of one beam are shared. None: there are banks.
        avoids_copies: whether the translation with fewest copies is taken, and not the best one.
    """

    name: str
    width: int
    beam: type[SharedBeam] | None = None
    avoids_copies: bool = True

    def banks(self, terms: Sequence[TokenForms], boundaries: WordBoundaries) -> TermBanks:
        """Return the hypotheses for the terms of each sentence."""
        if self.beam is None:
            return TermBanks.of(terms, self.width, boundaries)
        return SharedBeams([TermAutomaton(of_sentence, boundaries) for of_sentence in terms], self.width, self.beam)


WAYS = (
    WayToSearch("banks of 2", 2),
    WayToSearch("banks of 3", 3),
    WayToSearch("banks of 4", 4),
    *(WayToSearch(f"DBA, {width} beams", width, SharedBeam) for width in (4, 6, 8, 12)),
    *(WayToSearch(f"published DBA, {width} beams", width, PublishedBeam, avoids_copies=False) for width in (4, 8, 12)),
)


@dataclass(frozen=True)
class Sentence:
    """A sentence whose translation lacks a term."""

    source: list[int]
    """Its token ids."""
    terms: list[Term]
    token_forms: TokenForms
    translation: str
    """Without terms."""
    reference: str


@torch.no_grad()
def main() -> None:
    """Write the sentences that lack a term in every way, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="checkpoint")
    parser.add_argument("--test", type=Path, nargs=2, required=True, help="sources and references")
    parser.add_argument("--terms", type=Path, required=True, help="what benchmarks/terms.py mine has written")
    parser.add_argument("--one_in", type=int, default=1, help="take every nth sentence (default: %(default)s)")
    parser.add_argument("--output_file", type=Path, required=True)
    args = parser.parse_args()
    model = AutoModelForSeq2SeqLM.from_pretrained(args.model, dtype=torch.float32).eval()
    tokenizer = load_tokenizer(args.model)
    sources, references = map(read_lines, args.test)
    terms = read_terms(args.terms, sources)["proper"]
    sentences = lacking_sentences(model, tokenizer, sources, references, terms)[:: args.one_in]
    record = {"sentences": len(sentences), "ways": {}, "environment": environment("cpu")}
    before = [sentence.translation for sentence in sentences]
    record["ways"]["no terms"] = measure(sentences, before)
    for way in WAYS:
        texts, seconds = search(model, tokenizer, sentences, way)
        record["ways"][way.name] = {**measure(sentences, texts), "seconds": round(seconds, 2)}
        print(way.name, json.dumps(record["ways"][way.name]), flush=True)
    write_json(args.output_file, record)


def lacking_sentences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    references: Sequence[str],
    terms: Sequence[list[Term]],
) -> list[Sentence]:
    """Return the sentences whose translations by beam search lack a term, those with few terms first.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        sources: the texts.
        references: their translations.
        terms: of every source.
    """
    encoded = encode_lines(tokenizer, sources, source_limit(model.config, tokenizer))
    batches = batch_by_tokens([len(ids) for ids in encoded], TOKENS_PER_BATCH)
    translations: dict[int, str] = {}
    decoder = Decoder(model, tokenizer)
    for batch in batches:
        decoded = decoder.decode([encoded[index] for index in batch])
        texts = tokenizer.batch_decode([ranked[0].token_ids for ranked in decoded], skip_special_tokens=True)
        translations.update(zip(batch, texts, strict=True))
    lacking = []
    for row, of_line in enumerate(terms):
        if None in placed_forms(translations[row], of_line):
            token_forms = [forms_in_tokens(tokenizer, term) for term in of_line]
            lacking.append(Sentence(encoded[row], of_line, token_forms, translations[row], references[row]))
    return sorted(lacking, key=lambda sentence: (len(sentence.terms), len(sentence.source)))


def forms_in_tokens(tokenizer: PreTrainedTokenizerBase, term: Term) -> Forms:
    """Return all spellings of the forms of a term."""
    spellings = []
    for form in term.entry.targets:
        spellings += token_spellings(tokenizer, form)
    return list(dict.fromkeys(spellings))


def search(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sentence], way: WayToSearch
) -> tuple[list[str], float]:
    """Translate sentences with their terms. Return the texts, and seconds of processor time.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        sentences: those with the same number of terms stand together.
        way: how to search.
    """
    engine = engine_of(model)
    boundaries = word_boundaries(tokenizer, engine.vocabulary.size)
    texts = []
    before = time.process_time()
    for batch in batches_of(sentences):
        banks = way.banks([sentence.token_forms for sentence in batch], boundaries)
        input_ids, mask = pad_rows([sentence.source for sentence in batch], model.config.pad_token_id, model.device)
        # As `translate` has it.
        limits = [2 * len(sentence.source) + 20 for sentence in batch]
        settings = settings_of_search(model, engine, max(limits))
        encoded = engine.encode(input_ids, mask.long())
        translations = engine.translate(encoded, mask, settings, limits, banks)
        for sentence, translation in zip(batch, translations, strict=True):
            alternatives = tokenizer.batch_decode(translation.sequences, skip_special_tokens=True)
            texts.append(best_of(alternatives, sentence) if way.avoids_copies else alternatives[0])
    return texts, time.process_time() - before


def batches_of(sentences: Sequence[Sentence]) -> list[list[Sentence]]:
    """Return batches of sentences with the same number of terms."""
    batches: list[list[Sentence]] = []
    for sentence in sentences:
        is_full = not batches or len(batches[-1]) == SENTENCES_PER_BATCH
        if is_full or len(batches[-1][0].terms) != len(sentence.terms):
            batches.append([])
        batches[-1].append(sentence)
    return batches


def settings_of_search(model: PreTrainedModel, engine: Engine, limit: int) -> Settings:
    """Return the settings of beam search for so many new tokens."""
    config = model.generation_config
    never_padding = SuppressTokensLogitsProcessor([config.pad_token_id])
    return Settings(
        constraints=Constraints([never_padding], engine.vocabulary.size, engine.vocabulary.device),
        start=config.decoder_start_token_id,
        eos=torch.tensor([config.eos_token_id]),
        pad=config.pad_token_id,
        max_length=limit + 1,
    )


def best_of(texts: Sequence[str], sentence: Sentence) -> str:
    """Return the text that lacks fewest terms, and of those the first with fewest copies."""

    def faults(text: str) -> tuple[int, int]:
        return placed_forms(text, sentence.terms).count(None), sum(copies(text, sentence.terms))

    return min(texts, key=faults)


def measure(sentences: Sequence[Sentence], texts: Sequence[str]) -> dict[str, float]:
    """Return success, chrF, the share of sentences with copies, and the length next to no terms."""
    terms = [sentence.terms for sentence in sentences]
    references = [sentence.reference for sentence in sentences]
    with_copies = sum(map(has_copies, texts, terms))
    characters = sum(map(len, texts))
    characters_before = sum(len(sentence.translation) for sentence in sentences)
    return {
        "success": measure_terms(texts, terms).success,
        "chrf": round(CHRF().corpus_score(texts, [references]).score, 2),
        "copies": with_copies / len(sentences),
        "length": round(characters / characters_before, 3),
    }


if __name__ == "__main__":
    main()
