"""The README works as a page of the package index, and the maps name files that exist."""

import re

import pytest
from code_blocks import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "checkpoints/*.md")
    for path in ROOT.glob(pattern)
)
REPOSITORY = "hf-capsule-mt/hf-capsule-mt"


def test_links_of_the_readme_are_absolute_and_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert all(link.startswith("https://") for link in links)
    own = [link for link in links if REPOSITORY in link]
    for link in own:
        path, _, title = link.partition(f"{REPOSITORY}/")[2].removeprefix("blob/").removeprefix("main/").partition("#")
        assert (ROOT / path).is_file(), link
        if title:
            titles = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert title in [words.lower().replace(" ", "-") for words in titles], link
    assert len(own) > 8


def test_the_scores_of_the_readme_are_those_of_the_benchmark():
    measured = (ROOT / "benchmarks" / "routing" / "does_routing_pay_appendix.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` (\| [\d.]+M \| .*)$", README, flags=re.MULTILINE)
    assert len(rows) > 5
    for row, scores in rows:
        assert f"\n| {row} {scores}" in measured


def test_every_question_of_the_benchmarks_is_in_their_list():
    """No script or page lies loose there, and each folder of a question has a page in the list."""
    folder = ROOT / "benchmarks"
    entries = {path.name for path in folder.iterdir() if path.name != "__pycache__"}
    questions = {name for name in entries if (folder / name).is_dir()} - {"common"}
    assert entries - questions == {"__init__.py", "README.md", "common"}
    listed = re.findall(r"^\| \[`(\w+)/`\]\(", (folder / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(listed) == sorted(questions)


@pytest.mark.parametrize("page", PAGES)
def test_links_between_files_of_the_repository_lead_somewhere(page):
    text = re.sub(r"```.+?```|`.+?`", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    files = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [file for file in files if file and not (ROOT / page).parent.joinpath(file).exists()] == []


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", *(f"docs/papers/{path.name}" for path in ROOT.glob("docs/papers/*.md"))]
)
def test_files_that_pages_name_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    files = re.findall(
        r"\b((?:hf_capsule_mt|tests|benchmarks|docs|space|model_cards)/[\w/.-]*\w\.(?:py|md|sh|yaml)|\w+_command\.py)\b",
        text,
    )
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_a_page_is_for_one_task(page):
    """A longer page is two, split by what the reader wants to do."""
    assert len((ROOT / page).read_text(encoding="utf-8").split()) <= 2500


def test_the_readme_is_easy_to_read():
    # Six minutes are enough for all of it, with its tables.
    assert len(README.split()) <= 1100
    text = re.sub(r"^```.*?^```$|^\|.*?$|^<!--.*?$|^#.*?$", "", README, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\([^)]*\)|[*`\[\]]", "", text)
    for paragraph in re.split(r"\n\s*\n", text):
        assert all(len(line.split()) <= 90 for line in paragraph.splitlines()), paragraph
        assert ";" not in paragraph
        for sentence in re.split(r"(?<=[.!?:])\s+|\n", paragraph):
            assert len(sentence.split()) <= 30, sentence
