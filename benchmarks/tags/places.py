"""Measure where tags come back: the share that stand around the word that translates theirs.

    python -m benchmarks.tags.places --models transformer=runs/transformer/average rnmt=runs/rnmt/average \
        --alignment_data multi30k/train.lc.norm.tok.en.gz multi30k/train.lc.norm.tok.de.gz \
        --input_file multi30k/test_2016_flickr.lc.norm.tok.en.gz --output_file tags.json

Each model translates the test. eflomal aligns the sources with its translations, and learns from the training data
beside them. One word a sentence, drawn among those of letters that one word alone translates and that translates one
word alone, gets a tag. It is right if the tag comes back around that word and no other.

With `--layers` the attention of every layer is tried, of the step that writes a word and of that which reads it: choose
on other data than is reported. It needs the extra `align`.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import encode_lines, source_limit
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.environment import environment
from hf_capsule_mt.evaluation.alignment import align_words
from hf_capsule_mt.files import write_json
from hf_capsule_mt.loading import load_tokenizer
from hf_capsule_mt.translation.alignment.forced import attending, cross_attentions_of, start_token
from hf_capsule_mt.translation.alignment.words import aligner
from hf_capsule_mt.translation.generation.decoder import Decoder, evaluating, pad_rows
from hf_capsule_mt.translation.tags.markup import read_markup
from hf_capsule_mt.translation.tags.segments import marked_segments

OPENING = "<b>"
CLOSING = "</b>"
TOKENS_PER_BATCH = 4096


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, metavar="ROW=FOLDER", help="checkpoints by their row")
    parser.add_argument(
        "--alignment_data", type=Path, nargs=2, required=True, help="sources and targets eflomal learns from"
    )
    parser.add_argument("--input_file", type=Path, required=True, help="sources that get tags (.gz)")
    parser.add_argument("--num_beams", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the words that get tags (default: %(default)s)")
    parser.add_argument("--layers", action="store_true", help="try the attention of every layer")
    parser.add_argument("--output_file", type=Path, required=True)
    args = parser.parse_args()
    # What is written as a reference to a character would be read as the character.
    sources = [line for line in read_lines(args.input_file) if "&" not in line]
    models = {}
    for named in args.models:
        row, _, folder = named.partition("=")
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        models[row] = measure(model, load_tokenizer(folder), sources, args)
        print(row, json.dumps(models[row]), flush=True)
    record = {
        "test": str(args.input_file),
        "num_beams": args.num_beams,
        "seed": args.seed,
        "models": models,
        "environment": environment("cpu"),
    }
    write_json(args.output_file, record)


def measure(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sources: list[str], args: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Measure where the tags of a model come back.

    Args:
        model: translates.
        tokenizer: the model's.
        sources: each gets a tag, if it has a word for it.
        args: of the command.

    Returns:
        By attention, the number of tags, and the shares that are right, hold the word among others, or stand
        elsewhere.
    """
    translated = translations(model, tokenizer, sources, args.num_beams)
    training_sources, training_targets = ([line.split() for line in read_lines(file)] for file in args.alignment_data)
    [alignments] = align_words(
        [source.split() for source in sources],
        [[text.split() for _, text in translated]],
        more_sources=training_sources,
        more_targets=training_targets,
    )
    counts: dict[str, Counter] = {}
    for source, (ids, text), alignment in zip(sources, translated, alignments, strict=True):
        # A sentence has the same word whatever the other sentences are.
        drawn = draw(source.split(), alignment.links, random.Random(f"{args.seed} {source}"))
        if drawn is None:
            continue
        word, translated_word = drawn
        for name, attention in attentions(model, tokenizer, source, ids, args.layers):
            tagged = put_back(tokenizer, source, word, ids, text, attention)
            counts.setdefault(name, Counter())[judge(tagged, text, translated_word)] += 1
    return {name: shares(count) for name, count in counts.items()}


