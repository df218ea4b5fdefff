"""The YAML file: what it says, and its mistakes, each named with its key, its value and what is allowed."""

import copy
import dataclasses
import re
from contextlib import nullcontext

import pytest
from tiny_study import study_of_two, write_study

from benchmarks.studies import study_file
from benchmarks.studies.checks import check_files, check_study
from benchmarks.studies.run import command_parsers
from benchmarks.studies.steps import Plan
from benchmarks.studies.strict_yaml import load_yaml
from benchmarks.studies.study_file import read_study
from hf_capsule_mt import preset_config

# Nine times itself at each of eight steps.
BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi"))
GRID = {"name": "a-{dropout}", "method": "transformer", "grid": {"dropout": [0.1, 0.2]}}


@pytest.fixture(scope="module")
def parsers():
    return command_parsers()


@pytest.fixture
def study(tmp_path):
    return study_of_two(tmp_path)


def read(tmp_path, study):
    return read_study(write_study(tmp_path / "two.yaml", study))


def changed(study, key, value):
    """The study with the value at a dotted key."""
    study = copy.deepcopy(study)
    *path, last = (int(part) if part.isdecimal() else part for part in key.split("."))
    part = study
    for name in path:
        part = part[name]
    part[last] = value
    return study


def test_rows_inherit(tmp_path, study):
    study["rows"][1]["train"] = {"max_steps": 20, "save_steps": None}
    found = read(tmp_path, study | {"seeds": [1, 2]})
    plain, student = found.rows
    assert (found.name, plain.size, plain.seeds, plain.train["max_steps"]) == ("two", "tiny", (1, 2), 8)
    assert (student.train["max_steps"], student.train["learning_rate"], student.teacher) == (20, 0.001, "plain")
    step = next(step for step in Plan(found, tmp_path, tmp_path).jobs()[1].steps if step.command == "train")
    assert "--save_steps" not in step.words()
    assert step.words()[-4:] == ["--seed", "1", "--output_dir", f"{tmp_path}/student/seed1"]


def test_a_grid_is_a_row_for_each_point(tmp_path, study):
    study["rows"].append(
        {
            "name": "em-N{num_output_capsules}-T{routing_iterations}",
            "method": "em-routing",
            "config": {"dropout": 0.2},
            "grid": {"num_output_capsules": [2, 4], "routing_iterations": [1, 3]},
        }
    )
    rows = read(tmp_path, study).rows[2:]
    assert [row.name for row in rows] == ["em-N2-T1", "em-N2-T3", "em-N4-T1", "em-N4-T3"]
    assert rows[1].config == {"dropout": 0.2, "num_output_capsules": 2, "routing_iterations": 3}


def test_a_teacher_comes_before_its_students(tmp_path, study):
    study["rows"].reverse()
    jobs = Plan(read(tmp_path, study), tmp_path / "runs", tmp_path).jobs()
    assert [job.row.name for job in jobs] == ["plain", "student"]
    distill = next(step for step in jobs[1].steps if step.command == "distill")
    assert distill.options["model"] == tmp_path / "runs/plain/seed1/average"
    train = next(step for step in jobs[1].steps if step.command == "train")
    assert train.options["train_file"] == distill.options["output_file"]
    assert [file.name for file in train.options["train_file"]] == ["plain.en", "plain.de"]


def test_a_row_starts_from_another_of_the_same_seed(tmp_path, study, parsers):
    study["seeds"] = [1, 2]
    study["rows"][0]["start"] = "company/model"
    study["rows"] += [
        {"name": "guided", "method": "gdr", "start": "plain"},
        {"name": "longer", "method": "transformer", "start": "plain", "seeds": [2]},
    ]
    study["rows"].reverse()
    found = read(tmp_path, study | {"baseline": "plain"})
    check_study(found, parsers)
    jobs = Plan(found, tmp_path / "runs", tmp_path).jobs()
    trained = {job.name: next(step for step in job.steps if step.command == "train").options for job in jobs}
    # A seed of every row comes before the next one, each behind what it needs.
    first = ["plain, seed 2", "longer, seed 2", "plain, seed 1", "guided, seed 1", "student, seed 1"]
    assert list(trained) == [*first, "guided, seed 2", "student, seed 2"]
    assert trained["plain, seed 1"]["model_name_or_path"] == "company/model"
    for name, method in (("guided, seed 2", "gdr"), ("longer, seed 2", None)):
        assert trained[name]["model_name_or_path"] == tmp_path / "runs/plain/seed2/average"
        assert (trained[name]["method"], "size" in trained[name]) == (method, False)


