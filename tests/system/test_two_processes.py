"""Two processes train as one with twice the batch, and go on after a kill as if nothing had been."""

import json
from pathlib import Path

import pytest
import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from forked_commands import run_both
from safetensors.torch import load_file
from tiny_run import arguments, files, write_corpus
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt.cli.train import main
from hf_capsule_mt.training.meter import LOSS_TERMS

CONFIGURATIONS = Path(__file__).parents[2] / "scripts" / "accelerate"
# Adam would blow up the last bits of gradients near zero, unless its epsilon is large.
SGD = {"optim": "sgd", "learning_rate": 0.1}
ADAM = {"adam_epsilon": 0.1, "learning_rate": 0.1}
TOKENS = {"method": "gdr", "max_tokens_per_batch": 60, **SGD}
STREAM = {**TOKENS, "streaming": True, "shuffle_buffer": 12, "max_source_length": 20, "max_target_length": 20}
# With SGD there is no state, and torch loads none to spread.
SPREAD = {"method": "rnmt-gdr", "max_tokens_per_batch": 60, **ADAM}
TWICE = {"gradient_accumulation_steps": 2}
SAVING = {"save_strategy": "steps", "save_steps": 6}


def launched(name, *options):
    """The options of `accelerate launch` with a configuration file, as it completes them."""
    words = ["--config_file", str(CONFIGURATIONS / f"{name}.yaml"), *options, "script.py"]
    return _validate_launch_command(launch_command_parser().parse_args(words))[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of two processes: `spread`, and others, each as resumed from its checkpoint-6."""
    folder = write_corpus(tmp_path_factory.mktemp("two_processes"))
    for name, options, dropout in (("tokens", TOKENS, 0), ("stream", STREAM, 0.3)):
        train_both(options_of(folder, name, dropout, **SAVING, **options))
        checkpoint = folder / name / "checkpoint-6"
        train_both(options_of(folder, f"{name}_resumed", dropout, resume_from_checkpoint=checkpoint, **options))
    environment = prepare_multi_gpu_env(launched("fsdp2", "--num_processes", "2", "--mixed_precision", "no"))
    environment = {name: value for name, value in environment.items() if name.startswith(("ACCELERATE", "FSDP"))}
    words = options_of(folder, "spread", 0, **SAVING, **SPREAD)
    train_both(words, deaths=[("allow_fsdp_on_cpus",)] * 2, environment=environment)
    return folder


def train_both(words, **options):
    log = Path(f"{words[words.index('--output_dir') + 1]}.log")
    assert run_both("train", words, log, **options) == [0, 0], Path(f"{log}0").read_text()


def options_of(folder, name, dropout, **options):
    options = {"max_steps": 8, "validation_file": files(folder, "validation"), **options}
    return arguments(folder, folder / name, f"dropout={dropout}", **options)


def results(folder):
    """Losses and their parts, BLEU and weights of a finished run, and the number of its processes."""
    state = json.loads((folder / "trainer_state.json").read_text())
    record = json.loads((folder / "run_record.json").read_text())
    losses = [entry[name] for entry in state["log_history"] for name in ("loss", *LOSS_TERMS) if name in entry]
    return losses, record["metrics"]["eval_bleu"], load_file(folder / "model.safetensors"), record["processes"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [("tokens", TOKENS), ("spread", SPREAD)])
def test_two_processes_are_one_with_twice_the_batch(folder, tmp_path, name, options):
    main(options_of(folder, tmp_path, 0, **options, **TWICE))
    losses, bleu, weights, processes = results(folder / name)
    expected_losses, expected_bleu, expected_weights, _ = results(tmp_path)
    assert processes == 2
    card = (folder / name / "README.md").read_text()
    assert "torchrun --nproc_per_node 2 -m hf_capsule_mt train --method" in card
    assert len(losses) == 32
    assert losses == pytest.approx(expected_losses, rel=1e-6)
    assert bleu == expected_bleu
    torch.testing.assert_close(weights, expected_weights, rtol=1e-5, atol=1e-6)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(folder / name).state_dict()
    assert all(torch.equal(weight, loaded[key]) for key, weight in weights.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tokens", "stream"])
def test_resumed_in_the_middle_of_an_epoch(folder, name):
    checkpoint = folder / name / "checkpoint-6"
    if name != "stream":
        assert 1 < json.loads((checkpoint / "trainer_state.json").read_text())["epoch"] < 2
    losses, _, weights, _ = results(folder / name)
    resumed_losses, _, resumed_weights, _ = results(folder / f"{name}_resumed")
    assert resumed_losses == losses
    assert all(torch.equal(weight, resumed_weights[key]) for key, weight in weights.items())
    assert not all(
        torch.equal(weight, weights[key]) for key, weight in load_file(checkpoint / "model.safetensors").items()
    )


@pytest.mark.parametrize(
    ("name", "processes", "launcher"),
    [
        ("one_gpu", 1, None),
        ("eight_gpus", 8, "multi_gpu"),
        ("two_nodes", 16, "multi_gpu"),
        ("fsdp2", 8, "use_fsdp"),
        ("zero2", 8, "use_deepspeed"),
        ("zero3", 8, "use_deepspeed"),
    ],
)
def test_configuration_files_for_gpus(name, processes, launcher):
    options = launched(name)
    assert (options.num_processes, options.mixed_precision) == (processes, "bf16")
    assert [key for key in ("multi_gpu", "use_fsdp", "use_deepspeed") if getattr(options, key)] == [launcher] * bool(
        launcher
    )
