"""Help and mistakes in options are answered before torch and Transformers are imported, which takes seconds."""

import logging
import subprocess
import sys
from argparse import SUPPRESS
from dataclasses import fields
from importlib import import_module

import pytest
from transformers import Seq2SeqTrainingArguments

import hf_capsule_mt_command as door
from hf_capsule_mt.cli import train
from hf_capsule_mt.cli.options import train_options
from hf_capsule_mt.configuration.presets import METHODS, SIZES, method_config_class, preset_config
from hf_capsule_mt.evaluation.adequacy import ALIGNERS
from hf_capsule_mt.evaluation.significance import TESTS
from hf_capsule_mt.evaluation.term_scores import MODES
from hf_capsule_mt.hub.exporting import DTYPES, PROGRAMS
from hf_capsule_mt.registration import _without_news_of_torchao
from hf_capsule_mt.training.options import TrainingOptions
from hf_capsule_mt.translation.generation.settings import ENGINES

WITHOUT_LIBRARIES = '''
import sys
from importlib.machinery import PathFinder


class Refusal:
    """Libraries are found, but cannot be imported."""

    def find_spec(self, name, path=None, target=None):
        if name not in ("torch", "transformers"):
            return None
        spec = PathFinder.find_spec(name, path)
        spec.loader = self
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        raise RuntimeError(f"{module.__name__} is imported")


sys.meta_path.insert(0, Refusal())
import hf_capsule_mt_command as door

for line in sys.stdin:
    try:
        door.main(line.split())
    except SystemExit as end:
        print("status", end.code)
    sys.stdout.flush()
    print("end", file=sys.stderr, flush=True)
'''
MISTAKES = {
    "trian --help": "There is no command trian. Did you mean train?",
    "train": "Give either --train_file or --dataset_name.",
    "train --max_steps many": "invalid int value: 'many'",
    "train --method em-ruoting": "Did you mean em-routing?",
    "train --adam_beta_1 0.9": "There is no option --adam_beta_1. Did you mean --adam_beta1?",
    "translate --modle x": "There is no option --modle. Did you mean --model?",
    "translate --model x --dtype int": "Did you mean int8?",
    "translate --num_beams x": "invalid int value: 'x'",
    "evaluate --significance bootstarp": "Did you mean bootstrap?",
    "analyze": "required: --input_file, --output_dir, --model",
}


def run_without_libraries(lines):
    command = [sys.executable, "-c", WITHOUT_LIBRARIES]
    return subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=300)


def test_help_needs_no_library():
    result = run_without_libraries([f"{name} --help" for name in door.COMMANDS])
    assert result.stderr.replace("end\n", "") == ""
    assert result.stdout.count("usage: hf-capsule-mt ") == len(door.COMMANDS)
    assert result.stdout.count("status 0") == len(door.COMMANDS)


def test_mistakes_need_no_library():
    unknown = {f"{name} --qqq": "There is no option --qqq. See --help." for name in door.COMMANDS}
    result = run_without_libraries([*MISTAKES, *unknown])
    answers = result.stderr.split("end\n")
    assert result.stdout.splitlines() == ["status 2"] * len(answers[:-1])
    for (line, expected), answer in zip({**MISTAKES, **unknown}.items(), answers, strict=False):
        assert answer.startswith("error: "), line
        assert answer.count("\n") == 1
        assert expected in answer