def test_a_row_has_the_size_of_the_row_that_it_starts_from(tmp_path, study):
    study["rows"] = [
        {"name": "on", "method": "gdr", "start": "more"},
        {"name": "more", "method": "transformer", "start": "plain"},
        {"name": "plain", "method": "transformer", "size": "big"},
        {"name": "other", "method": "transformer", "start": "company/model"},
    ]
    assert [row.size for row in read(tmp_path, study).rows] == ["big", "big", "big", "tiny"]


def test_what_a_row_starts_from_must_be_there(tmp_path, study):
    study["rows"][1] = {"name": "guided", "method": "gdr", "start": "plain"}
    plan = Plan(read(tmp_path, study), tmp_path / "runs", tmp_path)
    for name in ("train.en", "train.de", "test.en", "test.de"):
        (tmp_path / name).touch()
    check_files(plan, plan.jobs())
    with pytest.raises(FileNotFoundError, match=r"'guided' starts from 'plain', whose model is not in .*average; put"):
        check_files(plan, plan.jobs()[1:])
    model = tmp_path / "runs/plain/seed1/average"
    model.mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="whose model is not in"):
        check_files(plan, plan.jobs()[1:])
    (model / "config.json").touch()
    check_files(plan, plan.jobs()[1:])


@pytest.mark.parametrize(
    ("asked", "aligned"),
    [
        ({"adequacy": True}, True),
        ({"adequacy": True, "aligner": "attention"}, False),
        ({"adequacy": True, "model": "a/model"}, False),
        ({"adequacy": True, "model": "a/model", "aligner": "eflomal"}, True),
        ({"length_buckets": 3}, False),
    ],
)
def test_evaluations_that_look_at_the_sources(tmp_path, study, asked, aligned):
    """They are given them, and an aligner that learns from text that of training."""
    study["evaluate"] |= asked
    evaluation = Plan(read(tmp_path, study), tmp_path, tmp_path).jobs()[0].steps[-1]
    assert evaluation.options["sources"] == tmp_path / "test.en"
    assert evaluation.options["alignment_data"] == (study["data"]["train_file"] if aligned else None)


def test_adequacy_without_an_aligner(tmp_path, study, monkeypatch):
    """It is known before anything is trained; who leaves the scores to another machine needs none."""
    study["evaluate"]["adequacy"] = True
    plan = Plan(read(tmp_path, study), tmp_path / "runs", tmp_path)
    for name in ("train.en", "train.de", "test.en", "test.de"):
        (tmp_path / name).touch()
    monkeypatch.setattr("benchmarks.studies.checks.has_eflomal", lambda: False)
    with pytest.raises(ValueError, match=r"two: evaluate.adequacy needs an aligner, and eflomal is not installed; pip"):
        check_files(plan, plan.jobs())
    check_files(plan, [dataclasses.replace(job, without_scores=True) for job in plan.jobs()])
    study["evaluate"]["model"] = "a/model"
    plan = Plan(read(tmp_path, study), tmp_path / "runs", tmp_path)
    check_files(plan, plan.jobs())


