"""The report of a study, in Markdown, made from its records by the template that it names, or report.md.jinja.

    python -m benchmarks.studies report benchmarks/multi30k/multi30k.yaml --page benchmarks/multi30k/README.md
    python -m benchmarks.studies report study.yaml --figures_dir outputs/figures

Figures need matplotlib: pip install "hf-capsule-mt[figures]". Nothing is trained.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from benchmarks.common.figures import draw_lines
from benchmarks.common.records import read_records
from benchmarks.decoding.decoding_tables import file_report
from benchmarks.studies.compare import CRITERION, HOW, Comparison, compare_rows, judge, judge_row, question_table
from benchmarks.studies.results import Result, read_results
from benchmarks.studies.score_tables import (
    ADEQUACY,
    Table,
    adequacy_table,
    caption,
    curve_table,
    length_table,
    machine_table,
    metric_table,
    score_table,
    time_curve_table,
)
from benchmarks.studies.study import Study, read_study
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.drawing import save_figure
from hf_capsule_mt.evaluation.tables import table_in_markdown
from hf_capsule_mt.files import replace_text

# Of a loss of several parts, the part that every method has.
_BENCHMARKS = Path(__file__).parents[1]
_LOGGED = {"training loss of the translation": ("lm_loss", "loss"), "validation BLEU": ("eval_bleu",)}


def add_study_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the study and its records."""
    parser.add_argument("study", type=_study, help="the YAML file")
    parser.add_argument("--records", type=Path, help="default: the study's, else outputs/STUDY/records.jsonl")


def _study(name: str) -> Study:
    try:
        return read_study(Path(name))
    except (OSError, UserError, yaml.YAMLError) as error:
        # argparse would hide the message of any other error.
        raise argparse.ArgumentTypeError(str(error)) from error


