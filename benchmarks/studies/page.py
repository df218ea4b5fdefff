"""The page that a study keeps in the repository, rendered from its own template."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.speed.decoders_report import file_report
from benchmarks.studies.comparisons import HOW, RowComparison, compare_rows, without_statistics
from benchmarks.studies.questions import CRITERION, difference_cell, judge, question_table
from benchmarks.studies.results import read_scores, read_speed, results_to_show
from benchmarks.studies.steps import Plan
from benchmarks.studies.study import Question, Study
from benchmarks.studies.table import (
    ADEQUACY,
    Table,
    adequacy_table,
    caption,
    curve_table,
    length_table,
    metric_table,
    score_table,
    time_curve_table,
)
from hf_capsule_mt import templates
from hf_capsule_mt.files import read_json
from hf_capsule_mt.markdown import table_in_markdown
from hf_capsule_mt.records import FileDecodingRecord, read


def render_page(plan: Plan) -> str:
    """Return the study's own page, rendered from its template.

    The template is Jinja's. It has `study`; tables in Markdown, empty where there is nothing to show: `scores`,
    `metrics`, `curves`, `time_curves`, `adequacy` and, in lists, `decoding` and `lengths` of every test set; texts:
    `caption`, `how` (what the tables of questions mean), `criterion` (what counts as an answer) and `adequacy_how`;
    `questions`, each with `name`, `asks`, `effect`, `answer`, `said` (the answer, to begin a sentence), `why` and
    `table`; `compared(row, against, test)`, the difference that the study has measured, its interval and p;
    `bleu(name, test)`, the BLEU that the record STUDY_NAME_TEST.json has; `routing(name)`, what
    STUDY_NAME_routing.json has, the routing.json of `hf-capsule-mt analyze`; and `routed`, the rows that have one.

    Raises:
        ValueError: if the study has no template, no row has records, a record that the template names is missing, or it
            cannot be filled.
    """
    study, results = plan.study, results_to_show(plan.study, plan.records)
    if study.page is None:
        raise ValueError(f"the study {study.name!r} has no page; name its template as `page`")
    speed = read_speed(study)
    # Thousands of samples, which only questions and templates that name a difference need.
    compare = cache(partial(compare_rows, study, results))
    tables = {
        "scores": score_table(study, results, speed),
        "metrics": metric_table(study, results),
        "curves": curve_table(results),
        "time_curves": time_curve_table(study, results, speed),
        "adequacy": adequacy_table(study, results),
    }
    known: dict[str, Any] = {name: _markdown(table) for name, table in tables.items()}
    known["decoding"] = [file_report(read(FileDecodingRecord, Path(record))) for record in study.decoding]
    known["lengths"] = [_markdown(length_table(test.name, results)) for test in study.tests]
    unknown = without_statistics(results)
    known["questions"] = [_answered(study, question, compare(), unknown) for question in study.questions]
    known |= {"caption": caption(study, results), "how": HOW, "criterion": CRITERION, "adequacy_how": ADEQUACY}
    return templates.render_page(Path(study.page), study=study, **known, **_lookups(plan, compare))


def _lookups(plan: Plan, compare: Callable[[], Sequence[RowComparison]]) -> dict[str, Any]:
    """Return what a template looks up by the name of a row."""
    study = plan.study

    def path(name: str, kind: str) -> Path:
        return plan.records / f"{study.name}_{name}_{kind}.json"

    def record(name: str, kind: str) -> Path:
        if not path(name, kind).is_file():
            raise ValueError(f"{study.page} asks for {kind!r} of {name!r}, but {path(name, kind)} is not a file")
        return path(name, kind)

    def compared(row: str, against: str, test: str) -> str:
        found = [one for one in compare() if (one.row, one.against, one.test) == (row, against, test)]
        if not found:
            raise ValueError(f"{study.page} asks for {row!r} against {against!r} on {test!r}, which was not compared")
        return difference_cell(*found)

    def bleu(name: str, test: str) -> float:
        return read_scores(record(name, test)).scores["bleu"].score

    def routing(name: str) -> dict[str, Any]:
        return read_json(record(name, "routing"))

    routed = [row.name for row in study.rows if path(row.name, "routing").is_file()]
    return {"compared": compared, "bleu": bleu, "routing": routing, "routed": routed}


def _answered(
    study: Study, question: Question, comparisons: Sequence[RowComparison], unknown: Sequence[str]
) -> dict[str, str]:
    """Return a question of a study with what its rows answer."""
    verdict = judge(study, question, comparisons, unknown)
    effect = f"{question.effect:g}"
    said = f"No, not by {effect} BLEU" if verdict.answer == "no" else verdict.answer.capitalize()
    known = {"name": question.name, "asks": question.asks, "effect": effect, "answer": verdict.answer, "said": said}
    return {**known, "why": verdict.why, "table": _markdown(question_table(study, question, comparisons))}


def _markdown(table: Table) -> str:
    """Return a table in Markdown; of one without rows, nothing."""
    return table_in_markdown(table) if len(table) > 1 else ""