def test_a_data_set_of_the_hub(tmp_path, study, parsers):
    """Test sets become files, and so does the validation data of a student, whose training data are files."""
    study["data"] = {"dataset_name": "wmt/wmt14", "dataset_config_name": "de-en"}
    study["data"] |= {"source_lang": "en", "target_lang": "de"}
    study["tests"] = {"newstest2014": "test"}
    study["train"] |= {"eval_strategy": "steps", "eval_steps": 2}
    found = read(tmp_path, study)
    check_study(found, parsers)
    plain, student = Plan(found, tmp_path, tmp_path).jobs()
    assert [step.command for step in plain.steps] == [
        *("train_tokenizer", "train", "average_checkpoints", "export_text", "translate", "evaluate")
    ]
    train = next(step for step in student.steps if step.command == "train")
    assert [file.name for file in train.options["validation_file"]] == ["validation.en", "validation.de"]
    assert "dataset_name" not in train.options
    assert train.options["source_lang"] == "en"
    study["data"]["validation_file"] = ["val.en", "val.de"]
    student = Plan(read(tmp_path, study), tmp_path, tmp_path).jobs()[1]
    train = next(step for step in student.steps if step.command == "train")
    assert train.options["validation_file"] == ["val.en", "val.de"]
    assert not any("validation" in step.words() for step in student.steps if step.command == "export_text")


def test_numbers_with_an_exponent(tmp_path):
    """They need no point and no sign, as in YAML 1.2; nothing else becomes a number."""
    path = tmp_path / "numbers.yaml"
    path.write_text("a: [1e-2, 5E3, -1.e+2, .5e1, 1.0e-2, 12, 08, e5, 1e, 1e5x, '1e-2']\n")
    assert load_yaml(path)["a"] == [0.01, 5000.0, -100.0, 5.0, 0.01, 12, "08", "e5", "1e", "1e5x", "1e-2"]


def test_options_that_are_true_false_or_undecided(tmp_path, study, parsers):
    study["train"] |= {"greater_is_better": True, "disable_tqdm": True, "predict_with_generate": False}
    found = read(tmp_path, study)
    check_study(found, parsers)
    step = next(step for step in Plan(found, tmp_path, tmp_path).jobs()[0].steps if step.command == "train")
    said = vars(parsers["train"].parse_args(step.words()))
    assert (said["greater_is_better"], said["disable_tqdm"], said["predict_with_generate"]) == (True, True, False)


