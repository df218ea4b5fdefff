"""The command `hf-capsule-mt`, and what all commands have in common: their parser and their end."""

import ast
import errno
import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_simple_launcher_cmd_env
from huggingface_hub.errors import StrictDataclassClassValidationError

import hf_capsule_mt
import hf_capsule_mt_command as door
from hf_capsule_mt.cli import common, translate
from hf_capsule_mt.cli.common import (
    check_new_folder,
    check_output_file,
    check_output_folder,
    report_user_errors,
    usable_device,
    warn_if_busy,
)
from hf_capsule_mt.cli.parser import CommandParser, at_least, finite
from hf_capsule_mt.errors import UserError

FILES = {
    *("--train_file", "--validation_file", "--dataset_name", "--input_file", "--references", "--hypotheses"),
    *("--checkpoints", "--run_dir", "--repo_id", "--output_file", "--output_dir", "--overwrite_output_dir"),
}
"""Options that name what a command reads and writes."""
MODULES = Path(hf_capsule_mt.__file__).parent / "cli"


def has_main(module):
    return any(getattr(node, "name", None) == "main" for node in ast.parse(module.read_text()).body)


def test_every_command_is_listed_once():
    commands = [module.stem for module in MODULES.glob("*.py") if has_main(module)]
    assert sorted(commands) == sorted(door.COMMANDS)


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_the_list_of_commands(capsys, words):
    door.main(words)
    lines = capsys.readouterr().out.splitlines()
    for name in door.COMMANDS:
        [line] = [line for line in lines if line.split()[:1] == [name]]
        summary = line.split(maxsplit=1)[1]
        assert summary.endswith(".")
        assert len(summary) <= 80
    assert [line[:-1] for line in lines if line.endswith(":")] == list(door.GROUPS)


