"""`--compare` of `hf-capsule-mt evaluate`: several systems, each tested against the first."""

import argparse
from dataclasses import asdict
from typing import Any

from tqdm import tqdm

from hf_capsule_mt.evaluation.scores import AlignedTexts
from hf_capsule_mt.evaluation.significance import DEFAULT_SAMPLES, TESTS, check_test, compare_systems

from .common import refuse_options


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the significance test."""
    group = parser.add_argument_group(
        "significance", "with --compare: is the difference from the first system more than chance?"
    )
    group.add_argument(
        "--test",
        choices=TESTS,
        help="bootstrap (default; Koehn 2004), randomization, or sign (of BLEU alone; Collins et al. 2005)",
    )
    group.add_argument("--num_samples", type=int, help="default: 1000 for bootstrap, 10000 for randomization")
    group.add_argument("--seed", type=int, help="of the samples (default: 12345, sacreBLEU's)")


def check_options(args: argparse.Namespace) -> None:
    """Complete the options; raise a ValueError if they cannot be met."""
    if args.compare is None:
        refuse_options(args, ["test", "num_samples", "seed"], "--compare")
        return
    if len(args.compare) < 2:
        raise ValueError("--compare names one file; give a baseline and at least one system, or use --hypotheses")
    args.test = args.test or "bootstrap"
    args.seed = 12345 if args.seed is None else args.seed
    check_test(args.test, args.metrics, args.num_samples, args.seed)
    if args.test == "sign" and args.num_samples is not None:
        raise ValueError("--num_samples is of no use with --test sign, which is exact")
    args.num_samples = args.num_samples or DEFAULT_SAMPLES.get(args.test)


def measure(args: argparse.Namespace, texts: AlignedTexts) -> dict[str, Any]:
    """Return scores and test results of every system, by system and metric."""
    (baseline, reference), *systems = texts.systems.items()
    options = {
        name: getattr(args, name) for name in ("test", "metrics", "tokenize", "lowercase", "num_samples", "seed")
    }
    found = {}
    # One system takes seconds, and needs no progress bar.
    for name, translations in tqdm(systems, unit=" systems", disable=len(systems) < 2):
        comparisons = compare_systems(reference, translations, texts.references, **options)
        found[name] = {metric: asdict(comparison) for metric, comparison in comparisons.items()}
    settings = {name: options[name] for name in ("test", "num_samples", "seed")}
    return {"baseline": baseline, "settings": settings, "systems": found}
