"""The ten probing tasks of Conneau et al. 2018 by the names of SentEval's files, and those files' format.

A file has a sentence a line: `tr`, `va` or `te`, a tab, the label, a tab, the tokens with spaces between them. There
may be more columns before the sentence, which is the last, as SentEval's description says; they are not read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hf_capsule_mt.data.parallel_text import read_lines

# The label and the sentence, its tokens with one space between them.
Example = tuple[str, str]


@dataclass(frozen=True)
class ProbingTask:
    """A task: the name of SentEval's file without `.txt`, and its column and group in Li et al. 2019, Table 1."""

    name: str
    column: str
    group: str

    @property
    def file_name(self) -> str:
        """The name of SentEval's file."""
        return f"{self.name}.txt"


# In the order of Table 1.
TASKS = {
    name: ProbingTask(name, column, group)
    for name, column, group in (
        ("sentence_length", "SeLen", "Surface"),
        ("word_content", "WC", "Surface"),
        ("tree_depth", "TrDep", "Syntactic"),
        ("top_constituents", "ToCo", "Syntactic"),
        ("bigram_shift", "BShif", "Syntactic"),
        ("past_present", "Tense", "Semantic"),
        ("subj_number", "SubNm", "Semantic"),
        ("obj_number", "ObjNm", "Semantic"),
        ("odd_man_out", "SOMO", "Semantic"),
        ("coordination_inversion", "CoIn", "Semantic"),
    )
}


@dataclass
class ProbingData:
    """The examples of a task."""

    train: list[Example] = field(default_factory=list)
    validation: list[Example] = field(default_factory=list)
    test: list[Example] = field(default_factory=list)

    @property
    def labels(self) -> list[str]:
        """The labels of the training split, sorted."""
        return sorted({label for label, _ in self.train})

    @property
    def splits(self) -> dict[str, list[Example]]:
        """The three splits by what the first column of a file calls them."""
        return {"tr": self.train, "va": self.validation, "te": self.test}


def find_tasks(data_dir: str | Path, names: Iterable[str] = ()) -> list[ProbingTask]:
    """The tasks with a file in `data_dir`, in the order of Table 1; if there are `names`, those and no others.

    Raises:
        ValueError: a name that is no task's.
        FileNotFoundError: no such folder, no file of a task in it, or not that of a name.
    """
    data_dir, names = Path(data_dir), set(names)
    for name in sorted(names - TASKS.keys()):
        raise ValueError(f"unknown task {name!r}; there are {', '.join(TASKS)}")
    if not data_dir.is_dir():
        raise FileNotFoundError(f"{data_dir} is not a folder; name the one that holds {_file_names(TASKS.values())}")
    there = [task for task in TASKS.values() if (data_dir / task.file_name).is_file()]
    missing = [task for task in TASKS.values() if task.name in names and task not in there]
    if missing or not there:
        raise FileNotFoundError(f"{data_dir} holds no {_file_names(missing or TASKS.values(), ' or ')}")
    return [task for task in there if not names or task.name in names]


def _file_names(tasks: Iterable[ProbingTask], last: str = ", ") -> str:
    *names, final = [task.file_name for task in tasks]
    return last.join([", ".join(names), final] if names else [final])


def read_probing_data(path: str | Path) -> ProbingData:
    """Read a file in SentEval's format.

    Raises:
        ValueError: a line that is not in the format, a split without a sentence, a label of `va` or `te` that is not
            in `tr`, or fewer than two labels; the message names the file and, where there is one, the line.
        OSError: a file that is missing or unreadable.
    """
    data = ProbingData()
    first_lines: dict[tuple[str, str], int] = {}
    for number, line in enumerate(read_lines(path), start=1):
        split, label, sentence = _parse(line, f"{path}:{number}")
        data.splits[split].append((label, sentence))
        first_lines.setdefault((split, label), number)
    for split, examples in data.splits.items():
        if not examples:
            raise ValueError(f"{path} has no sentence of {split}; it must have some of tr, va and te")
    _check_labels(path, data.labels, first_lines)
    return data


def _parse(line: str, where: str) -> tuple[str, str, str]:
    # SentEval's own reader strips the end of a line too.
    columns = [column.strip() for column in line.rstrip().split("\t")]
    if len(columns) < 3:
        raise ValueError(
            f"{where}: {len(columns)} column(s) with text; there must be 3, with tabs between them: tr, va or te, the "
            "label, the sentence"
        )
    split, label, sentence = columns[0], columns[1], " ".join(columns[-1].split())
    if split not in ("tr", "va", "te"):
        raise ValueError(f"{where}: the split is {split!r}; it must be tr, va or te")
    if not label:
        raise ValueError(f"{where}: the label is empty")
    return split, label, sentence


def _check_labels(path: str | Path, labels: Sequence[str], first_lines: dict[tuple[str, str], int]) -> None:
    for (split, label), number in first_lines.items():
        if label not in labels:
            raise ValueError(f"{path}:{number}: the label {label!r} of {split} comes nowhere in tr")
    if len(labels) < 2:
        raise ValueError(f"{path}: {labels[0]!r} is the only label; there is nothing to tell apart")


def format_probing_data(data: ProbingData) -> str:
    """The text of a file that [`read_probing_data`] reads, split by split."""
    return "".join(
        f"{split}\t{label}\t{sentence}\n" for split, examples in data.splits.items() for label, sentence in examples
    )