def test_the_list_needs_no_library():
    code = "import sys, hf_capsule_mt_command as door; door.main([]); door.main(['--version']); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *_, version, modules = result.stdout.splitlines()
    assert version == f"hf-capsule-mt {hf_capsule_mt.__version__}"
    assert not {"torch", "transformers", "hf_capsule_mt"} & set(modules.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_completion(capsys):
    door.main(["--completion", "bash"])
    script = capsys.readouterr().out
    for words, expected in (("train_t", "train_tokenizer"), ("train --max_st", "--max_steps")):
        line = f"COMP_WORDS=(hf-capsule-mt {words}); COMP_CWORD={len(words.split())}; _shtab_hf_capsule_mt"
        code = f"{script}\n{line} hf-capsule-mt {words.split()[-1]} x; echo ${{COMPREPLY[@]}}"
        assert (
            expected in subprocess.run(["bash"], input=code, capture_output=True, text=True, check=True).stdout.split()
        )


def test_an_unknown_command(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["hf_capsule_mt", "train-tokenizer"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module("hf_capsule_mt", run_name="__main__")
    assert "train-tokenizer" in capsys.readouterr().err


def test_hyphens_will_do_for_underscores(capsys):
    parser = CommandParser("Does nothing.")
    parser.add_argument("--input_file")
    for words in (["--input-file", "a-b"], ["--input-file=a-b"], ["--input_file", "a-b"]):
        assert parser.parse_args(words).input_file == "a-b"
    # Not of the beginning of an option.
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--input=a"])
    assert capsys.readouterr().err == "error: There is no option --input. Did you mean --input_file?\n"


def groups_of(name):
    """The options of each group in the help of a command, by its title."""
    parser = importlib.import_module(f"hf_capsule_mt.cli.{name}").build_parser()
    groups, title = {}, None
    for line in parser.format_help().splitlines():
        if re.fullmatch(r"\w[\w ]*:", line):
            title = line[:-1]
        elif match := re.match(r"  (?:-h, )?(--\w+)", line):
            groups.setdefault(title, []).append(match[1])
    return groups


@pytest.mark.parametrize("name", list(door.COMMANDS))
def test_options_stand_in_groups(name):
    """Input and output first, and how models decode last. Only --help stands in no group."""
    groups = groups_of(name)
    assert {*groups.pop("options")} <= {"--help", "--help_all"}
    assert max(map(len, groups.values())) <= 15 or name == "train"
    first, *others = groups
    assert first == ("models" if name in ("serve", "demo") else "input and output")
    for title in others:
        assert not FILES & {*groups[title]}
    assert not {"decoding", "computing"} & {*others[:-1]}


# Most options of train are Transformers' own.
@pytest.mark.parametrize("name", [name for name in door.COMMANDS if name != "train"])
def test_help_of_an_option_is_short(name):
    parser = importlib.import_module(f"hf_capsule_mt.cli.{name}").build_parser()
    formatter = parser._get_formatter()
    for action in parser._actions:
        assert len(formatter._expand_help(action)) <= 200, action.option_strings


def test_help_names_what_is_required_and_what_values_are():
    parser = CommandParser("Does nothing.")
    parser.add_argument("--input_file", type=Path, required=True, help="Text.")
    parser.add_argument("--output_dir", type=Path, help="Folder of texts.")
    parser.add_argument("--target_lang", help="Language.")
    parser.add_argument("--steps", type=at_least(1), help="Steps.")
    parser.add_argument("--rate", type=finite, help="Rate.")
    parser.add_argument("--glossary", metavar="TERMS", help="Terms.")
    parser.add_argument("--flag", action="store_true", help="Flag.")
    lines = [" ".join(line.split()) for line in parser.format_help().splitlines()]
    assert lines[-8:] == [
        "--input_file FILE Text. Required.",
        "--output_dir FOLDER Folder of texts.",
        "--target_lang LANGUAGE",
        "Language.",
        "--steps N Steps.",
        "--rate NUMBER Rate.",
        "--glossary TERMS Terms.",
        "--flag Flag.",
    ]


@pytest.mark.parametrize("name", list(door.COMMANDS))
def test_an_unknown_option_is_named_before_those_that_are_missing(capsys, name):
    command = importlib.import_module(f"hf_capsule_mt.cli.{name}")
    with pytest.raises(SystemExit, match="2"):
        command.main(["--foo", "3"])
    assert "error: There is no option --foo." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--model_name_or_path", "x"], "--model_name_or_path. Did you mean --model?"),
        (["--model-name-or-path=x"], "--model-name-or-path. Did you mean --model?"),
        (["--inputfile", "x"], "--inputfile. Did you mean --input_file?"),
        (["--keep", "--x y", "--qqq"], "--qqq. See --help."),
    ],
)
def test_the_right_option(capsys, words, remedy):
    with pytest.raises(SystemExit, match="2"):
        translate.main(words)
    assert capsys.readouterr().err.endswith(f"error: There is no option {remedy}\n")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_no_finite_number(capsys, value):
    with pytest.raises(SystemExit, match="2"):
        translate.main(["--model", "x", f"--length_penalty={value}"])
    assert f"--length_penalty: {value} is no finite number" in capsys.readouterr().err


def wrong_field():
    """What a configuration raises for a wrong value. Its own text has two lines."""
    cause = ValueError("it is wrong")
    error = StrictDataclassClassValidationError("validate_sizes", cause)
    error.__cause__ = cause
    return error


OF_USER = {
    "ours": UserError("it is wrong"),
    "wrong field": wrong_field(),
    "a library's": OSError("it is wrong"),
    "of a loader": UserError("Caught OSError in worker 0.\nOriginal Traceback\nOSError: it is wrong"),
}


@pytest.mark.parametrize("error", OF_USER.values(), ids=OF_USER)
def test_a_mistake_is_one_line(capsys, error):
    """Also if a command calls another."""
    with pytest.raises(SystemExit, match="2"), report_user_errors(), report_user_errors():
        raise error
    assert capsys.readouterr().err == "error: it is wrong\n"


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOSPC])
def test_an_error_of_the_system_is_one_line(capsys, number):
    name = "file" if number == errno.ENOENT else None
    with pytest.raises(SystemExit, match="2"), report_user_errors():
        raise OSError(number, "no", name)
    assert capsys.readouterr().err.startswith(f"error: [Errno {number}] no")


def internal_error():
    list(zip([1], [1, 2], strict=True))


def closed_file():
    raise OSError(errno.EBADF, "Bad file descriptor")


def missing_key():
    return {}["no"]


@pytest.mark.parametrize("fault", [internal_error, closed_file, missing_key])
def test_a_fault_of_the_package_keeps_its_traceback(capsys, fault):
    with pytest.raises((ValueError, OSError, KeyError)), report_user_errors():
        fault()
    assert capsys.readouterr().err == ""


def test_ctrl_c_is_said_once(capsys):
    with pytest.raises(KeyboardInterrupt), report_user_errors(), report_user_errors():
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "interrupted\n"


def test_an_interruption(capsys, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupt)
    with pytest.raises(SystemExit) as exit_:
        door.main(["train"])
    assert exit_.value.code == 130
    assert capsys.readouterr() == ("", "")


def print_as_a_command():
    with report_user_errors():
        print("a")


@pytest.mark.parametrize("write", [print_as_a_command, lambda: door.main(["--help"])])
def test_nobody_reads(monkeypatch, capsys, write):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit, match="1"):
            write()
    assert capsys.readouterr().err == ""


def test_a_device_that_is_not_there():
    assert usable_device("cpu") == torch.device("cpu")
    for name in ("cuda:99", "none"):
        with pytest.raises(ValueError, match="--device"):
            usable_device(name)