def records_of(args: argparse.Namespace) -> Path:
    """Return the file of the records."""
    if args.records is not None:
        return args.records
    return Path(args.study.records or Path("outputs", args.study.name, "records.jsonl"))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_study_options(parser)
    parser.add_argument("--page", type=Path, help="the file of the page (default: it is printed)")
    parser.add_argument("--figures_dir", type=Path, help="draw learning curves and the study's figures into it")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Write the page, or print it, and draw the figures."""
    args = build_parser().parse_args(argv)
    pages = render_pages(args.study, records_of(args))
    if args.page is None:
        print("\n".join(pages))
    else:
        files = [args.page, args.page.with_stem(f"{args.page.stem}_appendix")]
        for page, file in zip(pages, files, strict=False):
            replace_text(file, page)
    if args.figures_dir is not None:
        args.figures_dir.mkdir(parents=True, exist_ok=True)
        draw_figures(args.study, read_results(args.study, records_of(args)), args.figures_dir)


def print_table(study: Study, records: Path) -> None:
    """Print the table of the rows that have records."""
    results = read_results(study, records)
    if results:
        table = table_in_markdown(score_table(study, results, _speed(study)))
        print(f"\n{table}\n\n{caption(study, results)}")


def _speed(study: Study) -> list[dict[str, Any]]:
    """Return the records of speed that the study names."""
    if not study.speed:
        return []
    known = read_records(_BENCHMARKS / "training" / "speed.jsonl")
    return [known[name] for name in study.speed]


def without_statistics(results: Sequence[Result]) -> list[str]:
    """Return the rows that have a score without the statistics of its sentences, and so are not compared."""
    rows = []
    for result in results:
        scores = [score for one in result.seeds for score in one.scores.values()]
        if any(not score.get("bleu_statistics") for score in scores):
            rows.append(result.row.name)
    return rows


def render_pages(study: Study, file: Path) -> list[str]:
    """Return the study's own page, and its appendix if it has one, from the Jinja templates that it names.

    A template has `study`; tables in Markdown, empty where there is nothing to show: `scores`, `machines`, `metrics`,
    `curves`, `time_curves`, `adequacy` and, in lists, `decoding` and `lengths`; the texts `caption`, `how`, `criterion`
    and `adequacy_how`; `questions`, each with `name`, `asks`, `effect`, `answer`, `answers` of the rows, `said`, `why`
    and `table`; `comparisons()`, all differences, and `compared(row, against, test)`, one; `bleu(name, test)`;
    `routing(name)`, what `hf-capsule-mt analyze` wrote; and `routed`, the rows that have that.
    """
    records = read_records(file)
    results = read_results(study, file)
    speed = _speed(study)
    decoding = read_records(_BENCHMARKS / "decoding" / "decoding.jsonl")

    # Thousands of samples, which not every template needs.
    @cache
    def comparisons() -> list[Comparison]:
        return compare_rows(study, results)

    def compared(row: str, against: str, test: str) -> Comparison:
        wanted = (row, against, test)
        [comparison] = [one for one in comparisons() if (one.row, one.against, one.test) == wanted]
        return comparison

    def bleu(name: str, test: str) -> float:
        return records[f"{study.name}_{name}_{test}"]["scores"]["bleu"]["score"]

    def routing(name: str) -> dict[str, Any]:
        return records[f"{study.name}_{name}_routing"]

    names = {
        "study": study,
        "scores": _markdown(score_table(study, results, speed)),
        "machines": _markdown(machine_table(results)) if results else "",
        "metrics": _markdown(metric_table(study, results)),
        "curves": _markdown(curve_table(results)),
        "time_curves": _markdown(time_curve_table(study, results, speed)),
        "adequacy": _markdown(adequacy_table(study, results)),
        "decoding": [file_report(decoding[name]) for name in study.decoding],
        "lengths": [_markdown(length_table(test.name, results)) for test in study.tests],
        "caption": caption(study, results) if results else "",
        "how": HOW,
        "criterion": CRITERION,
        "adequacy_how": ADEQUACY,
        "questions": _answers(study, comparisons, without_statistics(results)),
        "comparisons": comparisons,
        "compared": compared,
        "bleu": bleu,
        "routing": routing,
        "routed": [row.name for row in study.rows if f"{study.name}_{row.name}_routing" in records],
    }
    environment = SandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    templates = [Path(study.page or Path(__file__).with_name("report.md.jinja"))]
    if study.appendix:
        templates.append(Path(study.appendix))
    return [environment.from_string(path.read_text(encoding="utf-8")).render(**names) for path in templates]


def _answers(
    study: Study, comparisons: Callable[[], Sequence[Comparison]], unknown: Sequence[str]
) -> list[dict[str, Any]]:
    """Return what a template has of each question."""
    answered = []
    for question in study.questions:
        answer, why = judge(study, question, comparisons(), unknown)
        effect = f"{question.effect:g}"
        row_answers = {}
        for name in question.rows:
            row_answers[name], _ = judge_row(study, question, name, comparisons())
        answered.append(
            {
                "name": question.name,
                "asks": question.asks,
                "effect": effect,
                "answer": answer,
                "answers": row_answers,
                "said": f"No, not by {effect} BLEU" if answer == "no" else answer.capitalize(),
                "why": why,
                "table": _markdown(question_table(study, question, comparisons())),
            }
        )
    return answered


def _markdown(table: Table) -> str:
    """Return a table in Markdown; of one without rows, nothing."""
    return table_in_markdown(table) if len(table) > 1 else ""


def draw_figures(study: Study, results: Sequence[Result], folder: Path) -> None:
    """Draw the figures that the records have data for."""
    panels = {}
    for label, names in _LOGGED.items():
        curves = {result.row.name: result.curve(*names) for result in results}
        logged = {name: curve for name, curve in curves.items() if curve}
        if logged:
            panels[label] = logged
    if panels:
        save_figure(draw_lines(panels, "updates"), folder / "learning_curves.svg")
    for name, figure in study.figures.items():
        lines = _points(figure, results)
        if any(len(points) > 1 for points in lines.values()):
            drawn = draw_lines(
                {f"BLEU, {figure['test']}": lines},
                figure["x"],
                log=figure.get("log"),
                level=_level(figure, results),
            )
            save_figure(drawn, folder / f"{name}.svg")


def _level(figure: Mapping[str, Any], results: Sequence[Result]) -> dict[str, list[float]]:
    """Return BLEU of the row that a figure shows as a horizontal line."""
    baseline = figure.get("baseline")
    return {result.row.name: result.bleu(figure["test"]) for result in results if result.row.name == baseline}


def _points(figure: Mapping[str, Any], results: Sequence[Result]) -> dict[str, dict[float, list[float]]]:
    """Return BLEU by the value of a field, for each line of a figure."""
    lines: dict[str, dict[float, list[float]]] = {}
    for result in results:
        if not any(fnmatchcase(result.row.name, pattern) for pattern in figure["rows"]):
            continue
        config = dict(result.seeds[0].run["config"])
        # The default of num_output_capsules, None, stands for d_model.
        config["num_output_capsules"] = config.get("num_output_capsules") or config["d_model"]
        series = figure.get("series")
        line = result.row.method if series is None else f"{series} {config[series]}"
        points = lines.setdefault(line.replace("_", " "), {})
        points.setdefault(config[figure["x"]], []).extend(result.bleu(figure["test"]))
    return lines
