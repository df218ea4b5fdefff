"""Measure a glossary that is obeyed: mine terms from parallel text, and translate with and without them.

    python -m benchmarks.terms.quality mine --train train.en.gz train.de.gz --test test.en.gz test.de.gz \
        --output_file terms.jsonl
    python -m benchmarks.terms.quality run --model checkpoints/tatoeba-en-de-transformer --test test.en.gz test.de.gz \
        --terms terms.jsonl --output_file record.json

`mine` needs no aligner and no random numbers. A word of a test source gets a term if a word of the reference goes with
it in the training pairs (Dice). Nouns of the reference are *proper* terms, other words are *random* ones.
"""

import argparse
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import regex
import torch
from sacrebleu.metrics import CHRF
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerBase

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import encode_lines, source_limit
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.environment import environment
from hf_capsule_mt.evaluation.term_scores import has_copies, measure_terms, read_terms
from hf_capsule_mt.files import replaced_file, write_json
from hf_capsule_mt.loading import load_tokenizer
from hf_capsule_mt.translation.generation.decoder import Decoded, Decoder
from hf_capsule_mt.translation.terms.forcing import PlacedTerm, TermWriter, word_boundaries
from hf_capsule_mt.translation.terms.glossary import Term
from hf_capsule_mt.translation.text.segments import Segment
from hf_capsule_mt.translation.translation import Sentence

WORD = regex.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
FEWEST_SENTENCES = 5
MOST_SENTENCES = 2000
MOST_SENTENCES_OF_TARGET = 4000
FEWEST_PAIRS = 3
LEAST_DICE = 0.08
BEST_TARGETS = 12
SHORTEST_NOUN = 4
SHORTEST_BEGINNING = 4
LONGEST_ENDING = 3
LEFT_OUT = {"tom", "mary"}
"""They stand in a tenth of Tatoeba's sentences, and have no translation."""
TOKENS_PER_BATCH = 4096
Pair = tuple[str, str]
"""A source and its target, sentences or words."""
Terms = dict[str, dict[str, list[str]]]
"""The forms of the terms of a sentence, by kind and source word."""


