"""Measure how often the attention of models links words as eflomal does, before and after `alignment_heads`.

    python -m benchmarks.tags.alignments --models transformer=checkpoints/tatoeba-en-de-transformer \
        --choose tatoeba/en-de/val.en.gz tatoeba/en-de/val.de.gz \
        --test tatoeba/en-de/test.en.gz tatoeba/en-de/test.de.gz \
        --alignment_data tatoeba/en-de/train.en.gz tatoeba/en-de/train.de.gz

Heads are chosen on one text, without eflomal. On the other text each model is made to write the references, and its
links are compared with those of eflomal, which learns from the training data too. Agreement is F1 over links. It needs
the extra `align`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.evaluation.alignment import align_words
from hf_capsule_mt.evaluation.head_choice import LinkedSentence, link_sentences, rate_heads
from hf_capsule_mt.loading import load_tokenizer
from hf_capsule_mt.translation.text.words import word_spans
from hf_capsule_mt.translation.text_translator import TextTranslator


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, metavar="ROW=FOLDER", help="checkpoints by their row")
    for name, words in (("choose", "text to choose heads on"), ("test", "text to measure on")):
        parser.add_argument(f"--{name}", type=Path, nargs=2, required=True, metavar=("SOURCE", "TARGET"), help=words)
    parser.add_argument("--alignment_data", type=Path, nargs=2, required=True, help="text that eflomal learns from")
    parser.add_argument("--sentences", type=int, default=500, help="of both texts (default: %(default)s)")
    parser.add_argument("--training_sentences", type=int, default=50_000, help="of eflomal (default: %(default)s)")
    args = parser.parse_args()
    print("| model | chosen | default F1 | chosen F1 | best F1 | best |")
    print("| --- | --- | ---: | ---: | ---: | --- |")
    for named in args.models:
        row, _, folder = named.partition("=")
        measure(row, folder, args)


def measure(row: str, folder: str, args: argparse.Namespace) -> None:
    """Print the row of a model."""
    translator = TextTranslator(AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), load_tokenizer(folder))
    [chosen, *_] = rate_heads(translator, *(read_lines(file)[: args.sentences] for file in args.choose))
    sentences = list(link_sentences(translator, *(read_lines(file)[: args.sentences] for file in args.test)))
    gold = eflomal_links(sentences, args)
    agreement = {candidate: f1(sentences, gold, candidate) for candidate in sentences[0].links}
    best = max(agreement, key=agreement.__getitem__)
    default = next(iter(sentences[0].links))
    values = [f"{agreement[candidate]:.1%}" for candidate in (default, (chosen.name, chosen.heads), best)]
    print(f"| {row} | {chosen.name} | {' | '.join(values)} | {best[0]} |", flush=True)


def eflomal_links(sentences: Sequence[LinkedSentence], args: argparse.Namespace) -> list[set[tuple[int, int]]]:
    """Return the links of each sentence by eflomal, in the direction in which a target word has one source word."""
    more = []
    for file in args.alignment_data:
        lines = read_lines(file)[: args.training_sentences]
        more.append([[line[slice(*span)] for span in word_spans(line)] for line in lines])
    [alignments] = align_words(
        [sentence.source for sentence in sentences],
        [[sentence.target for sentence in sentences]],
        more_sources=more[0],
        more_targets=more[1],
    )
    return [set(alignment.links) for alignment in alignments]


def f1(
    sentences: Sequence[LinkedSentence], gold: Sequence[set[tuple[int, int]]], candidate: tuple[str, tuple]
) -> float:
    """Return the F1 of the links of a candidate."""
    common = 0
    linked = 0
    expected = 0
    for sentence, links in zip(sentences, gold, strict=True):
        links_of_model = set()
        for target_word, source_word in enumerate(sentence.links[candidate]):
            if source_word is not None:
                links_of_model.add((source_word, target_word))
        common += len(links_of_model & links)
        linked += len(links_of_model)
        expected += len(links)
    return 2 * common / max(linked + expected, 1)


if __name__ == "__main__":
    main()
