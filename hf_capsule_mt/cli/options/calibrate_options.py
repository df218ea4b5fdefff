"""Learn what the scores of a model's translations say about their quality.

    hf-capsule-mt calibrate --model run --input_file val.en --references val.de --output_file calibration.json
    hf-capsule-mt translate --model run --input_file test.en --output_file test.out.de \\
        --report_file test.report.jsonl --calibration calibration.json

The model translates the sources, and its translations are scored by the references. The calibration says which quality
a score stands for. With it the report of translate has the expected quality of each sentence, an interval, and the
probability that the translation is bad. serve --calibrations answers with the same.

Take 1,000 sentences or more of the kind that the model will translate. It must not have been trained on them.
"""

import argparse
from pathlib import Path

from hf_capsule_mt.cli.parser import (
    CommandParser,
    add_bad,
    add_decoding,
    add_languages,
    add_metric_models,
    add_model,
    add_vocabulary,
)
from hf_capsule_mt.evaluation.metric_models import SENTENCE_METRICS


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    files = parser.add_argument_group("input and output")
    files.add_argument("--input_file", type=Path, required=True, help="Sources, one sentence a line.")
    files.add_argument("--references", type=Path, required=True, metavar="FILE", help="Their translations by people.")
    files.add_argument("--output_file", type=Path, required=True, help="The calibration, in JSON.")
    model = parser.add_argument_group("model")
    add_model(model)
    add_languages(model)
    add_vocabulary(model)
    measure = parser.add_argument_group("quality")
    measure.add_argument(
        "--metric",
        choices=SENTENCE_METRICS,
        default="chrf",
        help="Metric of sentences (default: %(default)s). Others need --bad.",
    )
    add_bad(measure)
    add_metric_models(measure, SENTENCE_METRICS)
    add_decoding(parser.add_argument_group("decoding"))
    return parser