def test_mappings_are_merged_and_null_is_no_option(tmp_path, study):
    path = tmp_path / "merged.yaml"
    path.write_text("a: &a {b: 1, c: 2}\nd: {<<: *a, c: 3}\n")
    assert load_yaml(path)["d"] == {"b": 1, "c": 3}
    study["evaluate"] = {"metrics": None, "tokenize": "none"}
    assert read_study(write_study(path, study)).sections["evaluate"] == {"tokenize": "none"}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("sedes", [1], "two.yaml has 'sedes'; allowed are 'title'"),
        ("title", 3, "two.yaml.title is 3; it must be text"),
        ("seeds", 1, "two.yaml.seeds is 1; it must be a list"),
        ("seeds", [1, "two"], r"rows\[0\].seeds\[1\] is 'two'; it must be an integer"),
        ("seeds", [1, 1], r"seeds is \[1, 1\]; they must differ"),
        ("seeds", [1, -1], r"seeds is \[1, -1\]; they must be from 0 to 4,294,967,295"),
        ("seeds", [True], r"seeds\[0\] is True; it must be an integer"),
        ("rows", [], "rows is empty"),
        ("rows.0.metod", "x", r"rows\[0\] has 'metod'; allowed are 'name', 'method'"),
        ("rows.0.name", "student", "rows has 'student' twice"),
        ("rows.0.name", "a/b", "the name 'a/b' must be up to 100 letters, digits"),
        ("rows.0.teacher", "student", "the row 'plain' learns from itself: plain <- student <- plain"),
        ("rows.0.grid", {"dropout": [0.1, 0.2]}, "name is 'plain'; by its grid, it must have {dropout} in it"),
        ("rows.0.name", "plain-{dropout}", "by its grid, it must have nothing in braces in it"),
        ("baseline", "nobody", "baseline is 'nobody'; the rows are plain, student"),
        ("rows.0.start", "student", "the row 'plain' learns from itself: plain <- student <- plain"),
        (
            "rows.1",
            {"name": "b", "method": "gdr", "start": "plain", "seeds": [1, 2]},
            "'b' has seeds ",
        ),
        ("tokenizer", "bpe", "two.yaml: tokenizer is 'bpe', beside which the section train_tokenizer trains none; lea"),
        (
            "rows.1",
            {"name": "b", "method": "gdr", "start": "plain", "size": "big"},
            r"rows\[1\].size is 'big', but start is 'plain', whose model has one already; leave out size",
        ),
        ("rows.1.against", ["nobody"], "'student': against is 'nobody'; the rows are plain, student"),
        ("rows.1.against", "plain", "rows.1..against is 'plain'; it must be a list"),
        ("rows.1.against", ["student"], "'student' is against itself"),
        ("questions", {"q": {"asks": "?", "rows": ["plain"]}}, "questions.q lacks 'effect', which must be a number"),
        (
            "questions",
            {"q": {"asks": "?", "effect": 0, "rows": ["plain"]}},
            "questions.q.effect is 0; it must be above",
        ),
        ("questions", {"q": {"asks": "?", "effect": 1, "rows": ["x"]}}, "questions.q.rows is 'x'; the rows are plain"),
        (
            "questions",
            {"q": {"asks": "?", "effect": 1, "rows": ["plain"], "against": ["x"]}},
            "questions.q.against is 'x'; the rows are plain",
        ),
        (
            "questions",
            {"q": {"asks": "?", "effect": 1, "rows": ["plain"]}},
            "questions.q.rows has 'plain', which it is compared with; leave it out",
        ),
        ("rows.0.grid", {"dropout": 0.1}, "grid.dropout is 0.1; it must be a list"),
        ("rows.0.published", {"tset": 27.3}, r"published has 'tset'; allowed are 'test'"),
        ("rows.0.published", {"test": "27.3"}, "published.test is '27.3'; it must be a number"),
        ("data.dataset_name", "wmt/wmt14", "must have either train_file or dataset_name"),
        ("data", {"dataset_name": "x", "source_lang": "en"}, "needs target_lang"),
        ("tests", {}, "tests is empty"),
        (
            "tests.test",
            "test.en",
            "tests.test is 'test.en', the name of a split, but data has no dataset_name; name",
        ),
        ("tests.test", ["one"], r"is \['one'\]; it must be a split, or a source file and its references"),
        ("figures", {"f": {"rows": ["*"], "x": "y"}}, "figures.f lacks 'test', which must be text"),
        ("figures", {"f": {"rows": ["*"], "x": "y", "test": "t"}}, "figures.f.test is 't'; allowed are 'test'"),
        ("cost", {"gpus": 8}, "cost lacks 'gpu'"),
        ("cost", {"gpus": 10**400, "gpu": "P40"}, "cost.gpus is 1(0)+; it must be above 0 and below 1,000,000"),
        ("cost", {"gpus": 8, "gpu": "P40", "updates_per_second": 0}, "cost.updates_per_second is 0; it must be above"),
        ("rows.0.mixed_precision", "half", r"rows\[0\].mixed_precision is 'half'; allowed are no, bf16, fp16"),
        ("rows.0.updates_per_second", float("nan"), r"rows\[0\].updates_per_second is nan; it must be above 0"),
        ("figures", {"f": {"rows": ["*"], "x": "y", "test": "t", "log": 1}}, "figures.f.log is 1; it must be the base"),
        ("rows.0.name", "a" * 5000, f"the name '{'a' * 79} must be up to 100 letters, digits and"),
        ("rows.0.name", "{a}" * 1700, r"rows\[0\].name is '({a}){26}{ ?; by its grid"),
        ("rows.0.name", "a}", "two.yaml: .* the name 'a}' must be up to"),
        ("rows.0", {**GRID, "name": "a-{dropout"}, r"two.yaml: rows\[0\].name is 'a-{dropout'; by its grid"),
        ("rows.0", {**GRID, "name": "a-{dro{dropout}"}, "two.yaml: .* the name 'a-{dro0.1' must be up to"),
        ("rows.0", {**GRID, "name": "a-{dropout:9999999999}"}, "by its grid, it must have {dropout} in it"),
        ("rows.0", {**GRID, "grid": {"dropout": []}}, "grid.dropout is empty, so that there is no row"),
        ("rows.0", {**GRID, "grid": {"dropout": list(range(2000))}}, "rows has more than 1000 rows"),
        ("rows.0.grid", {5: [1], "a": [2]}, "grid has the key 5; it must be text"),
        ("tests", {"a\nb": ["one"]}, r"two.yaml: tests: the name 'a\\nb' must be up to"),
    ],
)
def test_mistakes_of_structure(tmp_path, study, key, value, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, changed(study, key, value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: a\ntitle: b\n", "'title' comes twice"),
        ("title: [", "holds no YAML"),
        (BOMB, "more than 100000 values"),
        ("a: &a [*a]\n", "an alias stands for what it is in"),
        ("[" * 5000, "nested too deeply"),
        ("title: " + "1" * 5000, "holds no YAML"),
        ("- a\n", r"is \['a'\]; it must be a mapping"),
        ("title: a\n", "lacks 'data', which must be a mapping"),
    ],
)
def test_files_that_are_none(tmp_path, text, message):
    (tmp_path / "two.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_study(tmp_path / "two.yaml")
    with pytest.raises(FileNotFoundError, match=r"absent\.yaml is not a file"):
        read_study(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "rows.0.method",
            "transfomer",
            "two: the row 'plain': method is 'transfomer'; allowed are 'transformer', 'lin",
        ),
        ("rows.0.size", "huge", "the row 'plain': size is 'huge'; allowed are 'tiny', 'base', 'big'"),
        (
            "rows.0.config",
            {"d_modle": 1},
            "MarianConfig has no field 'd_modle'; did you mean d_model",
        ),
        ("rows.0.config", {"d_model": "x"}, "the row 'plain': d_model is 'x'; allowed are"),
        ("rows.1.config", {"num_sentence_capsules": 0}, "the row 'student': num_sentence_capsules is 0; allowed are"),
        ("train.max_step", 3, "two: train has the option 'max_step'; allowed are accelerator_config, activation"),
        ("rows.0.train", {"seed": 3}, "the row 'plain' has the option 'seed'; allowed are"),
        ("train.max_steps", "many", "two: plain, seed 1: train: argument --max_steps.*: invalid int value: 'many'"),
        ("train.save_minutes", -1, "train: save_minutes is -1.0; it must be more than 0"),
        ("train.label_smoothing_factor", 0.1, "label_smoothing_factor is 0.1: with it the Trainer drops"),
        ("translate.beams", 5, "two: translate has the option 'beams'; allowed are device, documents, dtype"),
        ("translate.model", "x", "two: translate has the option 'model'"),
        ("translate.num_beams", "five", "argument --num_beams: invalid int value: 'five'"),
        ("translate.num_beams", 0, "argument --num_beams: 0 is too small; it must be at least 1"),
        ("average_checkpoints", {"last": 0}, "argument --last: 0 is too small; it must be at least 1"),
        ("evaluate.tokenize", "moses", "two: plain, seed 1: evaluate: unknown tokenizer 'moses'; sacreBLEU has"),
        ("evaluate.source_tokenize", "words", "evaluate: unknown tokenizer 'words'"),
        ("evaluate.metrics", ["bleu", "comet"], "evaluate: unknown metric 'comet'; there are bleu"),
        (
            "translate",
            {"dtype": "int8", "engine": "transformers"},
            "plain, seed 1: translate: dtype int8 is for engine fast alone; engine transformers has float32",
        ),
        (
            "rows.1",
            {"name": "b", "method": "transformer"},
            "two: no row has a teacher, to translate as distill says; leave out distill",
        ),
        ("evaluate.length_edges", [20, 10], "evaluate: the edges of buckets are 20 10; they must rise"),
        ("evaluate.lowercase", False, "two: evaluate has lowercase: false, which no option can say"),
        (
            "figures",
            {"f": {"rows": ["*"], "x": "d_model", "test": "test", "series": "d_model"}},
            "figures.f.rows has 'plain' and 'student' at the same place; leave one out, or name",
        ),
        ("figures", {"f": {"rows": ["em-*"], "x": "d_model", "test": "test"}}, "figures.f.rows has 'em-"),
        ("figures", {"f": {"rows": ["plain"], "x": "deepness", "test": "test"}}, "figures.f.x is 'deepness', which tr"),
        (
            "figures",
            {"f": {"rows": ["plain"], "x": "activation_function", "test": "test"}},
            "figures.f.x is 'activation_function', which is 'relu' of 'plain'; it must be a number",
        ),
        (
            "figures",
            {"f": {"rows": ["plain"], "x": "d_model", "test": "test", "baseline": "z"}},
            "figures.f.baseline is 'z'",
        ),
        ("evaluate.metrics", ["chrf"], r"two: evaluate.metrics is \['chrf'\]; the tables need bleu among them"),
        ("average_checkpoints.best", 2, "not allowed with argument"),
        ("average_checkpoints", {"best": 2}, "'plain': average_checkpoints has best 2, but without eval_strategy in"),
        ("average_checkpoints", {}, "two: plain, seed 1: average_checkpoints: --run_dir needs --last N or --best N"),
        ("average_checkpoints.metric", "bleu", "average_checkpoints: --metric and --greater_is_better belong to --be"),
        (
            "rows.0",
            {"name": "plain", "method": "gdr", "mixed_precision": "no", "train": {"bf16": True}},
            "two: the row 'plain': mixed_precision is 'no', but bf16 is true in train, which would decide; leave out",
        ),
        (
            "average_checkpoints.last",
            5,
            "'plain': average_checkpoints has 5 checkpoints, which 8 updates and save_step",
        ),
        (
            "average_checkpoints.last",
            [5],
            "'plain': average_checkpoints has 5 checkpoints, which 8 updates and save_steps",
        ),
        ("train.save_total_limit", [1], "save_strategy steps and save_total_limit 1 do not"),
        (
            "rows.1.train",
            {"max_steps": 100, "save_steps": None, "save_total_limit": 1},
            "'student': average_checkpoints",
        ),
        ("train.save_steps", [], "argument --save_steps.*: expected one argument"),
        ("evaluate.metrics", 5, "two: evaluate.metrics is 5; the tables need bleu among them"),
        ("evaluate.test", "sign", "two: evaluate has the option 'test'; allowed are adequacy, "),
        ("evaluate.length_figure", "lengths.png", "two: evaluate has the option 'length_figure'"),
        ("train.save_total_limit", 1, "has 2 checkpoints, which save_strategy steps and save_total_limit 1 do not"),
        (
            "rows.1.train",
            {"save_strategy": "no"},
            "'student': average_checkpoints has 2 checkpoints, which save_strate",
        ),
    ],
)
def test_mistakes_of_values(tmp_path, study, parsers, key, value, message):
    with pytest.raises(ValueError, match=message):
        check_study(read(tmp_path, changed(study, key, value)), parsers)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"method": "gdr"}, None),
        ({"method": "transformer", "config": {"d_model": 16, "dropout": 0.2}}, None),
        ({"method": "em-routing", "start": "guided"}, "method is 'em-routing', but start is 'guided', whose model has"),
        ({"method": "gdr", "start": "guided"}, None),
        ({"method": "rnmt-gdr"}, "method is 'rnmt-gdr', which no model of type 'capsule_aggregated_marian' can become"),
        ({"method": "gdr", "config": {"d_model": 32}}, "d_model is 32, but start is 'plain', whose weights are of d"),
        (
            {"method": "gdr", "start": "guided", "config": {"encoder_layers": 2}},
            "of encoder_layers 4; leave out enc",
        ),
        ({"method": "gdr", "start": "other", "config": {"d_model": 32}}, None),
    ],
)
def test_what_a_row_can_begin_with(tmp_path, study, parsers, row, message):
    """It is known before the row that it starts from is trained, as far as that does not start from elsewhere."""
    study["rows"][1:] = [
        {"name": "on", "start": "plain", **row},
        {"name": "guided", "method": "gdr", "start": "plain"},
        {"name": "other", "method": "transformer", "start": "company/model"},
    ]
    del study["distill"]
    found = read(tmp_path, study)
    with nullcontext() if message is None else pytest.raises(ValueError, match=f"two: the row 'on': .*{message}"):
        check_study(found, parsers)