def translations(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sources: list[str], num_beams: int
) -> list[tuple[list[int], str]]:
    """Translate sentences.

    Args:
        model: translates.
        tokenizer: the model's.
        sources: sentences.
        num_beams: 1 is greedy search.

    Returns:
        Token ids, from the start token to the end, and text of each translation.
    """
    encoded = encode_lines(tokenizer, sources, source_limit(model.config, tokenizer))
    batches = batch_by_tokens([len(ids) for ids in encoded], TOKENS_PER_BATCH)
    token_ids: list[list[int]] = [[] for _ in sources]
    decoder = Decoder(model, tokenizer, num_beams=num_beams)
    for batch in batches:
        decoded = decoder.decode([encoded[index] for index in batch])
        for index, [translation] in zip(batch, decoded, strict=True):
            token_ids[index] = [start_token(model), *translation.ids]
    return [(ids, tokenizer.decode(ids, skip_special_tokens=True)) for ids in token_ids]


def draw(words: Sequence[str], links: Sequence[tuple[int, int]], generator: random.Random) -> tuple[int, int] | None:
    """Return a word and its translation, which have no other; None if there is none."""
    links_of_source = Counter(source for source, _ in links)
    links_of_target = Counter(target for _, target in links)
    candidates = []
    for source, target in links:
        if links_of_source[source] == links_of_target[target] == 1 and words[source].isalpha():
            candidates.append((source, target))
    if not candidates:
        return None
    return generator.choice(candidates)


def attentions(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str, ids: list[int], every: bool
) -> Iterator[tuple[str, Tensor]]:
    """Read the attention of a translation.

    Args:
        model: is made to write the translation.
        tokenizer: the model's.
        source: a sentence.
        ids: of its translation, from the start token to the end.
        every: whether that of every layer and every mean is read, or only the package's.

    Yields:
        A name and the attention `[target, source]` of the tokens after the first.
    """
    input_ids, mask = pad_rows([tokenizer(source)["input_ids"]], 0, model.device)
    with evaluating(model), torch.no_grad():
        output = attending(model).base_model(
            input_ids=input_ids,
            attention_mask=mask.long(),
            decoder_input_ids=torch.tensor([ids]),
            use_cache=False,
            output_attentions=True,
        )
    layers = [weights.float().mean(1) for weights in cross_attentions_of(model, output)]
    last_two = torch.stack(layers[-2:]).mean(0)
    if not every:
        yield "tags", last_two[0, :-1]
        return
    named = {f"layer {number}": layer for number, layer in enumerate(layers)}
    named["mean of all"] = torch.stack(layers).mean(0)
    named["mean of the last two"] = last_two
    for name, layer in named.items():
        yield f"{name}, writing", layer[0, :-1]
        yield f"{name}, reading", layer[0, 1:]


def put_back(
    tokenizer: PreTrainedTokenizerBase, source: str, word: int, ids: list[int], text: str, attention: Tensor
) -> str:
    """Put a tag back that a word of the source has.

    Args:
        tokenizer: the model's.
        source: a sentence.
        word: index of the word with the tag.
        ids: of the translation, from the start token to the end.
        text: the translation.
        attention: `[target, source]`.

    Returns:
        The translation with the tag.
    """
    words = source.split()
    words[word] = OPENING + words[word] + CLOSING
    marked = " ".join(words)
    [segment] = marked_segments(marked, read_markup(marked), None, None)
    read = tokenizer(source)["input_ids"]
    return segment.put_back(text, aligner(attention, tokenizer, source, read, ids[1:]))


def judge(tagged: str, text: str, word: int) -> str:
    """Return whether the tag stands around one word of a translation."""
    before, _, rest = tagged.partition(OPENING)
    inside = rest.partition(CLOSING)[0].split()
    first = len(before.split())
    begins_inside_a_word = bool(before) and not before[-1].isspace()
    if begins_inside_a_word and inside:
        first -= 1
    if inside == [text.split()[word]] and first == word:
        return "right"
    return "among others" if first <= word < first + len(inside) else "elsewhere"


def shares(count: Counter) -> dict[str, float]:
    """Return the number of tags, and the share of each judgement."""
    total = count.total()
    of_judgements = {name: round(count[name] / total, 4) for name in ("right", "among others", "elsewhere")}
    return {"tags": total, **of_judgements}


if __name__ == "__main__":
    main()
