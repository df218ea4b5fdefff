"""Two processes train as one does with twice the batch, and go on after a kill as if nothing had been.

They are started by the configuration files in benchmarks/accelerate.
"""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env
from safetensors.torch import load_file
from tiny_run import arguments, files, write_corpus
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt.cli.train import main
from hf_capsule_mt.training.trainer import LOSS_TERMS

SEVERAL_RUNS = Path(__file__).with_name("several_runs.py")
CONFIGURATIONS = Path(__file__).parents[2] / "benchmarks" / "accelerate"
# Adam would blow up the last bits of gradients near zero, unless its epsilon is large.
SGD = {"optim": "sgd", "learning_rate": 0.1}
ADAM = {"adam_epsilon": 0.1, "learning_rate": 0.1}
TOKENS = {"method": "gdr", "max_tokens_per_batch": 60, **SGD}
STREAM = {**TOKENS, "streaming": True, "shuffle_buffer": 12, "max_source_length": 20, "max_target_length": 20}
PAIRS = {"max_tokens_per_batch": 0, "per_device_train_batch_size": 6, **SGD}
# With SGD there is no state, and torch loads none to spread.
SPREAD = {"method": "rnmt-gdr", "max_tokens_per_batch": 60, **ADAM}
TWICE = {"gradient_accumulation_steps": 2}
# What scores agreement for the next iteration is then read by nothing.
ONE_ITERATION = "guided_routing_iterations=1"
SAVING = {"save_strategy": "steps", "save_steps": 6}


def launched(name, *options):
    """The options of `accelerate launch` with a configuration file, as it completes them."""
    words = ["--config_file", str(CONFIGURATIONS / f"{name}.yaml"), *options, "script.py"]
    return _validate_launch_command(launch_command_parser().parse_args(words))[0]