def test_a_configuration_that_cannot_be_made_of_what_is_taken_over(tmp_path, study, parsers):
    """Of the row that has it, whoever starts from it: of the preset's width it would do."""
    study["rows"][1:] = [
        {"name": "on", "method": "gdr", "start": "guided"},
        {"name": "guided", "method": "gdr", "start": "plain", "config": {"encoder_attention_heads": 32}},
    ]
    del study["distill"]
    with pytest.raises(ValueError, match="two: the row 'guided': encoder_attention_heads is 32; allowed are"):
        check_study(read(tmp_path, study), parsers)


def test_a_model_that_a_row_cannot_begin_with(tmp_path, study):
    for name in ("train.en", "train.de", "test.en", "test.de"):
        (tmp_path / name).touch()
    guided = str(tmp_path / ("g" * 100) / "guided")
    preset_config("gdr", "tiny").save_pretrained(guided)
    study["rows"] = [{"name": "on", "method": "em-routing", "start": guided}]
    plan = Plan(read(tmp_path, study), tmp_path / "runs", tmp_path)
    said = f"two: the row 'on': method is 'em-routing', but start is {guided!r}, whose model has one already"
    with pytest.raises(ValueError, match=re.escape(said)):
        check_files(plan, plan.jobs())


def test_a_tokenizer_that_is_none(tmp_path, study):
    for name in ("train.en", "train.de", "test.en", "test.de"):
        (tmp_path / name).touch()
    del study["train_tokenizer"]
    plan = Plan(read(tmp_path, study | {"tokenizer": "nowhere"}), tmp_path / "runs", tmp_path)
    with pytest.raises(ValueError, match="two: tokenizer is 'nowhere', which is neither a folder with a tokenizer"):
        check_files(plan, plan.jobs())