@pytest.mark.parametrize("check", [check_output_file, check_new_folder, check_output_folder])
def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, check):
    monkeypatch.chdir(tmp_path)
    Path("locked").mkdir()
    # Whoever runs the tests may write everywhere.
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "locked")
    check(Path("new"))
    with pytest.raises(PermissionError, match=r"locked.* is read-only"):
        check(Path("locked/new"))


def test_folders_that_cannot_be_replaced(tmp_path, monkeypatch):
    """Before the work, which would be lost."""
    for name in ("here", "target"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    monkeypatch.chdir(tmp_path / "here")
    for path in (Path("."), tmp_path / "here", tmp_path / "link"):
        with pytest.raises(FileExistsError, match="cannot be replaced"):
            check_new_folder(path)
    check_new_folder(tmp_path / "target")


def test_files_that_are_none(tmp_path):
    """A file would take their place, for every process of the machine."""
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/null"), Path("/dev/stdout"), tmp_path / "pipe"):
        with pytest.raises(OSError, match="can be replaced"):
            check_output_file(path)
    (tmp_path / "file").touch()
    check_output_file(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        check_output_folder(tmp_path / "file/new")


def test_a_closed_standard_output_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with report_user_errors():
        print("nobody reads this")
        assert sys.stdout.writable()
        assert sys.stderr.writable()


@pytest.mark.parametrize(("reader", "message"), [("cat", "error: Another process of this command died"), ("true", "")])
def test_a_broken_pipe_is_of_the_output_or_of_another_process(reader, message):
    code = """from hf_capsule_mt.cli.common import report_user_errors
import time
with report_user_errors():
    time.sleep(1)
    raise BrokenPipeError("pipe of a worker")"""
    pipe = f"{sys.executable} -c '{code}' | {reader}; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith(message)
    assert bool(ended.stderr) is bool(message)


@pytest.mark.parametrize(
    ("load", "idle", "threads", "warns"),
    [(0.1, 1, None, False), (9.0, 1, None, True), (9.0, 1, "1", False), (9.0, 7, None, False)],
)
def test_other_programs_on_the_processors(monkeypatch, caplog, load, idle, threads, warns):
    """What made the load of the last minute may have ended."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0, 0))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(common, "idle_processors", lambda: idle)
    warn_if_busy(torch.device("cpu"))
    assert ("OMP_NUM_THREADS" in caplog.text) is warns


def test_idle_processors_are_those_of_now(monkeypatch, tmp_path):
    """User and system work, and ticks that another machine took, are no idle ones."""
    ticks = tmp_path / "stat"
    monkeypatch.setattr(common, "_TICKS", ticks)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    ticks.write_text("cpu  900 0 100 200 40 5 5 50 7 7\ncpu0 1 2 3\n")

    def passes(seconds):
        ticks.write_text("cpu  920 0 110 340 60 5 5 60 7 7\ncpu0 1 2 3\n")

    monkeypatch.setattr(common.time, "sleep", passes)
    assert common.idle_processors() == 2 * (140 + 20) / 200


def test_a_system_that_counts_no_ticks(monkeypatch, tmp_path):
    monkeypatch.setattr(common, "_TICKS", tmp_path / "absent")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.5, 0, 0))
    assert common.idle_processors() == 2.5


def test_this_machine_has_no_more_idle_processors_than_processors():
    assert 0 <= common.idle_processors() <= os.cpu_count()


def environment_of_launcher(*options):
    """What `accelerate launch` adds to the environment of a command on CPUs."""
    words = ["--mixed_precision", "no", "--dynamo_backend", "no", "--num_machines", "1", *options, "script.py"]
    args = _validate_launch_command(launch_command_parser().parse_args(words))[0]
    launched = prepare_simple_launcher_cmd_env(args)[1]
    return {name: value for name, value in launched.items() if name not in os.environ}


@pytest.mark.parametrize(("processes", "warns"), [("1", False), ("2", True)])
@pytest.mark.parametrize("device", [[], ["--cpu"]], ids=["by_itself", "cpu"])
def test_accelerate_starts_one_process_of_several(monkeypatch, caplog, processes, warns, device):
    for name, value in environment_of_launcher("--num_processes", processes, *device).items():
        monkeypatch.setenv(name, value)
    common.warn_of_one_process(1)
    assert ("torchrun --nproc_per_node 2" in caplog.text) is warns


def test_several_processes_are_no_surprise(monkeypatch, caplog):
    for name, value in environment_of_launcher("--num_processes", "2").items():
        monkeypatch.setenv(name, value)
    common.warn_of_one_process(2)
    monkeypatch.setenv("WORLD_SIZE", "1")
    common.warn_of_one_process(1)
    assert caplog.text == ""
