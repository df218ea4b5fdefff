"""A study, as its YAML file describes it: the rows of a table, and how they are trained, translated and scored.

title: Multi30k English-German
data: {train_file: [train.en, train.de], validation_file: [val.en, val.de]}
tests: {test_2016: [test.en, test.de]}       # source and references; or a split of the data set
train_tokenizer: {vocab_size: 10000}         # sections named for commands have their options
train: {max_steps: 3000, learning_rate: 5e-3, warmup_steps: 2000, save_steps: 200}
average_checkpoints: {last: 10}
translate: {num_beams: 5}
evaluate: {tokenize: none}
size: tiny
seeds: [1, 2, 3]
rows:
  - {name: transformer, method: transformer}
  - {name: "em-{routing_iterations}", method: em-routing, grid: {routing_iterations: [1, 2, 3]}}
  - {name: capsnmt-distilled, method: capsnmt, teacher: transformer, train: {max_steps: 6000}}
  - {name: gdr, method: gdr, start: transformer, against: [em-3]}    # tested for significance; else against the first
  - {name: exact, method: gdr, mixed_precision: "no"}                # what `launcher` says of precision is not for it
questions:
  guided: {asks: "Does guided routing help?", effect: 0.5, rows: [gdr]}    # BLEU more that would count as yes
  order: {asks: "Is em-3 better than em-1?", effect: 0.5, rows: [em-3], against: [em-1]}    # else those of the row
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.studies.strict_yaml import check_kind, check_list, check_mapping, load_yaml
from benchmarks.studies.study import SECTIONS, Cost, Figure, Question, Row, Study, Test

_PRECISIONS = ("no", "bf16", "fp16")
_LONGEST_NAME = 100
_MOST_ROWS = 1000
_MOST = 1_000_000
# NumPy's.
_LARGEST_SEED = 2**32 - 1
_IN_BRACES = re.compile(r"{([^{}]*)}")
# Fields of `Study` that the file gives as they are, where it gives them.
_AS_GIVEN = ("tokenizer", "launcher", "records", "page", "growth")
_STUDY = {
    **dict.fromkeys(("title", "about", "size", "baseline", *_AS_GIVEN), str),
    **dict.fromkeys(("speed", "decoding", "seeds", "rows"), list),
    **dict.fromkeys(("data", "tests", "figures", "cost", "questions", *SECTIONS), dict),
}
_DATA = {
    **{"train_file": list, "validation_file": list, "dataset_name": str, "dataset_config_name": str},
    **{"source_lang": str, "target_lang": str},
}
_ROW = {
    **{"name": str, "method": str, "size": str, "config": dict, "grid": dict, "seeds": list, "teacher": str},
    **{"start": str, "against": list, "train": dict, "published": dict, "updates_per_second": float},
    "mixed_precision": str,
}
_FIGURE = {"rows": list, "x": str, "test": str, "series": str, "baseline": str, "title": str, "log": int}
_QUESTION = {"asks": str, "effect": float, "rows": list, "against": list}
_COST = {"gpus": int, "gpu": str, "updates_per_second": float, "source": str}


def read_study(path: Path) -> Study:
    """Read a study and check its structure; [`~benchmarks.studies.checks.check_study`] checks the values.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds no YAML, or a key is unknown, missing, double, of another type or without effect beside
            another, two rows have one name, a row learns from itself or a question compares it with itself; the message
            names the key, its value and what is allowed.
    """
    where = str(path)
    found = check_mapping(load_yaml(path), where, _STUDY, ("title", "data", "tests", "train", "rows"))
    if "tokenizer" in found and "train_tokenizer" in found:
        raise ValueError(
            f"{where}: tokenizer is {found['tokenizer']!r}, beside which the section train_tokenizer trains none; "
            "leave out one of them"
        )
    items = enumerate(found["rows"])
    points = (row for number, item in items for row in _rows(item, f"{where}: rows[{number}]", found))
    rows = list(itertools.islice(points, _MOST_ROWS + 1))
    _check_rows(rows, where)
    by_name = {row.name: row for row in rows}
    rows = [replace(row, size=_size(row, by_name)) for row in rows]
    baseline = found.get("baseline", rows[0].name)
    tests = tuple(_test(name, item, f"{where}: tests", found["data"]) for name, item in found["tests"].items())
    if not tests:
        raise ValueError(f"{where}: tests is empty")
    # An option without a value is one that is not given.
    sections = {
        name: {option: value for option, value in found.get(name, {}).items() if value is not None} for name in SECTIONS
    }
    if "average_checkpoints" not in found:
        del sections["average_checkpoints"]
    cost = _cost(found["cost"], f"{where}: cost") if "cost" in found else None
    names = [row.name for row in rows]
    questions = tuple(_questions(found.get("questions", {}), f"{where}: questions"))
    named = [("baseline", baseline)]
    named += [(f"rows: {row.name!r:.80}: against", name) for row in rows for name in row.against]
    named += [(f"questions.{each.name}.rows", name) for each in questions for name in each.rows]
    named += [(f"questions.{each.name}.against", name) for each in questions for name in each.against]
    for key, name in named:
        if name not in names:
            raise ValueError(f"{where}: {key} is {name!r:.80}; the rows are {', '.join(names):.1000}")
    study = Study(
        name=path.stem,
        title=found["title"],
        about=found.get("about", ""),
        data=_data(found["data"], f"{where}: data"),
        tests=tests,
        sections=sections,
        rows=tuple(rows),
        baseline=baseline,
        speed=_records("speed", found, where),
        decoding=_records("decoding", found, where),
        figures=_figures(found.get("figures", {}), f"{where}: figures", tests),
        cost=cost,
        questions=questions,
        **{name: found[name] for name in _AS_GIVEN if name in found},
    )
    _check_seeds(study, where)
    _check_questions(study, where)
    return study


def _records(name: str, found: Mapping[str, Any], where: str) -> tuple[str, ...]:
    return tuple(check_list(found[name], f"{where}: {name}", str)) if name in found else ()


def _data(data: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    check_mapping(data, where, _DATA)
    if ("train_file" in data) == ("dataset_name" in data):
        raise ValueError(f"{where} is {data!r:.80}; it must have either train_file or dataset_name")
    for name in ("train_file", "validation_file"):
        if name in data:
            check_list(data[name], f"{where}.{name}", str)
    missing = {"source_lang", "target_lang"} - set(data)
    if "dataset_name" in data and missing:
        raise ValueError(f"{where} has a dataset_name, and so needs {' and '.join(sorted(missing))}, such as en")
    return data


def _test(name: str, value: Any, where: str, data: Mapping[str, Any]) -> Test:
    _check_name(name, where)
    if isinstance(value, str):
        if "dataset_name" not in data:
            raise ValueError(
                f"{where}.{name} is {value!r}, the name of a split, but data has no dataset_name; name a source "
                "file and its references: [test.en, test.de]"
            )
        return Test(name, split=value)
    files = check_list(value, f"{where}.{name}", str)
    if len(files) < 2:
        raise ValueError(f"{where}.{name} is {value!r}; it must be a split, or a source file and its references")
    return Test(name, files[0], tuple(files[1:]))


def _size(row: Row, rows: Mapping[str, Row]) -> str:
    """Return the size of a row's model: that of the row that it starts from, if it does from one."""
    return row.size if row.start not in rows else _size(rows[row.start], rows)


