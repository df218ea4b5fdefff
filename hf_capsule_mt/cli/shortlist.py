"""The command `shortlist`. Its options stand in options/shortlist_options.py."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data.languages import Direction, KnownLanguages
from hf_capsule_mt.data.lines import each_line
from hf_capsule_mt.data.shortlists import (
    Shortlist,
    always_needed,
    count_shortlist,
    shortlist_of_script,
    write_shortlist,
)
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.generation.model_options import DecodingOptions

from .common import check_distinct, check_output_file, check_text_file, import_code, report_user_errors
from .options.shortlist_options import build_parser

_GOAL = 0.9995
"""The share of held-out words that a shortlist should cover."""
_MOST_MISSING = 10
"""Missing words that are named."""


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Count the words of the text, and write those that are needed."""
    args = build_parser().parse_args(argv)
    import_code(args.imports)
    check_output_file(args.output_file)
    check_distinct([("--output_file", args.output_file)], [args.input_file])
    if args.input_file is not None:
        check_text_file("--input_file", args.input_file)

    options = DecodingOptions(args.model, args.revision).pinned()
    config = options.config()
    tokenizer = options.tokenizer()
    if getattr(tokenizer, "separate_vocabs", False):
        raise UserError("The tokenizer has a vocabulary for each side, so its words are of one language already.")
    direction = _direction(tokenizer, args.target_lang)

    always = always_needed(tokenizer)
    if direction.first_token is not None:
        always.append(direction.first_token)

    if args.script is not None:
        shortlist = shortlist_of_script(tokenizer, args.script, always)
    else:
        with direction.spoken_by(tokenizer):
            shortlist = count_shortlist(tokenizer, each_line(args.input_file), always, args.min_count)

    write_shortlist(args.output_file, tokenizer, shortlist.counts)
    num_words = len(shortlist.counts)
    print(f"{args.output_file}: {num_words:,} of {config.vocab_size:,} words.")
    if args.script is None:
        print(_coverage(shortlist, tokenizer))


def _direction(tokenizer: PreTrainedTokenizerBase, target: str | None) -> Direction:
    """Return the direction whose target language is counted. The source language does not matter."""
    known = KnownLanguages(tokenizer)
    return known.direction(target if known.are_arguments else None, target)


def _coverage(shortlist: Shortlist, tokenizer: PreTrainedTokenizerBase) -> str:
    """Return what is known of the held-out lines, as text."""
    coverage = shortlist.coverage
    if coverage is None:
        return "No line was held out. Give at least ten to measure the coverage."

    said = [f"They cover {coverage:.2%} of the words of {shortlist.lines:,} lines that were held out."]
    missing = shortlist.missing(_MOST_MISSING)
    if missing:
        words = tokenizer.convert_ids_to_tokens(missing)
        shown = [f"{word} {shortlist.held_out[token_id]}" for word, token_id in zip(words, missing, strict=True)]
        said.append(f"Missing most often: {', '.join(shown)}.")
    if coverage < _GOAL:
        said.append(f"Less than {_GOAL:.2%} are covered. Give more text.")
    return "\n".join(said)
