"""`--compare` of evaluate.py: several systems, each tested against the first."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hf_capsule_mt.markdown import markdown_table

if TYPE_CHECKING:
    from hf_capsule_mt.evaluation.streams import Streams

_NAMES = {
    "bootstrap": "paired bootstrap resampling (Koehn 2004), one-sided, {samples} samples, seed {seed}",
    "randomization": "paired approximate randomization, two-sided, {samples} shuffles, seed {seed}",
    "sign": "sign test (Collins et al. 2005), two-sided; + and − count the sentences that are better and worse",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """How systems are compared."""
    group = parser.add_argument_group(
        "significance", "with --compare: is the difference from the first system more than chance?"
    )
    group.add_argument(
        "--test",
        choices=list(_NAMES),
        help="bootstrap (default; Li et al. 2019), randomization, or sign (of BLEU alone; Dou et al. 2019)",
    )
    group.add_argument("--num_samples", type=int, help="default: 1000 for bootstrap, 10000 for randomization")
    group.add_argument("--seed", type=int, help="of the samples (default: 12345, sacreBLEU's)")


def check_options(args: argparse.Namespace) -> None:
    """Complete the options; raise a ValueError if they cannot be met."""
    from hf_capsule_mt.evaluation.significance import DEFAULT_SAMPLES, check_test

    if args.compare is None:
        given = [name for name in ("test", "num_samples", "seed") if getattr(args, name) is not None]
        if given:
            raise ValueError(f"--{given[0]} is of use with --compare alone")
        return
    if len(args.compare) < 2:
        raise ValueError("--compare names one file; give a baseline and at least one system, or use --hypotheses")
    args.test = args.test or "bootstrap"
    args.seed = 12345 if args.seed is None else args.seed
    check_test(args.test, args.metrics, args.num_samples, args.seed)
    if args.test == "sign" and args.num_samples is not None:
        raise ValueError("--num_samples is of no use with --test sign, which is exact")
    args.num_samples = args.num_samples or DEFAULT_SAMPLES.get(args.test)


def measure(args: argparse.Namespace, streams: "Streams") -> dict[str, Any]:
    """The scores of every system, and what the test says of them, by system and metric."""
    from dataclasses import asdict

    from tqdm import tqdm

    from hf_capsule_mt.evaluation.significance import compare_systems

    (baseline, reference), *systems = streams.systems.items()
    options = {
        name: getattr(args, name) for name in ("test", "metrics", "tokenize", "lowercase", "num_samples", "seed")
    }
    found = {}
    # No bar for one system, which takes seconds.
    for name, translations in tqdm(systems, unit=" systems", disable=len(systems) < 2):
        comparisons = compare_systems(reference, translations, streams.references, **options)
        found[name] = {metric: asdict(comparison) for metric, comparison in comparisons.items()}
    settings = {name: options[name] for name in ("test", "num_samples", "seed")}
    return {"baseline": baseline, "settings": settings, "systems": found}


def report(record: dict[str, Any]) -> str:
    """The table in Markdown, and under it how it was made."""
    systems, settings = record["systems"], record["settings"]
    first = next(iter(systems.values()))
    columns = ["Δ", "p", "+", "−"] if settings["test"] == "sign" else ["Δ", "p"]
    rows = [["system"], ["---"], [record["baseline"]]]
    for metric, comparison in first.items():
        rows[0] += [metric, *columns]
        rows[1] += ["---:"] * (1 + len(columns))
        rows[2] += [f"{comparison['baseline']:.2f}", *("" for _ in columns)]
    for name, comparisons in systems.items():
        rows.append([name, *(cell for one in comparisons.values() for cell in _cells(one))])
    test = _NAMES[settings["test"]].format(samples=settings["num_samples"], seed=settings["seed"])
    caption = f"p: {test}; against {record['baseline']}. † / ‡: a difference with p < 0.05 / 0.01."
    signatures = (f"{metric}: {comparison['signature']}" for metric, comparison in first.items())
    return "\n".join([*markdown_table(rows), "", caption, *signatures])


def _cells(comparison: dict[str, Any]) -> Sequence[str]:
    from hf_capsule_mt.evaluation.significance import Comparison, significance_mark

    one = Comparison(**comparison)
    p_value = f"{one.p_value:.4f}" if one.p_value >= 1e-4 else "< 0.0001"
    cells = [f"{one.score:.2f}{significance_mark(one)}", f"{one.score - one.baseline:+.2f}", p_value]
    return cells if one.better is None else [*cells, str(one.better), str(one.worse)]