def _rows(item: Any, where: str, study: Mapping[str, Any]) -> Iterator[Row]:
    check_mapping(item, where, _ROW, ("name", "method"))
    if "size" in item and "start" in item:
        raise ValueError(
            f"{where}.size is {item['size']!r:.80}, but start is {item['start']!r}, whose model has one already; "
            "leave out size"
        )
    grid = item.get("grid", {})
    for name, values in grid.items():
        _check_name(name, f"{where}.grid")
        check_kind(values, f"{where}.grid.{name}", list)
        if not values:
            raise ValueError(f"{where}.grid.{name} is empty, so that there is no row")
    if set(_IN_BRACES.findall(item["name"])) != set(grid):
        fields = " and ".join(f"{{{name}}}" for name in sorted(grid)) or "nothing in braces"
        raise ValueError(f"{where}.name is {item['name']!r:.80}; by its grid, it must have {fields} in it")
    seeds = check_list(item.get("seeds", study.get("seeds", [1])), f"{where}.seeds", int)
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"{where}.seeds is {seeds}; they must differ")
    if any(not 0 <= seed <= _LARGEST_SEED for seed in seeds):
        raise ValueError(f"{where}.seeds is {seeds}; they must be from 0 to {_LARGEST_SEED:,}")
    _check_positive(item.get("updates_per_second", 1), f"{where}.updates_per_second")
    published = item.get("published", {})
    for name, score in published.items():
        check_mapping({name: score}, f"{where}.published", dict.fromkeys(study["tests"], float))
    precision = item.get("mixed_precision")
    if precision not in (None, *_PRECISIONS):
        raise ValueError(f"{where}.mixed_precision is {precision!r:.80}; allowed are {', '.join(_PRECISIONS)}")
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        # Not `format()`, in whose language a name may have errors, or be endless.
        name = _IN_BRACES.sub(lambda braces, point=point: str(point[braces[1]]), item["name"])
        _check_name(name, where)
        yield Row(
            name=name,
            method=item["method"],
            size=item.get("size", study.get("size", "base")),
            config={**item.get("config", {}), **point},
            seeds=tuple(seeds),
            train={**study["train"], **item.get("train", {})},
            teacher=item.get("teacher"),
            start=item.get("start"),
            against=tuple(check_list(item["against"], f"{where}.against", str)) if "against" in item else (),
            published=published,
            updates_per_second=item.get("updates_per_second"),
            mixed_precision=precision,
        )


