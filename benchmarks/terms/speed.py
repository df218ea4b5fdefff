"""Measure what a glossary costs at different sizes, with random weights.

    python -m benchmarks.terms.speed --test test.en.gz --terms terms.jsonl --sizes tiny base --output_file speed.json

A share of the sentences has terms, and a random model writes none of them. So just these sentences are searched again.
Every translation has the same length, because a random model never ends one.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerBase

from benchmarks.terms.quality import translate
from hf_capsule_mt import preset_config
from hf_capsule_mt.data.encoding import encode_lines, source_limit
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.environment import environment
from hf_capsule_mt.evaluation.term_scores import read_terms
from hf_capsule_mt.files import write_json
from hf_capsule_mt.loading import load_tokenizer
from hf_capsule_mt.translation.generation.decoder import Decoder
from hf_capsule_mt.translation.terms.glossary import Term

SEED = 1


@torch.no_grad()
def main() -> None:
    """Translate the same sentences at every size. Write and print what the second search costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", default="checkpoints/tatoeba-en-de-transformer", help="default: %(default)s")
    parser.add_argument("--test", type=Path, required=True, help="sources (.gz)")
    parser.add_argument("--terms", type=Path, required=True, help="what benchmarks/terms/quality.py mine has written")
    parser.add_argument("--sizes", nargs="+", default=["tiny", "base"], help="default: %(default)s")
    parser.add_argument("--sentences", type=int, default=300, help="default: %(default)s")
    parser.add_argument("--share", type=float, default=0.15, help="sentences that have terms (default: %(default)s)")
    parser.add_argument("--num_beams", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--max_new_tokens", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--output_file", type=Path, required=True)
    args = parser.parse_args()
    sources = read_lines(args.test)
    terms = with_share(read_terms(args.terms, sources)["proper"], args.sentences, args.share)
    options = {"num_beams": args.num_beams, "max_new_tokens": args.max_new_tokens}
    tokenizer = load_tokenizer(args.tokenizer)
    record = {"sentences": args.sentences, "searched again": sum(map(bool, terms)), **options, "sizes": {}}
    for size in args.sizes:
        record["sizes"][size] = time_of_size(size, tokenizer, sources[: args.sentences], terms, options)
        print(size, json.dumps(record["sizes"][size]), flush=True)
    write_json(args.output_file, {**record, "environment": environment("cpu")})


def with_share(terms: Sequence[list[Term]], sentences: int, share: float) -> list[list[Term]]:
    """Return the terms of the first sentences, but only for the first of them that make up a share."""
    left = round(sentences * share)
    chosen: list[list[Term]] = []
    for of_line in terms[:sentences]:
        if of_line and left > 0:
            chosen.append(of_line)
            left -= 1
        else:
            chosen.append([])
    return chosen


def time_of_size(
    size: str,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    terms: Sequence[Sequence[Term]],
    options: dict[str, int],
) -> dict:
    """Return the processor time of both searches of a random model, and of a file next to no glossary.

    Args:
        size: one of the package's sizes.
        tokenizer: has the vocabulary of the model.
        sources: the texts.
        terms: of every source.
        options: of the search.
    """
    torch.manual_seed(SEED)
    model = AutoModelForSeq2SeqLM.from_config(preset_config("transformer", size, vocab_size=len(tokenizer))).eval()
    encoded = encode_lines(tokenizer, sources, source_limit(model.config, tokenizer))
    result = translate(Decoder(model, tokenizer, **options), tokenizer, encoded, terms)
    return {
        "states": Counter(placed.state for of_line in result.placed for placed in of_line),
        "seconds": [round(result.seconds, 2), round(result.seconds_of_terms, 2)],
        "time": round((result.seconds + result.seconds_of_terms) / result.seconds, 4),
    }


if __name__ == "__main__":
    main()