def fsdp_environment():
    """What the configuration file of FSDP2 adds to the environment, but for the precision."""
    environment = prepare_multi_gpu_env(launched("fsdp2", "--num_processes", "2", "--mixed_precision", "no"))
    return {name: value for name, value in environment.items() if name.startswith(("ACCELERATE", "FSDP"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of two processes: `spread`, and others, each as resumed from its checkpoint-6."""
    folder = write_corpus(tmp_path_factory.mktemp("two_processes"))
    runs = []
    kinds = ("tokens", TOKENS, 0), ("pairs", PAIRS, 0), ("stream", STREAM, 0.3)
    for name, options, dropout in kinds:
        runs.append(({}, options_of(folder, name, dropout, **SAVING, **options)))
        checkpoint = folder / name / "checkpoint-6"
        runs.append(({}, options_of(folder, f"{name}_resumed", dropout, resume_from_checkpoint=checkpoint, **options)))
    runs.append(({}, options_of(folder, "unread", 0, ONE_ITERATION, **TOKENS)))
    runs.append((fsdp_environment(), options_of(folder, "spread", 0, **SAVING, **SPREAD)))
    launch = ["accelerate.commands.launch", "--config_file", str(CONFIGURATIONS / "cpu.yaml")]
    run_elsewhere(folder, runs, *launch, "--main_process_port", "0")
    return folder


def run_elsewhere(folder, runs, *launch):
    """Run the training command for each of the runs in processes that a launcher starts."""
    (folder / "runs.json").write_text(json.dumps(runs))
    words = [sys.executable, "-m", *launch, str(SEVERAL_RUNS), str(folder / "runs.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(folder / "cache")}
    subprocess.run(words, env=environment, check=True)


def options_of(folder, name, dropout, *config_overrides, **options):
    options = {"max_steps": 8, "validation_file": files(folder, "validation"), **options}
    return arguments(folder, folder / name, f"dropout={dropout}", *config_overrides, **options)


def results(folder):
    """Losses and their parts, BLEU and weights of a finished run, and the number of its processes."""
    state = json.loads((folder / "trainer_state.json").read_text())
    record = json.loads((folder / "run_record.json").read_text())
    losses = [entry[name] for entry in state["log_history"] for name in ("loss", *LOSS_TERMS) if name in entry]
    return losses, record["metrics"]["eval_bleu"], load_file(folder / "model.safetensors"), record["processes"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "overrides", "twice_the_batch", "num_losses"),
    [
        ("tokens", [], {**TOKENS, **TWICE}, 32),
        ("pairs", [], {**PAIRS, "per_device_train_batch_size": 12}, 8),
        ("unread", [ONE_ITERATION], {**TOKENS, **TWICE}, 32),
        ("spread", [], {**SPREAD, **TWICE}, 32),
    ],
)
def test_two_processes_are_one_with_twice_the_batch(folder, tmp_path, name, overrides, twice_the_batch, num_losses):
    main(options_of(folder, tmp_path, 0, *overrides, **twice_the_batch))
    losses, bleu, weights, processes = results(folder / name)
    expected_losses, expected_bleu, expected_weights, _ = results(tmp_path)
    assert processes == 2
    card = (folder / name / "README.md").read_text()
    assert "torchrun --nproc_per_node 2 -m hf_capsule_mt.cli.train --method" in card
    assert len(losses) == num_losses
    assert losses == pytest.approx(expected_losses, rel=1e-6)
    assert bleu == expected_bleu
    torch.testing.assert_close(weights, expected_weights, rtol=1e-5, atol=1e-6)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(folder / name).state_dict()
    assert all(torch.equal(weight, loaded[key]) for key, weight in weights.items())


@pytest.mark.slow
def test_one_process_read_for_both(folder):
    """All runs but the stream's have the same two corpora, whose text and ids are made once."""
    assert sorted(path.suffix for path in (folder / "cache" / "hf_capsule_mt").iterdir()) == ["", "", ".lock", ".lock"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tokens", "pairs", "stream"])
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"), [("tokens", TOKENS), pytest.param("spread", SPREAD, marks=pytest.mark.exhaustive)]
)
def test_resumed_by_one_process(folder, tmp_path, name, options):
    checkpoint = folder / name / "checkpoint-6"
    resumed = options_of(folder, tmp_path, 0, resume_from_checkpoint=checkpoint, **TWICE, **options)
    if name == "spread":
        launch = ["torch.distributed.run", "--standalone", "--nproc_per_node", "1"]
        run_elsewhere(tmp_path, [(fsdp_environment(), resumed)], *launch)
    else:
        main(resumed)
    losses, _, weights, processes = results(tmp_path)
    expected_losses, _, expected_weights, _ = results(folder / name)
    assert processes == 1
    assert losses == pytest.approx(expected_losses, rel=1e-4)
    torch.testing.assert_close(weights, expected_weights, rtol=1e-4, atol=1e-5)


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


ZERO, METHODS_OF_DEEPSPEED = ("zero2", "zero3"), ("em-routing", "gdr", "rnmt")


def deepspeed_environment(name, method):
    """What a configuration file of DeepSpeed adds to the environment, but for the precision."""
    # As docs/training.md says of it.
    whole = ["--deepspeed_moe_layer_cls_names", "ConditionalGRU"] if (name, method) == ("zero3", "rnmt") else []
    options = launched(name, "--num_processes", "2", "--mixed_precision", "no", *whole)
    # As the launcher does.
    options.deepspeed_fields_from_accelerate_config = "zero_stage,zero3_init_flag,zero3_save_16bit_model"
    _, environment = prepare_deepspeed_cmd_env(options)
    return {key: value for key, value in environment.items() if key.startswith("ACCELERATE")} | {
        "DS_ACCELERATOR": "cpu"
    }


@pytest.mark.exhaustive
@pytest.mark.slow
def test_deepspeed_takes_the_same_updates(tmp_path):
    """Where it is installed. Under ZeRO-3 a new model begins with other weights, so all go on with trained ones."""
    pytest.importorskip("deepspeed", reason="needs DeepSpeed; DS_BUILD_OPS=0 pip install deepspeed")
    write_corpus(tmp_path)
    same = {"max_tokens_per_batch": 60, "max_steps": 4, **ADAM}
    runs = []
    for method in METHODS_OF_DEEPSPEED:
        main(options_of(tmp_path, f"first-{method}", 0, method=method, **same))
        begun = {"model": tmp_path / f"first-{method}", "config_overrides": None}
        same_of_all = {**same, **dict.fromkeys(("method", "size", "tokenizer_name")), **begun}
        main(options_of(tmp_path, f"alone-{method}", 0, **same_of_all, **TWICE))
        for name in ZERO:
            options = options_of(tmp_path, f"{name}-{method}", 0, **same_of_all)
            runs.append((deepspeed_environment(name, method), options))
    run_elsewhere(tmp_path, runs, "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    for name, method in product(ZERO, METHODS_OF_DEEPSPEED):
        losses, _, weights, processes = results(tmp_path / f"{name}-{method}")
        expected_losses, _, expected_weights, _ = results(tmp_path / f"alone-{method}")
        assert processes == 2
        assert losses == pytest.approx(expected_losses, rel=1e-4), (name, method)
        torch.testing.assert_close(weights, expected_weights, rtol=1e-3, atol=1e-4)