def _check_name(name: Any, where: str) -> None:
    # Names of rows and tests are parts of names of files.
    if not isinstance(name, str) or not re.fullmatch(rf"\w[\w.=+-]{{0,{_LONGEST_NAME - 1}}}", name):
        raise ValueError(
            f"{where}: the name {name!r:.80} must be up to {_LONGEST_NAME} letters, digits and any of _ . = + -"
        )


def _check_rows(rows: Sequence[Row], where: str) -> None:
    if not rows:
        raise ValueError(f"{where}: rows is empty")
    if len(rows) > _MOST_ROWS:
        raise ValueError(f"{where}: rows has more than {_MOST_ROWS} rows, those of grids included")
    names = [row.name for row in rows]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{where}: rows has {name!r:.80} twice; the names must differ")
    by_name = {row.name: row for row in rows}
    for row in rows:
        _check_no_circle(row, by_name, (row.name,), where)
        if row.name in row.against:
            raise ValueError(f"{where}: the row {row.name!r:.80} is against itself; name other rows")


def _check_seeds(study: Study, where: str) -> None:
    """Check that what a row is compared with, because it or a question says so, has its seeds."""
    asked = {name for each in study.questions for name in each.rows}
    for row in study.rows:
        others = study.compared_with(row) if row.against or row.name in asked else ()
        for name, why in ((row.start, "starts from"), *((name, "is compared with") for name in others)):
            other = study.row(name)
            if other is not None and not set(row.seeds) <= set(other.seeds):
                raise ValueError(
                    f"{where}: the row {row.name!r:.80} has seeds {row.seeds}, but {name!r:.80}, which it {why} by the "
                    f"same seed, has {other.seeds}"
                )


def _check_questions(study: Study, where: str) -> None:
    """Check that a question names no row that is all that it is compared with."""
    for question in study.questions:
        for name in question.rows:
            if not study.compared_with(study.row(name), question):
                raise ValueError(
                    f"{where}: questions.{question.name}.rows has {name!r:.80}, which it is compared with; leave it out"
                )


def _check_no_circle(row: Row, by_name: Mapping[str, Row], seen: tuple[str, ...], where: str) -> None:
    for name in row.needs:
        if name in seen:
            chain = " <- ".join([*seen, name])
            raise ValueError(f"{where}: the row {seen[0]!r:.80} learns from itself: {chain:.1000}")
        if name in by_name:
            _check_no_circle(by_name[name], by_name, (*seen, name), where)


def _cost(cost: Mapping[str, Any], where: str) -> Cost:
    check_mapping(cost, where, _COST, ("gpus", "gpu"))
    _check_positive(cost["gpus"], f"{where}.gpus")
    _check_positive(cost.get("updates_per_second", 1), f"{where}.updates_per_second")
    return Cost(**cost)


def _questions(found: Mapping[str, Any], where: str) -> Iterator[Question]:
    for name, question in found.items():
        check_mapping(question, f"{where}.{name}", _QUESTION, ("asks", "effect", "rows"))
        _check_positive(question["effect"], f"{where}.{name}.effect")
        rows, against = (
            tuple(check_list(question[key], f"{where}.{name}.{key}", str)) if key in question else ()
            for key in ("rows", "against")
        )
        yield Question(name, question["asks"], question["effect"], rows, against)


def _check_positive(value: float, where: str) -> None:
    # By these, times are divided and multiplied.
    if not 0 < value < _MOST:
        raise ValueError(f"{where} is {value!r:.80}; it must be above 0 and below {_MOST:,}")


def _figures(figures: Mapping[str, Any], where: str, tests: Sequence[Test]) -> Mapping[str, Figure]:
    names = [test.name for test in tests]
    for name, figure in figures.items():
        _check_name(name, where)
        check_mapping(figure, f"{where}.{name}", _FIGURE, ("rows", "x", "test"))
        check_list(figure["rows"], f"{where}.{name}.rows", str)
        if "log" in figure and not 1 < figure["log"] < _MOST:
            raise ValueError(
                f"{where}.{name}.log is {figure['log']!r:.80}; it must be the base of a logarithm, such as 2"
            )
        if figure["test"] not in names:
            raise ValueError(
                f"{where}.{name}.test is {figure['test']!r:.80}; allowed are {', '.join(map(repr, names))}"
            )
    return {name: Figure(**figure) for name, figure in figures.items()}
