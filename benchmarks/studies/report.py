"""The report of a study: a folder with a page of tables and figures, made from its records."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.studies.comparisons import HOW, comparison_tables, without_statistics
from benchmarks.studies.figures import draw_figures
from benchmarks.studies.questions import CRITERION, judge, question_table
from benchmarks.studies.results import read_speed, results_to_show
from benchmarks.studies.sections import Material, examples, gather, lengths, missing, routing
from benchmarks.studies.steps import Plan
from benchmarks.studies.table import ADEQUACY, adequacy_table, caption, curve_table, score_table
from hf_capsule_mt.analysis.pages import Section, report_page
from hf_capsule_mt.evaluation.significance import MARKS
from hf_capsule_mt.files import replace_text


def _scores(material: Material) -> Section | None:
    study, results = material.plan.study, material.results
    return Section("Scores", caption(study, results), [score_table(study, results, read_speed(study))])


def _curves(material: Material) -> Section | None:
    table = curve_table(material.results)
    if len(table) == 1:
        return None
    return Section("Validation BLEU during training", "Greedy, means over seeds.", [table])


def _figures(material: Material) -> Section | None:
    captions = draw_figures(material.plan.study, material.results, material.folder)
    return Section("Figures", figures=list(captions.items())) if captions else None


def _questions(material: Material) -> Section | None:
    study, comparisons, unknown = material.plan.study, material.comparisons, without_statistics(material.results)
    answers = [["question", "asks", "more BLEU that counts", "answer", "why"]]
    tables = []
    for question in study.questions:
        verdict = judge(study, question, comparisons, unknown)
        asked = [question.name, question.asks, f"{question.effect:g}"]
        answers.append([*asked, verdict.answer, verdict.why.replace("`", "")])
        (_, *columns), *rows = question_table(study, question, comparisons)
        tables += [[[question.name, *columns], *rows]] if rows else []
    return Section("Questions", CRITERION, [answers, *tables]) if study.questions else None


def _significance(material: Material) -> Section | None:
    tables, unknown = comparison_tables(material.comparisons), without_statistics(material.results)
    left_out = f" Without statistics of sentences, so not compared: {', '.join(unknown)}; score them again."
    text = f"{HOW} {MARKS}{left_out if unknown else ''}"
    return Section("Significance", text, tables) if tables or unknown else None


def _adequacy(material: Material) -> Section | None:
    table = adequacy_table(material.plan.study, material.results)
    if len(table) == 1:
        return None
    return Section("Adequacy", ADEQUACY, [table])


SECTIONS: tuple[Callable[[Material], Section | None], ...] = (
    _scores,
    _questions,
    _curves,
    _significance,
    _adequacy,
    missing,
    _figures,
    lengths,
    routing,
    examples,
)
"""Functions that make a part of the report, or None where there is nothing to show."""


def write_report(plan: Plan, folder: Path) -> None:
    """Write the report into an empty folder; it begins at `index.html`.

    Raises:
        ValueError: if no row has records, or one of them is not what its name says.
        ChildProcessError: if a checkpoint cannot be looked into.
    """
    material = gather(plan, results_to_show(plan.study, plan.records), folder)
    sections = [section for make in SECTIONS if (section := make(material)) is not None]
    title = plan.study.title.replace("`", "")
    replace_text(folder / "index.html", report_page(title, plan.study.about, sections))
