"""The report of a study: a folder with a page of tables and figures, made from its records."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hf_capsule_mt.analysis.pages import Section, report_page
from hf_capsule_mt.evaluation.decoders_report import file_report
from hf_capsule_mt.files import read_json, replace_text
from hf_capsule_mt.markdown import table_in_markdown
from hf_capsule_mt.records import FileDecodingRecord, read

from .comparisons import HOW, compare_rows, comparison_tables
from .figures import draw_figures
from .questions import CRITERION, judge, question_table
from .results import Result, read_results, read_scores, read_speed
from .sections import Material, examples, gather, lengths, missing, routing
from .steps import Plan
from .study import Study
from .table import ADEQUACY, Table, adequacy_table, caption, curve_table, length_table, score_table, time_curve_table


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


def _significance(material: Material) -> Section | None:
    tables = comparison_tables(compare_rows(material.plan.study, material.results))
    return Section("Significance", HOW, tables) if tables else None


def _adequacy(material: Material) -> Section | None:
    table = adequacy_table(material.plan.study, material.results)
    if len(table) == 1:
        return None
    return Section("Adequacy", ADEQUACY, [table])


SECTIONS: tuple[Callable[[Material], Section | None], ...] = (
    _scores,
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
    material = gather(plan, _results(plan), folder)
    sections = [section for make in SECTIONS if (section := make(material)) is not None]
    title = plan.study.title.replace("`", "")
    replace_text(folder / "index.html", report_page(title, plan.study.about, sections))


def render_page(plan: Plan) -> str:
    """Return the study's own page, rendered from its template.

    The template is Jinja's. It has `study`; tables in Markdown, empty where there is nothing to show: `scores`,
    `curves`, `time_curves`, `adequacy` and, in lists, `decoding` and `lengths` of every test set; texts: `caption`,
    `how` (what the tables of questions mean), `criterion` (what counts as an answer) and `adequacy_how`;
    `questions`, each with `asks`, `effect`, `answer`, `why` and `table`; `bleu(name, test)`, the BLEU that the
    record STUDY_NAME_TEST.json has; and `routing(name)`, what STUDY_NAME_routing.json has, the routing.json of
    `hf-capsule-mt analyze`.

    Raises:
        ValueError: if the study has no template, no row has records, or a record that the template names is missing.
    """
    study, results = plan.study, _results(plan)
    if study.page is None:
        raise ValueError(f"the study {study.name!r} has no page; name its template as `page`")

    def record(name: str, kind: str) -> Path:
        path = plan.records / f"{study.name}_{name}_{kind}.json"
        if not path.is_file():
            raise ValueError(f"{study.page} asks for {kind!r} of {name!r}, but {path} is not a file")
        return path

    def bleu(name: str, test: str) -> float:
        return read_scores(record(name, test)).scores["bleu"].score

    def routing(name: str) -> dict[str, Any]:
        return read_json(record(name, "routing"))

    speed = read_speed(study)
    tables = {
        "scores": score_table(study, results, speed),
        "curves": curve_table(results),
        "time_curves": time_curve_table(study, results, speed),
        "adequacy": adequacy_table(study, results),
    }
    known: dict[str, Any] = {name: _markdown(table) for name, table in tables.items()}
    known["decoding"] = [file_report(read(FileDecodingRecord, Path(record))) for record in study.decoding]
    known["lengths"] = [_markdown(length_table(test.name, results)) for test in study.tests]
    template = Path(study.page).read_text(encoding="utf-8")
    known |= {"caption": caption(study, results), "how": HOW, "criterion": CRITERION, "adequacy_how": ADEQUACY}
    return _render(template, study=study, bleu=bleu, routing=routing, questions=_answered(study, results), **known)


def _answered(study: Study, results: Sequence[Result]) -> list[dict[str, str]]:
    """Return the questions of a study with what their rows answer."""
    comparisons = compare_rows(study, results) if study.questions else []
    found = []
    for question in study.questions:
        verdict = judge(study, question, comparisons)
        table = question_table(study, question, comparisons)
        known = {"asks": question.asks, "effect": f"{question.effect:g}", "answer": verdict.answer, "why": verdict.why}
        found.append({**known, "table": _markdown(table)})
    return found


def _markdown(table: Table) -> str:
    """Return a table in Markdown; of one without rows, nothing."""
    return table_in_markdown(table) if len(table) > 1 else ""


def _results(plan: Plan) -> list[Result]:
    results = read_results(plan.study, plan.records)
    if not results:
        raise ValueError(f"{plan.records} has no records of the study {plan.study.name!r}; train its rows first")
    return results


def _render(template: str, **known: Any) -> str:
    from jinja2 import Environment, StrictUndefined, TemplateError

    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True)
    try:
        return environment.from_string(template).render(**known)
    except TemplateError as error:
        raise ValueError(f"the template of the page cannot be filled: {error}") from error
