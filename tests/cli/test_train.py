"""The training command: what a run leaves behind, how it goes on after a kill, and what it says to wrong input."""

import hashlib
import json
import shutil
from dataclasses import fields

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from tiny_marian import marian_tokenizer, save_tiny_marian
from tiny_run import SMALL, arguments, files, stop_at, write_corpus
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianConfig, MarianMTModel

from hf_capsule_mt import METHODS
from hf_capsule_mt.cli.train import main
from hf_capsule_mt.data.tokenizer import tokenizer_hash
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.run_recorder import _starting
from hf_capsule_mt.training.trainer import TranslationTrainer

FIELDS = {field.name for field in fields(TranslationTrainingArguments)}
# Newer Transformers deprecate the older name.
CHECKPOINTING = "activation_checkpointing" if "activation_checkpointing" in FIELDS else "gradient_checkpointing"
FROM_CHECKPOINT = {"size": None, "tokenizer_name": None, "config_overrides": None}
EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """A finished run: 6 updates, evaluated and saved every 2."""
    folder = tmp_path_factory.mktemp("run")
    options = {"max_steps": 6, "seed": 7, "learning_rate": 0.01, "report_to": "tensorboard", **EVALUATED}
    main(arguments(corpus, folder, validation_file=files(corpus, "validation"), load_best_model_at_end=True, **options))
    return folder


def weights(folder):
    return load_file(folder / "model.safetensors")


def saved_parameters(folder):
    """Without the buffer that Marian has."""
    return [tensor for name, tensor in weights(folder).items() if name != "final_logits_bias"]


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def history(folder, name):
    state = json.loads((folder / "trainer_state.json").read_text())
    return [entry[name] for entry in state["log_history"] if name in entry]


def test_evaluation_fills_in_no_generation_settings(run):
    """A checkpoint had the default of every setting."""
    settings = json.loads((run / "generation_config.json").read_text())
    assert settings["num_beams"] == 4
    assert "top_k" not in settings


def test_the_result_loads(run):
    model = AutoModelForSeq2SeqLM.from_pretrained(run)
    tokenizer = AutoTokenizer.from_pretrained(run)
    assert model.config.layer_aggregation == "em_routing"
    assert model.config.label_smoothing == 0.1
    assert model.generation_config.bad_words_ids == [[tokenizer.pad_token_id]]
    # As long as `translate` allows for the longest source of training, which has 256 tokens.
    assert model.generation_config.max_new_tokens == 2 * 256 + 21
    assert model.generate(**tokenizer("a b", return_tensors="pt"), max_length=8).shape[0] == 1


def test_translations_are_no_longer_than_the_model_has_positions(corpus, tmp_path):
    lengths = {"max_source_length": 60, "max_target_length": 60}
    main(arguments(corpus, tmp_path, "max_position_embeddings=64", max_steps=1, **lengths))
    assert json.loads((tmp_path / "generation_config.json").read_text())["max_new_tokens"] == 63


def test_the_record(run, corpus):
    written = json.loads((run / "run_record.json").read_text(encoding="utf-8"))
    assert written["command"].startswith(
        "accelerate launch --num_processes 1 --mixed_precision no -m hf_capsule_mt train --method em-routing "
    )
    assert written["model"]["method"] == "em-routing"
    assert written["model"]["config_overrides"] == SMALL
    assert written["data"]["train_file"] == [str(file) for file in files(corpus, "train")]
    assert (written["training"]["seed"], written["training"]["max_tokens_per_batch"]) == (7, 60)
    assert written["config"]["d_model"] == 16
    assert written["parameters"] == sum(tensor.numel() for tensor in saved_parameters(run))
    assert written["pairs"] == {"trained_on": 60, "too_long": 0}
    assert written["validation_pairs"] == {"scored": 12, "too_long": 0}
    assert written["data_sha256"] == {
        side: hashlib.sha256((corpus / f"train.{side}").read_bytes()).hexdigest() for side in ("source", "target")
    }
    assert written["tokenizer_hash"] == tokenizer_hash(AutoTokenizer.from_pretrained(run))
    assert written["data_report"] == {"read": 60, "kept": 60, "empty": 0, "invalid_utf8": 0}
    assert (written["updates"], written["processes"]) == (6, 1)
    assert written["metrics"]["eval_bleu"] == max(history(run, "eval_bleu"))
    assert written["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert written["environment"]["packages"]["torch"] == torch.__version__
    assert written["seconds_of_this_call"] > 0


def test_the_model_card(run):
    written = json.loads((run / "run_record.json").read_text(encoding="utf-8"))
    card = ModelCard.load(run / "README.md")
    (result,) = card.data.eval_results
    assert result.metric_value == round(written["metrics"]["eval_bleu"], 2)
    assert "accelerate launch --num_processes 1 --mixed_precision no -m hf_capsule_mt train" in card.text
    assert str(run) not in card.text
    # The languages are not known: the files end in .source and .target.
    assert card.data.language is None


def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(corpus, tmp_path, monkeypatch):
    """With batches of pairs and evaluations, in the second epoch."""
    options = {"max_tokens_per_batch": 0, "per_device_train_batch_size": 8, **EVALUATED, "eval_steps": 5}
    options |= {"max_steps": 14, "validation_file": files(corpus, "validation"), "save_steps": 11}

    def train(folder, **more):
        main(arguments(corpus, tmp_path / folder, "dropout=0.3", **options, **more))

    train("whole")
    with monkeypatch.context() as patch:
        stop_at(patch, update=13)
        with pytest.raises(KeyboardInterrupt):
            train("killed")
    checkpoint = tmp_path / "killed" / "checkpoint-11"
    epoch = json.loads((checkpoint / "trainer_state.json").read_text())["epoch"]
    assert epoch > 1
    assert not epoch.is_integer()
    # Without load_best_model_at_end an evaluation saves nothing.
    assert not (tmp_path / "whole" / "checkpoint-5").exists()
    train("killed", resume_from_checkpoint=checkpoint)
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "whole"))
    assert history(tmp_path / "killed", "loss") == history(tmp_path / "whole", "loss")
    assert not same(weights(tmp_path / "killed"), weights(checkpoint))


