"""The studies in benchmarks/studies: all can be run, and the page made from stored records says what they say."""

import re
from pathlib import Path

import pytest

from benchmarks.studies import report_command as ablation_report
from benchmarks.studies.checks import check_study
from benchmarks.studies.estimate import estimate
from benchmarks.studies.run import command_parsers
from benchmarks.studies.steps import Plan
from benchmarks.studies.study_file import read_study

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "benchmarks" / "studies").glob("*.yaml"))
OWN = ("does_routing_pay", "does_routing_pay_french", "multi30k", "multi30k_recipe")
PAPERS = [path for path in STUDIES if path.stem not in OWN]


@pytest.fixture(scope="module")
def parsers():
    return command_parsers()


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_row_can_be_run(path, parsers):
    study = read_study(path)
    check_study(study, parsers)
    averaged = study.sections.get("average_checkpoints", {"last": 1})["last"]
    assert averaged < study.sections["train"]["save_total_limit"]
    for file in (study.page, *study.speed, study.growth):
        assert file is None or (ROOT / file).is_file()


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_every_paper_has_its_cost_and_its_scores(path):
    study = read_study(path)
    assert study.cost.source
    assert sum(bool(row.published) for row in study.rows) >= 2
    text = estimate(study, Plan(study, Path("runs"), Path("records")).jobs())
    hours, gpu, runs = re.match(r"about ([\d,]+) hours of one (.*?): (\d+) run", text).groups()
    readme = (path.parent / "README.md").read_text(encoding="utf-8")
    assert f"| `{path.stem}` | {runs} | {hours} | {gpu} |\n" in readme


def test_the_estimate_is_updates_by_speed(tmp_path):
    """Of Li et al., Table 3, at 100,000 updates: 27.8 h / 1.92 on eight GPUs are 116 hours of one."""
    study = read_study(ROOT / "benchmarks" / "studies" / "li2019_wmt14_en_de.yaml")
    jobs = [job for job in Plan(study, tmp_path, tmp_path).jobs() if job.row.name == "transformer"]
    assert estimate(study, jobs).startswith("about 116 hours of one NVIDIA P40: 1 run(s), together 14 hours on 8,")


@pytest.mark.parametrize("name", ["does_routing_pay", "does_routing_pay_french", "multi30k"])
def test_the_page_is_made_from_the_records(name, tmp_path, monkeypatch):
    """If not: python -m benchmarks.studies report benchmarks/studies/NAME.yaml --page benchmarks/NAME.md"""
    monkeypatch.chdir(ROOT)
    ablation_report.main([f"benchmarks/studies/{name}.yaml", "--page", str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_bytes() == (ROOT / "benchmarks" / f"{name}.md").read_bytes()
