"""Sections of a report that need translations and checkpoints of the runs; what is not on this machine is left out."""

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.studies.comparisons import RowComparison, compare_rows
from benchmarks.studies.results import Result, bleu_options
from benchmarks.studies.runner import command_environment, command_line
from benchmarks.studies.steps import Plan, Step
from benchmarks.studies.study import Test
from hf_capsule_mt.analysis.figures import draw_lengths, save_for_page
from hf_capsule_mt.analysis.pages import Section
from hf_capsule_mt.analysis.routing_kinds import kinds_of_routing
from hf_capsule_mt.data.parallel_text import read_lines
from hf_capsule_mt.evaluation.aligned_texts import AlignedTexts
from hf_capsule_mt.evaluation.length import count_words, quantile_edges, record_buckets, score_by_length
from hf_capsule_mt.files import hash_file
from hf_capsule_mt.records import EvaluationRecord

EXAMPLES = 10
BUCKETS = 5


@dataclass(frozen=True)
class Material:
    """The data of the sections, and the folder that they write into."""

    plan: Plan
    results: Sequence[Result]
    """Results of the rows that have records."""
    folder: Path
    translated: Sequence[tuple[Test, AlignedTexts]]
    """Test sets and their translations by the first seed of every row, as far as their files exist."""

    @cached_property
    def comparisons(self) -> Sequence[RowComparison]:
        """Rows beside those that they are against."""
        return compare_rows(self.plan.study, self.results)


def gather(plan: Plan, results: Sequence[Result], folder: Path) -> Material:
    """Read the translations of the rows once for all sections; raise a ValueError for one that was not scored."""
    return Material(plan, results, folder, list(_translated(plan, results)))


def lengths(material: Material) -> Section | None:
    """Draw BLEU and length by the length of the source."""
    figures, scoring = [], bleu_options(material.plan.study)
    tokenize = material.plan.study.sections["evaluate"].get("source_tokenize", scoring["tokenize"])
    for test, texts in material.translated:
        words = count_words(texts.sources, tokenize)
        try:
            edges = quantile_edges(words, BUCKETS)
        except ValueError:
            # The sentences are too alike in length.
            continue
        buckets = score_by_length(texts, words, edges, **scoring)
        figure = f"lengths_{test.name}"
        save_for_page(draw_lengths({"buckets": record_buckets(buckets)}), material.folder / figure)
        figures.append((figure, f"{test.name}, by the number of words in the source."))
    return Section("Length", figures=figures) if figures else None


def examples(material: Material) -> Section | None:
    """Show the first sentences of every test set with their translations."""
    tables = []
    for _, texts in material.translated:
        columns = {"source": texts.sources, "reference": texts.references[0], **texts.systems}
        lines = [[name, *column[:EXAMPLES]] for name, column in columns.items()]
        tables.append([list(line) for line in zip(*lines, strict=True)])
    return Section("Examples", f"The first {EXAMPLES} sentences of each test set.", tables) if tables else None


def missing(material: Material) -> Section | None:
    """Name the rows with records whose checkpoints or translations are elsewhere, and test sets that are."""
    plan, tests = material.plan, material.plan.study.tests
    elsewhere = [
        result.row.name
        for result in material.results
        for seed in [result.seeds[0].seed]
        if not plan.model(result.row, seed).is_dir()
        or not all(plan.translations(result.row, seed, test).is_file() for test in tests)
    ]
    sets = [test.name for test in tests if not all(file.is_file() for file in plan.test_files(test))]
    names = ", ".join(elsewhere)
    texts = [f"The checkpoints and translations of {names} are not in {plan.runs}, or not all."] if elsewhere else []
    texts += [f"The texts of {', '.join(sets)} are not here."] if sets else []
    return Section("Records alone", " ".join([*texts, "What needs them, below, leaves them out."])) if texts else None


def routing(material: Material) -> Section | None:
    """Link to the reports of hf-capsule-mt analyze on every checkpoint with routing, for the first test set."""
    from transformers import AutoConfig

    plan, links = material.plan, []
    source, reference, *_ = plan.test_files(plan.study.tests[0])
    for result in material.results:
        model = plan.model(result.row, result.seeds[0].seed)
        if not (source.is_file() and (model / "config.json").is_file()):
            continue
        if kinds_of_routing(AutoConfig.from_pretrained(model)):
            place = Path("routing", result.row.name)
            _analyze(model, source, reference, material.folder / place)
            links.append((str(place / "index.html"), result.row.name))
    text = f"Statistics and pictures of {source.name}, the models being made to write the references."
    return Section("Routing", text, links=links) if links else None


def _analyze(model: Path, source: Path, reference: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    options = {"model": model, "input_file": source, "references": reference, "output_dir": folder}
    words = command_line(Step("analyze", options, folder), "")
    print(f"== {shlex.join(words)}", flush=True)
    # The command prints tables, which are in the report too, and the temporary name of the folder.
    if subprocess.run(words, env=command_environment(), stdout=subprocess.DEVNULL, check=False).returncode:
        raise ChildProcessError(f"the routing of {model} cannot be analyzed: see above")


def _translated(plan: Plan, results: Sequence[Result]) -> Iterator[tuple[Test, AlignedTexts]]:
    for test in plan.study.tests:
        systems = {}
        for result in results:
            first = result.seeds[0]
            file = plan.translations(result.row, first.seed, test)
            if file.is_file():
                _check_scored(file, first.evaluations[test.name])
                systems[result.row.name] = read_lines(file)
        source, *references = plan.test_files(test)
        if systems and all(file.is_file() for file in (source, *references)):
            yield test, AlignedTexts(systems, [read_lines(file) for file in references], read_lines(source))


def _check_scored(file: Path, evaluation: EvaluationRecord) -> None:
    scored = evaluation.hypotheses
    if scored is not None and scored.sha256 not in (None, hash_file(file)):
        raise ValueError(f"{file} is not what its record scored; score it again, or remove it")
