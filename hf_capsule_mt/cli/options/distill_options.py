"""Translate a training corpus with a teacher, for a student to train on.

    accelerate launch -m hf_capsule_mt distill --model runs/transformer/average --num_beams 4 \\
        --train_file train.en train.de --output_file distilled.en distilled.de
    distilled.en, distilled.de: 29000 of 29000 sentences, 0 left out

    hf-capsule-mt distill --model Helsinki-NLP/opus-mt-en-de --train_file mono.en --output_file distilled.tsv.gz

This is sequence-level distillation. The corpus is what `train` reads, or one plain text file of sources. Its targets
are ignored. `train` can read the output. Sentences that the teacher could not translate are left out, and sentences
with a score below --min_score. OUTPUT.manifest.json lists them, with the teacher, its settings and hashes of the data.
Lines without letters are copied.

Finished translations are kept in the folder OUTPUT.distilling until all are done. The same command continues after an
interruption.
"""

import argparse

from hf_capsule_mt.cli.parser import (
    CommandParser,
    add_columns,
    add_decoding,
    add_model,
    add_vocabulary,
    at_least,
    finite,
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    files = parser.add_argument_group("input and output")
    corpus = files.add_mutually_exclusive_group(required=True)
    corpus.add_argument(
        "--train_file",
        nargs="+",
        default=[],
        help="The corpus: files as for hf-capsule-mt train, or one file of sources.",
    )
    corpus.add_argument("--dataset_name", help="Data set of the Hub, instead of files.")
    files.add_argument("--dataset_config_name", help="Configuration of the data set.")
    add_columns(files)

    files.add_argument(
        "--output_file",
        nargs="+",
        required=True,
        help="Two text files, or one .tsv or .jsonl file. All may be .gz or .zst.",
    )
    files.add_argument(
        "--min_score",
        type=finite,
        help="Leave out translations whose mean log-probability of a token is lower, such as -1.5 (default: keep all).",
    )

    model = parser.add_argument_group("model")
    add_model(model)
    model.add_argument(
        "--source_lang",
        help="Source language, as a .jsonl file or a data set names it, such as en, and as the teacher does: eng_Latn "
        "for NLLB.",
    )
    model.add_argument(
        "--target_lang",
        help="Target language, as a .jsonl file or a data set names it, such as de, and as the teacher does: deu_Latn "
        "for NLLB. Codes of multilingual OPUS-MT, such as >>de<<, may also be in the data.",
    )
    add_vocabulary(model)

    search = parser.add_argument_group("decoding")
    add_decoding(search)
    search.add_argument(
        "--chunk_size",
        type=at_least(1),
        default=2000,
        help="Number of sentences to translate and keep at a time (default: %(default)s).",
    )
    return parser
