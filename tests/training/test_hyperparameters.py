"""The learning rate of what is added to a trained model, and that model, which training leaves as it is."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_marian import save_tiny_marian
from tiny_run import arguments, stop_at, write_corpus
from transformers import AutoModelForSeq2SeqLM, MarianMTModel

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration, preset_config
from hf_capsule_mt.cli.train import main
from hf_capsule_mt.modeling.warm_start import added_weights
from hf_capsule_mt.training.hyperparameters import own_hyperparameters, set_added_rate

EVERYTHING = {"layer_aggregation": "em_routing", "guided_routing": "gdr", "guided_capsule_dim": 4}
START = {"size": None, "tokenizer_name": None, "config_overrides": None}
START |= {"max_source_length": 60, "max_target_length": 60}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    return save_tiny_marian(tmp_path_factory.mktemp("marian"))


@pytest.mark.parametrize("output", ["residual", "replace"])
def test_what_is_added(marian, output):
    fields = {**EVERYTHING, "head_aggregation": "em_routing", "head_aggregation_output": output}
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(marian, **fields)
    of_parent = {name for name, _ in MarianMTModel.from_pretrained(marian).named_parameters()}
    own = {name for name, _ in model.named_parameters()}
    assert added_weights(model) == own - of_parent
    assert added_weights(CapsuleAggregatedMarianForConditionalGeneration.from_marian(marian)) == set()


@pytest.mark.parametrize("method", ["capsnmt", "capsnmt-hybrid", "rnmt", "transformer"])
def test_what_no_parent_lacks_is_not_added(method):
    config = preset_config(method, "tiny", d_model=16, vocab_size=29)
    assert added_weights(AutoModelForSeq2SeqLM.from_config(config)) == set()


def test_state_in_the_groups_of_an_optimizer_is_loaded():
    """Schedule-free optimizers have theirs there."""
    made, saved = ({"k": k, "weight_sum": k / 2, "lr_max": k / 4} for k in (0, 20))
    optimizer = torch.optim.AdamW([{"params": [torch.nn.Parameter(torch.zeros(2))], **made}], weight_decay=0.5)
    state = optimizer.state_dict()
    state["param_groups"][0] |= {**saved, "weight_decay": 0.1}
    with own_hyperparameters(optimizer, None):
        optimizer.load_state_dict(state)
    [group] = optimizer.param_groups
    assert {name: group[name] for name in saved} == saved
    assert group["weight_decay"] == 0.5


def train(corpus, folder, marian, **options):
    fixed = {"method": "em-routing", "model_name_or_path": marian, **START, "optim": "sgd", "max_grad_norm": 0}
    rates = {"learning_rate": 1e-9, "lr_scheduler_type": "constant", "warmup_steps": 0, "max_steps": 2}
    main(arguments(corpus, folder, **{**fixed, **rates, **options}))
    return load_file(Path(folder) / "model.safetensors")


def test_it_has_a_rate_of_its_own(corpus, marian, tmp_path):
    """At a rate of next to nothing the parent's weights stay, and what is added moves."""
    begun, trained = load_file(marian / "model.safetensors"), train(corpus, tmp_path, marian, added_learning_rate=1)
    for name, weight in trained.items():
        if name in begun:
            torch.testing.assert_close(weight, begun[name], rtol=0, atol=1e-6)
    assert all(trained[f"model.{side}.aggregation.gamma"].abs().max() > 1e-4 for side in ("encoder", "decoder"))


def test_an_optimizer_without_what_is_added(marian):
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(marian, layer_aggregation="em_routing")
    flat = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.5)
    with pytest.raises(
        ValueError, match=r"added_learning_rate is 0\.1, but the optimizer has none of the added weights"
    ):
        set_added_rate(flat, model, 0.1)
    assert flat.param_groups[0]["lr"] == 0.5


def test_a_resumed_run_keeps_it(corpus, marian, tmp_path, monkeypatch, capsys, caplog):
    options = {"learning_rate": 1e-3, "added_learning_rate": 1e-2, "optim": "adamw_torch", "max_steps": 4}
    options |= {"save_strategy": "steps", "save_steps": 2, "lr_scheduler_type": "linear"}
    whole = train(corpus, tmp_path / "whole", marian, **options)
    with monkeypatch.context() as patch:
        stop_at(patch, update=3)
        with pytest.raises(KeyboardInterrupt):
            train(corpus, tmp_path / "run", marian, **options)
    with pytest.raises(SystemExit):
        train(
            corpus, tmp_path / "run", marian, **options | {"added_learning_rate": None}, resume_from_checkpoint="last"
        )
    assert "added_learning_rate is not given, and was 0.01 in the run that goes on" in capsys.readouterr().err
    resumed = train(corpus, tmp_path / "run", marian, **options, resume_from_checkpoint="last")
    assert all(torch.equal(weight, whole[name]) for name, weight in resumed.items())
    # Tied weights are saved once.
    assert "missing keys" not in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 0}, "max_steps is 0; it must be at least 1, or left out"),
        ({"added_learning_rate": 0}, "added_learning_rate is 0.0; it must be more than 0"),
        (
            {"added_learning_rate": 1, "method": None},
            "added_learning_rate is 1.0, but nothing is added to a plain model",
        ),
        ({"added_learning_rate": 1, "lora_rank": 2, "method": None}, "is 1.0, and lora_rank is 2: adapters alone are"),
        ({"fp16": True}, "fp16 is true, and there is no GPU"),
    ],
)
def test_what_is_refused(corpus, marian, tmp_path, capsys, options, message):
    before = tmp_path / "run" / "checkpoint-1"
    before.mkdir(parents=True)
    with pytest.raises(SystemExit):
        train(corpus, tmp_path / "run", marian, **options, overwrite_output_dir=True)
    output = capsys.readouterr()
    assert message in output.err
    # Before the text is read, which may take long.
    assert "pairs read" not in output.out + output.err
    assert before.is_dir()


@pytest.mark.parametrize("place", [".", "checkpoint-1"])
def test_what_training_starts_from_is_not_overwritten(corpus, marian, tmp_path, capsys, place):
    start = tmp_path / "run" / place
    shutil.copytree(marian, start)
    before = {path: path.read_bytes() for path in start.iterdir() if path.is_file()}
    with pytest.raises(SystemExit):
        train(corpus, tmp_path / "run", start, overwrite_output_dir=True)
    assert f"training starts from {start.resolve()}, which would be deleted; name another" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before