def main() -> None:
    """Mine terms, or measure a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    mining = commands.add_parser("mine", help="find terms for the sentences of a test set")
    mining.add_argument("--train", type=Path, nargs=2, required=True, help="parallel text to learn from (.gz)")
    mining.set_defaults(command=mine)
    running = commands.add_parser("run", help="translate a test set with and without its terms")
    running.add_argument("--model", required=True, help="checkpoint")
    running.add_argument("--terms", type=Path, required=True, help="what mine has written")
    running.add_argument("--num_beams", type=int, default=4, help="default: %(default)s")
    running.add_argument("--modes", nargs="+", choices=("proper", "random"), help="kinds of terms (default: both)")
    running.set_defaults(command=run)
    for command in (mining, running):
        command.add_argument("--test", type=Path, nargs=2, required=True, help="sources and references (.gz)")
        command.add_argument("--output_file", type=Path, required=True)
    args = parser.parse_args()
    args.command(args)


def mine(args: argparse.Namespace) -> None:
    """Write the terms of every test sentence, and print how many there are."""
    training = zip(*map(read_lines, args.train), strict=True)
    dictionary = Dictionary(training)
    counts: Counter[str] = Counter()
    lines = []
    for source, reference in zip(*map(read_lines, args.test), strict=True):
        terms = dictionary.terms(source, reference)
        for kind, of_kind in terms.items():
            counts[f"{kind} terms"] += len(of_kind)
            counts[f"sentences with {kind} terms"] += bool(of_kind)
        lines.append(json.dumps(terms, ensure_ascii=False) + "\n")
    with replaced_file(args.output_file) as file:
        file.write("".join(lines).encode())
    print(json.dumps(counts))


class Dictionary:
    """Words of two languages that stand in the same sentence pairs.

    Args:
        pairs: sources and targets.
    """

    def __init__(self, pairs: Iterable[Pair]) -> None:
        sentences_of_source: Counter[str] = Counter()
        sentences_of_target: Counter[str] = Counter()
        sentences_of_pair: Counter[Pair] = Counter()
        for source, target in pairs:
            source_words = source_words_of(source)
            target_words = set(WORD.findall(target))
            sentences_of_source.update(source_words)
            sentences_of_target.update(target_words)
            sentences_of_pair.update(product(source_words, target_words))
        dice_of_pairs: dict[Pair, float] = {}
        for (source, target), both in sentences_of_pair.items():
            of_source = sentences_of_source[source]
            of_target = sentences_of_target[target]
            is_seldom = both < FEWEST_PAIRS or of_source < FEWEST_SENTENCES
            is_frequent = of_source > MOST_SENTENCES or of_target > MOST_SENTENCES_OF_TARGET
            if not is_seldom and not is_frequent:
                dice_of_pairs[source, target] = 2 * both / (of_source + of_target)
        self._best_source = _best_sources(dice_of_pairs)
        self._best_targets = _best_targets(dice_of_pairs)
        self._forms: dict[str, list[str]] = defaultdict(list)
        """Target words by their best source."""
        for target, source in self._best_source.items():
            self._forms[source].append(target)

    def terms(self, source: str, reference: str) -> Terms:
        """Return the proper and the random terms of a sentence, with their forms."""
        words = WORD.findall(reference)
        terms: Terms = {"proper": {}, "random": {}}
        for source_word in sorted(source_words_of(source) - LEFT_OUT):
            target = self._target(source_word, words)
            if target is None:
                continue
            kind = "proper" if is_noun(target) and target in words[1:] else "random"
            terms[kind][source_word] = [target, *self._other_forms(source_word, target)]
        return terms

    def _target(self, source_word: str, words: Sequence[str]) -> str | None:
        """Return the best of some words as a translation of a source word, if this is also its best source."""
        for target in self._best_targets.get(source_word, ()):
            if target in words and self._best_source[target] == source_word:
                return target
        return None

    def _other_forms(self, source_word: str, target: str) -> list[str]:
        beginning = target[: max(SHORTEST_BEGINNING, len(target) - 2)]
        longest = len(beginning) + LONGEST_ENDING
        forms = []
        for word in sorted(self._forms[source_word]):
            if word != target and word.startswith(beginning) and len(word) <= longest:
                forms.append(word)
        return forms


def _best_sources(dice_of_pairs: Mapping[Pair, float]) -> dict[str, str]:
    """Return the source word with the highest Dice for every target word. Of equal ones it is the first by name."""
    best: dict[str, tuple[float, str]] = {}
    for (source, target), dice in dice_of_pairs.items():
        known = best.get(target, (0.0, ""))
        best[target] = min(known, (-dice, source))
    return {target: source for target, (_, source) in best.items()}


def _best_targets(dice_of_pairs: Mapping[Pair, float]) -> dict[str, list[str]]:
    """Return the target words with the highest Dice for every source word, best first."""
    targets_of: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for (source, target), dice in dice_of_pairs.items():
        targets_of[source].append((-dice, target))
    best_targets = {}
    for source, targets in targets_of.items():
        best = sorted(targets)[:BEST_TARGETS]
        best_targets[source] = [target for negative_dice, target in best if -negative_dice >= LEAST_DICE]
    return best_targets


def source_words_of(source: str) -> set[str]:
    """Return the words of a source in lower case."""
    return {word.lower() for word in WORD.findall(source)}


def is_noun(word: str) -> bool:
    """Whether a German word looks like a noun, if it does not begin a sentence."""
    return word[0].isupper() and len(word) >= SHORTEST_NOUN


@dataclass(frozen=True)
class Result:
    """Translations of a test set, and what they cost."""

    texts: list[str]
    placed: list[tuple[PlacedTerm, ...]]
    """What became of the terms of each sentence."""
    lengths: list[int]
    """Tokens of each translation."""
    seconds: float
    """Processor time of the first search."""
    seconds_of_terms: float = 0.0
    """Processor time of the second search, and of looking for terms."""


@torch.no_grad()
def run(args: argparse.Namespace) -> None:
    """Translate without terms, with the proper and with the random ones. Write and print what was measured."""
    sources, references = map(read_lines, args.test)
    terms = read_terms(args.terms, sources)
    model = AutoModelForSeq2SeqLM.from_pretrained(args.model, dtype=torch.float32).eval()
    tokenizer = load_tokenizer(args.model)
    encoded = encode_lines(tokenizer, sources, source_limit(model.config, tokenizer))
    decoder = Decoder(model, tokenizer, num_beams=args.num_beams)
    plain = translate(decoder, tokenizer, encoded, None)
    record = {"test": str(args.test[0]), "num_beams": args.num_beams, "modes": {}, "environment": environment("cpu")}
    if args.modes is not None:
        terms = {mode: terms[mode] for mode in args.modes}
    for mode, of_mode in terms.items():
        result = translate(decoder, tokenizer, encoded, of_mode)
        record["modes"][mode] = measure(plain, result, references, of_mode)
        print(mode, json.dumps(record["modes"][mode]), flush=True)
    record["oracle"] = {mode: asdict(measure_terms(references, of_mode)) for mode, of_mode in terms.items()}
    write_json(args.output_file, record)


def translate(
    decoder: Decoder,
    tokenizer: PreTrainedTokenizerBase,
    encoded: Sequence[Sequence[int]],
    terms: Sequence[Sequence[Term]] | None,
) -> Result:
    """Translate sentences as `translate --glossary` does, and measure both searches.

    Args:
        decoder: the model, and how it decodes.
        tokenizer: its tokenizer.
        encoded: token ids of the sources.
        terms: of every source. None: without a glossary.
    """
    writer = TermWriter(tokenizer)
    decoded_of: list[Decoded] = [Decoded([])] * len(encoded)
    batches = batch_by_tokens([len(ids) for ids in encoded], TOKENS_PER_BATCH)
    seconds = 0.0
    seconds_of_terms = 0.0
    # The engine, and the tables of a tokenizer, are made once.
    decoder.decode([encoded[batches[0][0]]])
    word_boundaries(tokenizer, decoder.model.config.vocab_size)
    for batch in batches:
        before = time.process_time()
        completed = [ranked[0] for ranked in decoder.decode([encoded[index] for index in batch])]
        seconds += time.process_time() - before
        before = time.process_time()
        if terms is not None:
            sentences = []
            for index in batch:
                sentences.append(Sentence(Segment("", "", ""), encoded[index], terms=tuple(terms[index])))
            completed = writer.complete(decoder, sentences, completed)
        for index, decoded in zip(batch, completed, strict=True):
            decoded_of[index] = decoded
        seconds_of_terms += time.process_time() - before
    texts = tokenizer.batch_decode([decoded.token_ids for decoded in decoded_of], skip_special_tokens=True)
    placed = [decoded.terms for decoded in decoded_of]
    return Result(texts, placed, [len(decoded.token_ids) for decoded in decoded_of], seconds, seconds_of_terms)


def measure(plain: Result, result: Result, references: Sequence[str], terms: Sequence[Sequence[Term]]) -> dict:
    """Measure translations with terms next to those without.

    Args:
        plain: without terms.
        result: with terms.
        references: one for each sentence.
        terms: of each sentence.
    """
    has_all = []
    missed = []
    for row, (text, of_line) in enumerate(zip(plain.texts, terms, strict=True)):
        scores = measure_terms([text], [of_line])
        if scores.terms and scores.success == 1:
            has_all.append(row)
        elif scores.terms:
            missed.append(row)
    with_terms = sorted(has_all + missed)
    copies = {row for row in with_terms if has_copies(result.texts[row], terms[row])}
    copies_before = {row for row in with_terms if has_copies(plain.texts[row], terms[row])}
    tokens = sum(result.lengths[row] for row in missed)
    tokens_before = sum(plain.lengths[row] for row in missed)
    all_seconds = result.seconds + result.seconds_of_terms
    # Marks make the first search longer, so it is compared with one without them.
    first_seconds = result.seconds if any(result.placed) else plain.seconds
    return {
        "before": asdict(measure_terms(plain.texts, terms)),
        "after": asdict(measure_terms(result.texts, terms)),
        "states": Counter(placed.state for of_line in result.placed for placed in of_line),
        "sentences searched again": len(missed),
        "copies": {
            "searched again": len(copies.intersection(missed)),
            "searched again, without terms": len(copies_before.intersection(missed)),
            "file": len(copies),
            "file, without terms": len(copies_before),
        },
        "length of pass 2": round(tokens / tokens_before, 4) if missed else math.nan,
        "chrf": {
            "missed": _chrf_pair(plain, result, references, missed),
            "already right": _chrf_pair(plain, result, references, has_all),
            "file": _chrf_pair(plain, result, references, range(len(references))),
        },
        "changed although already right": sum(plain.texts[row] != result.texts[row] for row in has_all),
        "time": round(all_seconds / first_seconds, 4),
        "seconds": [round(result.seconds, 2), round(result.seconds_of_terms, 2)],
    }


def _chrf_pair(plain: Result, result: Result, references: Sequence[str], rows: Iterable[int]) -> list[float]:
    """Return chrF without and with terms of some sentences."""
    rows = list(rows)
    if not rows:
        return []
    chosen_references = [references[row] for row in rows]
    scores = []
    for texts in (plain.texts, result.texts):
        chosen = [texts[row] for row in rows]
        chrf = CHRF().corpus_score(chosen, [chosen_references])
        scores.append(round(chrf.score, 2))
    return scores


if __name__ == "__main__":
    main()