@pytest.mark.parametrize("method", METHODS)
def test_two_updates_of_every_method(corpus, tmp_path, method):
    # A single layer is not weighed.
    layers = ["decoder_layers=2"] if method.startswith("layer-") else []
    main(arguments(corpus, tmp_path, *layers, method=method, save_strategy="steps", save_steps=1, warmup_steps=0))
    # Guided routing predicts two bags of words beside the translation.
    assert all(0 < loss < (20 if "gdr" in method else 10) for loss in history(tmp_path, "loss"))
    first, second = weights(tmp_path / "checkpoint-1"), weights(tmp_path)
    constant = ["final_logits_bias", "embed_positions.weight"]
    if method == "mhc":
        # The first update makes streams differ, and the second makes weights of mixtures that are not 0. Streams of the
        # first layer stay equal.
        constant += ["mixing.0.scale", "mixing.1.scale"]
    changing = [name for name in second if not name.endswith(tuple(constant))]
    assert not [name for name in changing if torch.equal(first[name], second[name])]


@pytest.mark.parametrize(
    ("method", "option"),
    [
        ("em-routing", "bf16"),
        ("gdr", CHECKPOINTING),
        ("capsnmt", CHECKPOINTING),
        ("rnmt-gdr", "bf16"),
    ],
)
def test_precision_and_memory_options(corpus, tmp_path, monkeypatch, option, method):
    found = []
    step = TranslationTrainer.training_step

    def recorded_step(self, model, *args, **kwargs):
        layers = [module for module in model.modules() if getattr(module, "gradient_checkpointing", False)]
        found.append(("bf16" if self.accelerator.mixed_precision == "bf16" else None, bool(layers)))
        return step(self, model, *args, **kwargs)

    monkeypatch.setattr(TranslationTrainer, "training_step", recorded_step)
    options = {"method": method, "validation_file": files(corpus, "validation"), option: "true", **EVALUATED}
    main(arguments(corpus, tmp_path, **options))
    assert found == [("bf16", False) if option == "bf16" else (None, True)] * 2
    assert all(0 < loss < 20 for loss in history(tmp_path, "loss"))
    assert history(tmp_path, "eval_bleu")
    assert {tensor.dtype for tensor in weights(tmp_path).values()} == {torch.float32}


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_warm_start_from_an_opus_mt_checkpoint_with_two_vocabularies(tmp_path):
    tokenizer = marian_tokenizer(tmp_path, True)
    sizes = {"vocab_size": tokenizer.vocab_size, "decoder_vocab_size": len(tokenizer.target_encoder)}
    sizes |= {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
    ids = {"pad_token_id": 2, "eos_token_id": 0, "forced_eos_token_id": 0, "decoder_start_token_id": 2}
    small = {name: int(value) for name, value in (override.split("=") for override in SMALL)}
    parent = MarianMTModel(MarianConfig(**small, **sizes, **ids))
    parent.generation_config.bad_words_ids = [[2]]
    parent.save_pretrained(tmp_path / "marian")
    tokenizer.save_pretrained(tmp_path / "marian")
    rows = [("the old house", "das alte Haus"), ("two dogs", "zwei Hunde"), ("a child", "ein Kind")]
    lines = [json.dumps({"translation": {"en": english, "de": german}}) + "\n" for english, german in rows]
    (tmp_path / "train.jsonl").write_text("".join(lines))
    data = {"train_file": tmp_path / "train.jsonl", "validation_file": tmp_path / "train.jsonl"}
    options = {"model": tmp_path / "marian", "source_lang": "en", "target_lang": "de", **data}
    main(arguments(tmp_path, tmp_path / "run", **FROM_CHECKPOINT, **options))
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    assert (model.config.layer_aggregation, model.config.layer_aggregation_output) == ("em_routing", "residual")
    assert model.generation_config.bad_words_ids == [[2]]
    assert AutoTokenizer.from_pretrained(tmp_path / "run")(text_target="Haus") == tokenizer(text_target="Haus")


def test_data_set_of_the_hub(corpus, tmp_path, monkeypatch):
    """A local folder stands in for it."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "pairs").mkdir()
    for split in ("train", "validation"):
        rows = [{"translation": {"en": f"{split[0]} {letter}", "de": letter}} for letter in "abcd"]
        (tmp_path / "pairs" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"train_file": None, "dataset_name": tmp_path / "pairs", "source_lang": "en", "target_lang": "de"}
    main(arguments(corpus, tmp_path / "run", eval_strategy="epoch", **data))
    assert len(history(tmp_path / "run", "eval_bleu")) == 2
    assert json.loads((tmp_path / "run" / "run_record.json").read_text())["data_report"]["kept"] == 4


MISTAKES = {
    "other lengths": ({"train_file": ["three", "two"]}, "three has 3 lines and two has 2"),
    "no such language": (
        {"train_file": ["x.jsonl"], "source_lang": "en", "target_lang": "fr"},
        'x.jsonl:1 has no text for both "en" and "fr"',
    ),
    "no data": ({"train_file": None}, "Give either --train_file or --dataset_name"),
    "all too long": ({"max_source_length": 1}, "are longer than 1 or 256 tokens"),
    "few positions": (
        {"config_overrides": [*SMALL, "max_position_embeddings=9"]},
        "max_source_length is 256, and the model has 9 positions",
    ),
    "few embeddings": ({"config_overrides": [*SMALL, "vocab_size=9"]}, "vocab_size is 9 in the model's config"),
    "a wrong field": (
        {"config_overrides": [*SMALL, "num_output_capsules=7"]},
        "num_output_capsules is 7. Give a divisor of d_model, which is 16.",
    ),
    "no such field": ({"config_overrides": [*SMALL, "layers=9"]}, "layers"),
    "an option as a field": ({"config_overrides": [*SMALL, "size=base"]}, "has no field 'size'"),
    "no value": ({"config_overrides": ["encoder_layers"]}, "Write name=value"),
    "no JSON": ({"config_overrides": ["layer_aggregation_sides=[encoder"]}, "Write lists as JSON"),
    "stops without scores": ({"early_stopping_patience": 3}, "needs an eval_strategy"),
    "rounded weights": ({"push_to_hub": True, "bf16_full_eval": True}, "Evaluation in 16 bits would round"),
    "no end": ({"streaming": True, "max_steps": -1}, "A stream has no end"),
    "no updates": ({"streaming": True, "max_steps": 0}, "A stream has no end"),
    "a stream without a budget": (
        {"streaming": True, "max_tokens_per_batch": 0},
        "streaming and bpe_dropout need --max_tokens_per_batch",
    ),
    "dropout without a budget": (
        {"bpe_dropout": 0.1, "max_tokens_per_batch": 0},
        "streaming and bpe_dropout need --max_tokens_per_batch",
    ),
    "dropout of words": ({"bpe_dropout": 0.1}, "needs a byte-level BPE tokenizer"),
    "a probability over 1": ({"bpe_dropout": 1.5}, "bpe_dropout is 1.5. It must be between 0 and 1"),
    "nothing to evaluate": ({"eval_strategy": "epoch"}, "there is no --validation_file"),
    "no such method": ({"method": "em"}, "invalid choice: 'em'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_end_with_one_line(corpus, tmp_path, monkeypatch, capsys, name):
    """They are found before training."""
    changes, message = MISTAKES[name]
    monkeypatch.setattr(TranslationTrainer, "__init__", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "three").write_text("a\nb\nc\n")
    (tmp_path / "two").write_text("a\nb\n")
    (tmp_path / "x.jsonl").write_text('{"translation": {"en": "a", "de": "b"}}\n')
    with pytest.raises(SystemExit) as stop:
        main(arguments(corpus, tmp_path / "output", **changes))
    assert stop.value.code == 2
    error = capsys.readouterr().err.rpartition("error: ")[2]
    assert message in error
    assert error.endswith("\n")
    assert error.count("\n") == 1
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("step", [2, 3])
def test_a_card_claims_no_score_of_other_weights(corpus, tmp_path, monkeypatch, step):
    """As if the last evaluation had been after an earlier update."""
    create_model_card = TranslationTrainer.create_model_card

    def create_model_card_later(self, *args, **kwargs):
        [*_, last] = (entry for entry in self.state.log_history if "eval_bleu" in entry)
        last["step"] = step
        create_model_card(self, *args, **kwargs)

    monkeypatch.setattr(TranslationTrainer, "create_model_card", create_model_card_later)
    main(arguments(corpus, tmp_path, max_steps=3, validation_file=files(corpus, "validation")))
    assert bool(ModelCard.load(tmp_path / "README.md").data.eval_results) == (step == 3)


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("--foo=3", "There is no option --foo. See --help."),
        ("--model_name_or_path", "There is no option --model_name_or_path. Did you mean --model?"),
        ("--max-step", "There is no option --max-step. Did you mean --max_steps?"),
    ],
)
def test_an_unknown_option_is_named(capsys, option, remedy):
    """Not the options that are missing because of it."""
    with pytest.raises(SystemExit) as stop:
        main([option, "3"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"error: {remedy}\n"


def test_the_tokenizer_of_another_model(tmp_path, capsys, caplog):
    """Of the same size: every id is that of another word."""
    start = save_tiny_marian(tmp_path / "start")
    corpus = write_corpus(tmp_path)
    vocabulary = json.loads((start / "tokenizer.json").read_text())
    ids = vocabulary["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    shutil.copytree(start, tmp_path / "other")
    (tmp_path / "other" / "tokenizer.json").write_text(json.dumps(vocabulary))
    options = {**FROM_CHECKPOINT, "model": start, "method": None, "max_source_length": 60, "max_target_length": 60}
    options["tokenizer_name"] = tmp_path / "other"
    with pytest.raises(SystemExit) as stop:
        main(arguments(corpus, tmp_path / "run", **options))
    assert stop.value.code == 2
    assert "has another vocabulary than the tokenizer of" in capsys.readouterr().err
    # A copy of its own tokenizer fits, and a model without one cannot be asked.
    for file in (tmp_path / "start").glob("tokenizer*"):
        file.rename(corpus / "tokenizer" / file.name)
    main(arguments(corpus, tmp_path / "run", **options, max_steps=1))
    assert "has no tokenizer. Make sure" in caplog.text
    for file in (corpus / "tokenizer").iterdir():
        shutil.copy(file, start)
    options["tokenizer_name"] = corpus / "tokenizer"
    main(arguments(corpus, tmp_path / "again", **options, max_steps=1))


def test_a_token_is_not_recorded(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "")
    main(arguments(corpus, tmp_path, hub_token="hf_secret"))
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"hf_secret" in file.read_bytes()]


def test_a_recorded_command_starts_a_run_and_has_no_token():
    command = ["--hub_token=a", "--bf16", "--hub-token", "b", "--resume_from_checkpoint", "last", "--seed", "1"]
    assert _starting(command) == ["--bf16", "--seed", "1"]
    assert _starting(["--resume-from-checkpoint=auto", "--seed", "1"]) == ["--seed", "1"]


def test_help(capsys):
    """A short one with files and the model first, and a long one."""
    texts = []
    for option in ("--help", "--help_all"):
        with pytest.raises(SystemExit) as stop:
            main([option])
        assert stop.value.code == 0
        texts.append(capsys.readouterr().out)
    options = ["--train_file ", "--output_dir ", "--method METHOD ", "--max_steps "]
    places = [texts[0].index(f"\n  {option}") for option in options]
    assert places == sorted(places)
    assert "--adam_beta2" not in texts[0]
    assert "--adam_beta2" in texts[1]


def test_the_end_names_scores_and_folder(corpus, tmp_path, capfd):
    main(arguments(corpus, tmp_path, max_steps=1, validation_file=files(corpus, "validation")))
    output, progress = capfd.readouterr()
    metrics = json.loads((tmp_path / "run_record.json").read_text())["metrics"]
    assert output.splitlines()[-2:] == [
        f"On the validation data: BLEU {metrics['eval_bleu']:.2f}, loss {metrics['eval_loss']:.3f}.",
        f"The model is in {tmp_path}.",
    ]
    assert "Training: 100%" in progress
    assert "Evaluating: 100%" in progress


def test_the_end_without_validation_data(corpus, tmp_path, capfd):
    main(arguments(corpus, tmp_path, max_steps=1))
    output = capfd.readouterr().out
    assert output.splitlines()[-1] == f"The model is in {tmp_path}."
    assert "On the validation data" not in output
