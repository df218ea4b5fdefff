"""`--import` runs Python code of the user, with routings and aggregations that the package does not have."""

import importlib
import re
import sys

import pytest
from tiny_run import arguments

import hf_capsule_mt_command as door
from hf_capsule_mt.cli import average_checkpoints, train, translate
from hf_capsule_mt.cli.common import import_code
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import read_json
from hf_capsule_mt.modeling.routing import ROUTINGS
from hf_capsule_mt.modeling.streams import STREAMS

ROUTING = """
from hf_capsule_mt.modeling.routing import ROUTINGS, RoutingAlgorithm, simple_routing


def halves(votes, num_iterations=3, mask=None, return_all_coefficients=False):
    return simple_routing(votes / 2, num_iterations, mask, return_all_coefficients)


ROUTINGS["halves_of_user"] = RoutingAlgorithm(halves)
"""
STREAM = """
from hf_capsule_mt.modeling.streams import STREAMS, Stream


class Halves(Stream):
    def __init__(self, config, num_layers, side):
        super().__init__()

    def read(self, state, layer):
        return state / 2


STREAMS["halves_of_user"] = Halves
"""
AT_LAYERS = ["layer_aggregation_place=layers"]
KINDS = {"routing": (ROUTING, ROUTINGS, []), "stream": (STREAM, STREAMS, AT_LAYERS)}


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A file that enters a routing. What it changes in this process ends with the test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "routing_of_user", None)
    del sys.modules["routing_of_user"]
    for known in (ROUTINGS, STREAMS):
        monkeypatch.setitem(known, "halves_of_user", None)
        del known["halves_of_user"]
    file = tmp_path / "routing_of_user.py"
    file.write_text(ROUTING)
    return file


def required_options(parser):
    """The options that a command cannot do without, each with a value."""
    required = [action for action in parser._actions if action.required]
    required += [group._group_actions[0] for group in parser._mutually_exclusive_groups if group.required]
    words = []
    for action in required:
        words += [action.option_strings[0], "x"]
    return words


@pytest.mark.parametrize("name", sorted({*door.COMMANDS} - {"train", "train_tokenizer", "quickstart"}))
def test_every_command_that_makes_a_model_runs_the_code_first(name, tmp_path, monkeypatch, capsys):
    """Training is below."""
    monkeypatch.chdir(tmp_path)
    command = importlib.import_module(f"hf_capsule_mt.cli.{name}")
    with pytest.raises(SystemExit, match="2"):
        command.main(["--import", "none.py", *required_options(command.build_parser())])
    assert "error: --import: there is no file none.py." in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_trained_averaged_and_translates_with_code_of_the_user(
    kind, code, corpus, tmp_path, monkeypatch, capsys
):
    text, known, place = KINDS[kind]
    code.write_text(text)
    run = tmp_path / "run"
    options = {"import": code, "method": "transformer", "save_strategy": "steps", "save_steps": 1}
    train.main(arguments(corpus, run, "layer_aggregation=halves_of_user", *place, **options))
    assert "halves_of_user" in known
    record = read_json(run / "run_record.json")
    assert f"--import {code}" in record["command"]
    assert record["own_aggregations"] == {"layer_aggregation": "routing_of_user"}
    assert "import routing_of_user  # not in this repository\n" in (run / "README.md").read_text()

    def forget():
        monkeypatch.delitem(known, "halves_of_user")
        monkeypatch.delitem(sys.modules, "routing_of_user")

    average = tmp_path / "average"
    forget()
    average_checkpoints.main(
        ["--import", str(code), "--run_dir", str(run), "--last", "2", "--output_dir", str(average)]
    )
    sources = tmp_path / "sources"
    sources.write_text("a b c\n")
    words = ["--model", str(average), "--input_file", str(sources)]
    forget()
    with pytest.raises(SystemExit, match="2"):
        translate.main(words)
    assert re.search("There is no layer_aggregation .*'halves_of_user'", capsys.readouterr().err)
    translate.main([*words, "--import", str(code)])
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_file_runs_once_and_finds_its_neighbours(code, monkeypatch):
    (code.parent / "neighbour_of_user.py").write_text("count = 0")
    code.write_text("import neighbour_of_user\nneighbour_of_user.count += 1\n")
    import_code([str(code), str(code)])
    assert sys.modules.pop("neighbour_of_user").count == 1


def test_no_file_takes_the_place_of_a_module(code):
    for name in ("json", "my.routing", "my-routing"):
        file = code.with_name(f"{name}.py")
        file.write_text("raise SystemExit('It ran.')")
        with pytest.raises(UserError, match="Give the file another name"):
            import_code([str(file)])


def test_code_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        import_code([str(tmp_path / "none.py")])
    for name in ("no_module_of_user", "json.no_module_of_user"):
        with pytest.raises(UserError, match=f"there is no module {name}"):
            import_code([name])


@pytest.mark.parametrize("name", ["", ".mine", "my-routing", "a..b"])
def test_what_is_no_name_of_a_module(name):
    with pytest.raises(UserError, match="is no name of a module"):
        import_code([name])


def test_an_error_of_the_code_keeps_its_traceback(code):
    code.write_text("import no_module_of_user")
    for name in (str(code), code.stem):
        with pytest.raises(ModuleNotFoundError, match="'no_module_of_user'"):
            import_code([name])