def test_the_command_as_a_module_reads_options_first():
    command = [sys.executable, "-X", "importtime", "-m", "hf_capsule_mt_command", "translate", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = [line.rpartition("|")[2].strip() for line in result.stderr.splitlines()]
    assert "hf_capsule_mt.cli.parser" in modules
    assert "transformers" not in modules


@pytest.mark.parametrize("line", ["translate --model x", "train --help_all", "train --adam_beta1 0.9"])
def test_what_needs_libraries(line):
    """So that the tests above cannot pass by accident."""
    assert "is imported" in run_without_libraries([line]).stderr


def test_the_package_has_its_models_again_when_options_are_read():
    """Also its public names, which a file of the user may need."""
    code = (
        "import hf_capsule_mt_command as door; door._check_options('translate', ['--model', 'x']); "
        "import hf_capsule_mt; from transformers import AutoConfig; print(hf_capsule_mt.METHODS[0]); "
        "import hf_capsule_mt.registration; print(AutoConfig.for_model('caps_nmt').model_type)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["transformer", "caps_nmt"]


def test_a_program_goes_on_after_help():
    code = (
        "import hf_capsule_mt_command as door\n"
        "try: door.main(['translate', '--help'])\n"
        "except SystemExit: pass\n"
        "import hf_capsule_mt; from transformers import AutoConfig\n"
        "print(AutoConfig.for_model('caps_nmt').model_type)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split()[-1] == "caps_nmt"


def actions_of(parser):
    return {action.dest: action for action in parser._actions}


def choices(command, option):
    return tuple(actions_of(import_module(f"hf_capsule_mt.cli.{command}").build_parser())[option].choices)


def test_choices_are_what_the_package_has():
    assert choices("translate", "engine") == tuple(ENGINES)
    assert choices("evaluate", "significance") == tuple(TESTS)
    assert choices("evaluate", "aligner") == tuple(ALIGNERS)
    assert choices("evaluate", "term_mode") == tuple(MODES)
    assert choices("export", "format") == tuple(PROGRAMS)
    assert choices("export", "dtype") == DTYPES


def test_methods_and_sizes_are_those_of_the_presets():
    presets = import_module("hf_capsule_mt.configuration.presets")
    assert tuple(presets._METHODS) == METHODS
    for method in METHODS:
        for size in SIZES:
            assert isinstance(preset_config(method, size), method_config_class(method))


def test_train_knows_the_same_options_before_and_after():
    parser = train.build_parser()
    known = {name for action in parser._actions for name in action.option_strings}
    assert known - {"-h", "--help", "--help_all"} <= {
        *train_options._names_in_transformers(),
        *(name for action in train_options.build_parser()._actions for name in action.option_strings),
    }
    # Names with no_ are right only for flags. The parser with all options refuses the others.
    written = {name for name in train_options._names_in_transformers() if not name.startswith(("--no_", "--no-"))}
    private = {name for name in written if name.startswith(("--_", "--n_gpu", "---"))}
    assert written - private <= known


def test_train_has_the_same_help_before_and_after(capsys):
    for build in (train_options.build_parser, train.build_parser):
        with pytest.raises(SystemExit, match="0"):
            build().parse_args(["--help"])
    output = capsys.readouterr().out
    first = output[: len(output) // 2]
    assert output == 2 * first
    assert "--max_tokens_per_batch N" in first


@pytest.mark.parametrize(
    "name",
    [
        *("output_dir", "max_steps", "num_train_epochs", "eval_strategy", "eval_steps", "save_strategy", "save_steps"),
        *("bf16", "use_cpu", "push_to_hub", "hub_model_id", "gradient_accumulation_steps", "resume_from_checkpoint"),
    ],
)
def test_options_with_words_of_their_own_have_the_defaults_of_transformers(name):
    def defaults(options):
        return {field.name: field.default for field in fields(options)}

    assert defaults(TrainingOptions)[name] == defaults(Seq2SeqTrainingArguments)[name]


def test_choices_of_strategies_are_those_of_transformers():
    parser = train_options.HfArgumentParser(Seq2SeqTrainingArguments)
    own = actions_of(train_options.build_parser())
    for name in ("eval_strategy", "save_strategy"):
        assert tuple(own[name].choices) == tuple(actions_of(parser)[name].choices)
        assert own[name].help != SUPPRESS


def test_only_known_lines_of_torchao_are_kept_away(caplog):
    torchao = logging.getLogger("torchao")
    with _without_news_of_torchao():
        torchao.warning("Failed to load a.so: Could not load this library")
        torchao.warning("Weights are not quantized")
    torchao.warning("Failed to load b.so")
    assert [record.getMessage() for record in caplog.records] == ["Weights are not quantized", "Failed to load b.so"]


@pytest.mark.parametrize("code", ["import hf_capsule_mt", "import hf_capsule_mt as package; package.pipeline"])
def test_an_import_says_nothing(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout + result.stderr == ""