def test_a_row_that_answers_needs_seeds_of_the_baseline(tmp_path, study):
    study["rows"][1]["seeds"] = [1, 2]
    assert read(tmp_path, study).rows[1].seeds == (1, 2)
    study["questions"] = {"q": {"asks": "?", "effect": 1, "rows": ["student"]}}
    message = r"'student' has seeds \(1, 2\), but 'plain', which it is compared with by the"
    with pytest.raises(ValueError, match=message):
        read(tmp_path, study)
    study["rows"].append({**study["rows"][1], "name": "other"})
    study["questions"]["q"] = {"asks": "?", "effect": 1, "rows": ["student"], "against": ["other", "plain"]}
    study["rows"][1]["against"] = ["other"]
    with pytest.raises(ValueError, match=message):
        read(tmp_path, study)


def test_records_of_one_name(tmp_path, study, parsers):
    study["seeds"] = [1, 2]
    study["rows"].append({**study["rows"][0], "name": "plain_seed2"})
    with pytest.raises(ValueError, match="a record of 'plain_seed2, seed 1' and of 'plain, seed 2'; rename a row"):
        check_study(read(tmp_path, study), parsers)


def test_the_example_in_the_docstring_is_a_study(tmp_path):
    (tmp_path / "two.yaml").write_text(study_file.__doc__.partition("\n\n")[2])
    assert read_study(tmp_path / "two.yaml").questions[0].asks == "Does guided routing help?"


def test_missing_files(tmp_path, study):
    plan = Plan(read(tmp_path, study), tmp_path / "runs", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"two: data\.train_file names .*train\.en, which is not a file"):
        check_files(plan, plan.jobs())
    for name in ("train.en", "train.de", "test.en", "test.de"):
        (tmp_path / name).touch()
    check_files(plan, plan.jobs())
    with pytest.raises(FileNotFoundError, match=r"'student' has the teacher 'plain', whose model is not in .*average"):
        check_files(plan, plan.jobs()[1:])
    for key in ("start", "teacher"):
        plan = Plan(read(tmp_path, changed(study, f"rows.1.{key}", "no/model")), tmp_path / "runs", tmp_path)
        with pytest.raises(
            OSError, match=rf"'student' (starts from|has the {key}) no/model is no folder here, and the"
        ):
            check_files(plan, plan.jobs())
    plan = Plan(read(tmp_path, changed(study, "tests.test.1", "absent.de")), tmp_path / "runs", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"two: tests\.test names absent\.de"):
        check_files(plan, plan.jobs())
