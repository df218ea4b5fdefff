"""The training command: what a run leaves behind, how it goes on after a kill, and what it says to wrong input."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from tiny_marian import marian_tokenizer, save_tiny_marian
from tiny_run import SMALL, arguments, files, small, stop_at, write_corpus
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, BartConfig, MarianConfig, MarianMTModel

from hf_capsule_mt import METHODS, environment
from hf_capsule_mt.cli.train import main
from hf_capsule_mt.data.tokenizer import words_hash
from hf_capsule_mt.training.trainer import TranslationTrainer

FROM_CHECKPOINT = {"size": None, "tokenizer_name": None, "config_overrides": None}
EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}

STREAM = {"streaming": True, "max_tokens_per_batch": 256}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


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


def test_the_result_loads(run):
    model = AutoModelForSeq2SeqLM.from_pretrained(run)
    tokenizer = AutoTokenizer.from_pretrained(run)
    assert model.config.layer_aggregation == "em_routing"
    assert model.config.label_smoothing == 0.1
    assert model.generation_config.bad_words_ids == [[tokenizer.pad_token_id]]
    assert model.generate(**tokenizer("a b", return_tensors="pt"), max_length=8).shape[0] == 1


def test_the_record(run, corpus):
    written = json.loads((run / "run_record.json").read_text(encoding="utf-8"))
    assert written["command"].startswith(
        "accelerate launch --num_processes 1 --mixed_precision no -m hf_capsule_mt.cli.train --method em-routing "
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
    assert written["tokenizer_hash"] == words_hash(AutoTokenizer.from_pretrained(run))
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
    assert "accelerate launch --num_processes 1 --mixed_precision no -m hf_capsule_mt.cli.train" in card.text
    assert str(run) not in card.text
    assert "Weights: of checkpoint-" in card.text
    assert f"{written['parameters']:,} parameters" in card.text
    assert "EM routing" in card.text
    assert "Validation pairs: 12; left out: 0 of more than 256 source or 256 target tokens\n" in card.text
    # The languages are not known: the files end in .source and .target.
    assert card.data.language is None


def test_record_and_card_name_the_tokenizer_of_validation_bleu(corpus, tmp_path):
    validation = {"validation_file": files(corpus, "validation"), "eval_strategy": "steps", "eval_steps": 1}
    main(arguments(corpus, tmp_path, **validation, bleu_tokenize="char"))
    signature = json.loads((tmp_path / "run_record.json").read_text())["bleu_signature"]
    assert "|tok:char|" in signature
    assert signature.replace("|", " ") in ModelCard.load(tmp_path / "README.md").text


def test_the_record_names_the_commit_the_run_was_started_from(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_commit", lambda: "before")
    train = TranslationTrainer.train

    def train_while_somebody_commits(self, **options):
        monkeypatch.setattr(environment, "_commit", lambda: "after")
        return train(self, **options)

    monkeypatch.setattr(TranslationTrainer, "train", train_while_somebody_commits)
    main(arguments(corpus, tmp_path))
    assert json.loads((tmp_path / "run_record.json").read_text())["environment"]["commit"] == "before"


def test_the_best_model_is_that_of_the_highest_bleu(run):
    scores = history(run, "eval_bleu")
    best = run / f"checkpoint-{2 * (1 + scores.index(max(scores)))}"
    assert same(weights(run), weights(best))
    assert not same(weights(run / "checkpoint-2"), weights(run / "checkpoint-4"))
    assert json.loads((run / "run_record.json").read_text())["best_checkpoint"] == str(best)


def test_tensorboard(run):
    events = b"".join(file.read_bytes() for file in run.glob("runs/*/events*"))
    assert all(name in events for name in (b"train/loss", b"eval/bleu", b"train/learning_rate"))


def test_progress_bars(corpus, tmp_path, capsys):
    main(arguments(corpus, tmp_path))
    assert "2/2 [" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        # As evaluated, without that.
        pytest.param({}, marks=pytest.mark.exhaustive),
        pytest.param({"max_tokens_per_batch": 30, "gradient_accumulation_steps": 2}, marks=pytest.mark.exhaustive),
        {"max_tokens_per_batch": 0, "per_device_train_batch_size": 8},
        {"predict_with_generate": True, **EVALUATED, "eval_steps": 5},
    ],
    ids=["token_budget", "accumulation", "pairs", "evaluated"],
)
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(corpus, tmp_path, monkeypatch, options):
    validation = files(corpus, "validation") if "eval_steps" in options else None
    options = {"max_steps": 14, "validation_file": validation, **options, "save_strategy": "steps", "save_steps": 11}

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
    train("killed", resume_from_checkpoint=checkpoint)
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "whole"))
    assert history(tmp_path / "killed", "loss") == history(tmp_path / "whole", "loss")
    assert not same(weights(tmp_path / "killed"), weights(checkpoint))


def test_a_checkpoint_at_the_end_of_an_epoch_has_its_evaluation(corpus, tmp_path, monkeypatch):
    options = {"max_tokens_per_batch": 0, "per_device_train_batch_size": 20, "max_steps": 7, "eval_strategy": "epoch"}
    options |= {"save_strategy": "steps", "save_steps": 3, "validation_file": files(corpus, "validation")}

    def train(folder, **more):
        main(arguments(corpus, tmp_path / folder, "dropout=0.3", **options, **more))

    train("whole")
    with monkeypatch.context() as patch:
        stop_at(patch, update=5)
        with pytest.raises(KeyboardInterrupt):
            train("killed")
    assert history(tmp_path / "killed" / "checkpoint-3", "epoch")[-1] == 1.0
    assert len(history(tmp_path / "killed" / "checkpoint-3", "eval_loss")) == 1
    train("killed", resume_from_checkpoint="last")
    for name in ("loss", "eval_loss"):
        assert history(tmp_path / "killed", name) == history(tmp_path / "whole", name)
    assert len(history(tmp_path / "whole", "eval_loss")) == 3
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "whole"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "dynamic-routing"}, "layer_aggregation is 'em_routing' there and 'dynamic_routing' here"),
        ({"config_overrides": [*SMALL, "d_model=32"]}, "d_model is 16 there and 32 here"),
        ({"config_overrides": [*SMALL, "decoder_attention_heads=4"]}, "decoder_attention_heads is 2 there and 4 here"),
        ({"method": "rnmt"}, "model_type is 'capsule_aggregated_marian' there and 'rnmt' here"),
        (None, "model.encoder.layers.0.fc1.bias has shape none there and [16] here; train with the options of its run"),
        ({"resume_from_checkpoint": "cut"}, "cut/trainer_state.json is not valid JSON"),
        ({"resume_from_checkpoint": "unreadable"}, "unreadable/config.json is not valid JSON"),
        ({"resume_from_checkpoint": "weightless"}, "weightless holds no weights (*.safetensors)"),
    ],
)
def test_a_checkpoint_of_another_model(run, corpus, tmp_path, monkeypatch, capsys, changes, message):
    """It is refused before data is read."""
    monkeypatch.setattr("hf_capsule_mt.training.data.read_corpus", None)
    monkeypatch.chdir(tmp_path)
    for name in ("resumed", "cut", "unreadable", "weightless"):
        shutil.copytree(run / "checkpoint-2", name)
    Path("cut/trainer_state.json").write_text('{"epoch"')
    Path("unreadable/config.json").write_text('{"d_model"')
    Path("weightless/model.safetensors").unlink()
    if changes is None:
        tensors = weights(Path("resumed"))
        del tensors["model.encoder.layers.0.fc1.bias"]
        save_file(tensors, "resumed/model.safetensors", {"format": "pt"})
    changes = {"resume_from_checkpoint": "resumed", "seed": 7, **(changes or {})}
    if "method" in changes:
        changes["config_overrides"] = small(changes["method"])
    check_error(corpus, tmp_path, changes, message, capsys)


def test_early_stopping(corpus, tmp_path):
    """With a learning rate of 0 no evaluation is better than the first."""
    options = {"max_steps": 20, "learning_rate": 0, "early_stopping_patience": 2, "load_best_model_at_end": True}
    main(arguments(corpus, tmp_path, validation_file=files(corpus, "validation"), **options, **EVALUATED))
    assert json.loads((tmp_path / "run_record.json").read_text())["updates"] == 6


@pytest.mark.parametrize("method", METHODS)
def test_two_updates_of_every_method(corpus, tmp_path, method):
    main(arguments(corpus, tmp_path, method=method, save_strategy="steps", save_steps=1, warmup_steps=0))
    # Guided routing predicts two bags of words beside the translation.
    assert all(0 < loss < (20 if "gdr" in method else 10) for loss in history(tmp_path, "loss"))
    first, second = weights(tmp_path / "checkpoint-1"), weights(tmp_path)
    buffers = ("final_logits_bias", "embed_positions.weight")
    assert not [name for name in second if not name.endswith(buffers) and torch.equal(first[name], second[name])]


@pytest.mark.parametrize("option", ["bf16", "gradient_checkpointing"])
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("method", "model_type", "decoding"),
    [("capsnmt", "caps_nmt", (8, 0.8)), ("rnmt-gdr", "rnmt", (4, 1.0)), ("capsnmt-hybrid", "rnmt", (8, 0.8))],
)
def test_recurrent_families(corpus, tmp_path, option, method, model_type, decoding):
    options = {"method": method, "validation_file": files(corpus, "validation"), option: "true", **EVALUATED}
    main(arguments(corpus, tmp_path, "d_model=32", max_steps=4, **options))
    assert len(history(tmp_path, "eval_bleu")) == len(history(tmp_path, "eval_loss")) == 2
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert (model.config.model_type, model.config.d_model) == (model_type, 32)
    generation = model.generation_config
    # Transformers takes what is not given for 1.
    assert (generation.num_beams, generation.length_penalty or 1.0) == decoding
    assert {tensor.dtype for tensor in weights(tmp_path).values()} == {torch.float32}


@pytest.mark.parametrize("option", ["bf16", "gradient_checkpointing"])
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing. is deprecated:FutureWarning")
def test_precision_and_memory_options(corpus, tmp_path, option):
    main(arguments(corpus, tmp_path, **{option: "true"}))
    assert all(0 < loss < 10 for loss in history(tmp_path, "loss"))
    assert {tensor.dtype for tensor in weights(tmp_path).values()} == {torch.float32}


@pytest.mark.parametrize("separate_vocabs", [False, True])
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_warm_start_from_an_opus_mt_checkpoint(tmp_path, separate_vocabs):
    tokenizer = marian_tokenizer(tmp_path, separate_vocabs)
    sizes = {"vocab_size": tokenizer.vocab_size}
    if separate_vocabs:
        sizes["decoder_vocab_size"] = len(tokenizer.target_encoder)
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
    options = {"model_name_or_path": tmp_path / "marian", "source_lang": "en", "target_lang": "de", **data}
    main(arguments(tmp_path, tmp_path / "run", **FROM_CHECKPOINT, **options))
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    assert (model.config.layer_aggregation, model.config.layer_aggregation_output) == ("em_routing", "residual")
    assert model.generation_config.bad_words_ids == [[2]]
    assert AutoTokenizer.from_pretrained(tmp_path / "run")(text_target="Haus") == tokenizer(text_target="Haus")


def test_training_goes_on_from_a_finished_run_with_other_fields(run, corpus, tmp_path):
    options = {"method": None, "size": None, "tokenizer_name": None, "config_overrides": "dropout=0.5"}
    main(arguments(corpus, tmp_path, model_name_or_path=run, label_smoothing=0, **options))
    config = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).config
    assert (config.layer_aggregation, config.dropout, config.label_smoothing) == ("em_routing", 0.5, 0)


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


def test_a_data_set_that_a_script_reads(corpus, tmp_path, capsys):
    (tmp_path / "scripted").mkdir()
    (tmp_path / "scripted" / "scripted.py").write_text("")
    data = {"train_file": None, "dataset_name": tmp_path / "scripted", "source_lang": "en", "target_lang": "de"}
    for streaming in (False, True):
        message = "scripted, split train cannot be read: RuntimeError: Dataset scripts are no longer supported"
        check_error(corpus, tmp_path, {**data, **STREAM, "streaming": streaming}, message, capsys)


def test_a_stream_of_a_pipe(corpus, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.tsv")
    message = "pipe.tsv, which is no file, and streaming is true: a stream is read again and again; write it to a file"
    check_error(corpus, tmp_path, {"train_file": tmp_path / "pipe.tsv", **STREAM}, message, capsys)


def test_of_a_stream_no_speed_in_pairs_is_known(corpus, tmp_path):
    main(arguments(corpus, tmp_path, **STREAM))
    metrics = json.loads((tmp_path / "run_record.json").read_text())["metrics"]
    assert "train_steps_per_second" in metrics
    assert "train_samples_per_second" not in metrics


def test_an_error_of_a_loaders_process_is_one_line(corpus, tmp_path, capsys):
    (tmp_path / "x.tsv").write_text("a\tb\nc\td\te\n")
    options = {"train_file": tmp_path / "x.tsv", "dataloader_num_workers": 1, **STREAM}
    with pytest.raises(SystemExit):
        main(arguments(corpus, tmp_path / "run", **options))
    _, _, error = capsys.readouterr().err.partition("error: ")
    assert error == f"{tmp_path / 'x.tsv'}:2: 3 columns; there must be 2, source and target.\n"


def check_error(corpus, folder, changes, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments(corpus, folder / "output", **changes))
    assert stop.value.code == 2
    _, _, error = capsys.readouterr().err.rpartition("error: ")
    assert message in error
    assert not (folder / "output").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "em"}, "method is 'em'; allowed are 'transformer', 'linear-combination'"),
        ({"size": "huge"}, "size is 'huge'; allowed are 'tiny', 'base', 'big'"),
        ({"config_overrides": "d_modle=8"}, "no field 'd_modle'; did you mean d_model"),
        ({"config_overrides": "d_model=wide"}, "d_model is 'wide'; allowed are values of int"),
        ({"config_overrides": "d_model"}, "config_overrides has 'd_model'; write name=value"),
        ({"config_overrides": "num_output_capsules=3"}, "num_output_capsules is 3; allowed are divisors of d_model"),
        ({"config_overrides": [*SMALL, "max_position_embeddings=9"]}, "max_source_length is 256, but the model has 9"),
        ({"config_overrides": [*SMALL, "vocab_size=9"]}, "vocab_size is 9 in the model's config, but the tokenizer"),
        ({"config_overrides": [*SMALL, "eos_token_id=9"]}, "eos_token_id is 2 in the tokenizer and 9 in the model's"),
        ({"label_smoothing": 1}, "label_smoothing is 1.0; allowed are numbers in [0, 1)"),
        ({"label_smoothing_factor": 0.1}, "set label_smoothing in the model's configuration instead"),
        ({"tokenizer_name": None}, "tokenizer_name is missing; make a tokenizer with hf-capsule-mt train_tokenizer"),
        ({"tokenizer_name": "absent"}, "tokenizer_name is 'absent', which is neither a folder with a tokenizer"),
        (
            {"tokenizer_name": None, "model_name_or_path": "no/model", "size": None},
            "model_name_or_path is 'no/model', which is neither a folder with a tokenizer",
        ),
        ({"train_file": "absent.tsv"}, "train_file names absent.tsv, which is not a file"),
        ({"train_file": None}, "give either --train_file or --dataset_name"),
        ({"dataset_config_name": "de-en"}, "dataset_config_name is 'de-en', and files have no configurations"),
        ({"train_file": None, "dataset_name": "data"}, "dataset_name 'data' needs source_lang and"),
        ({"validation_file": "absent.tsv"}, "validation_file names absent.tsv, which is not a file"),
        ({"eval_strategy": "epoch"}, "eval_strategy is 'epoch', but there is no --validation_file"),
        ({"metric_for_best_model": "chrf"}, "metric_for_best_model is 'chrf'; with predict_with_generate True"),
        ({"predict_with_generate": False, "metric_for_best_model": "bleu"}, "predict_with_generate False there is"),
        (
            {"resume_from_checkpoint": "absent"},
            "'absent', which holds no trainer_state.json; name the folder of a checkpoint that was saved to its end, "
            "or 'last' for the newest of output_dir",
        ),
        ({"early_stopping_patience": 3}, "early_stopping_patience is 3; it needs an --eval_strategy and"),
        ({"max_tokens_per_batch": -1}, "max_tokens_per_batch is -1; it must be at least 0"),
        ({"report_to": "wanbd"}, "report_to has 'wanbd'; allowed are azure_ml,"),
        ({"report_to": "clearml"}, "report_to has 'clearml', which is not installed here; install it, or leave it out"),
        ({"optim": "adamw_8bit"}, "optim is 'adamw_8bit': You need to install `bitsandbytes`"),
        ({"lr_scheduler_type": "warmup_stable_decay"}, "and lr_scheduler_kwargs None: get_wsd_schedule() missing 1"),
        ({"learning_rate": "high"}, "argument --learning_rate/--learning-rate: invalid float value: 'high'"),
        ({"max_stepps": 3}, "max_stepps"),
    ],
)
def test_wrong_arguments_are_found_before_the_data_is_read(corpus, tmp_path, monkeypatch, capsys, changes, message):
    monkeypatch.setattr("hf_capsule_mt.training.data.read_corpus", None)
    check_error(corpus, tmp_path, changes, message, capsys)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": None, "model_name_or_path": "bart"}, "bart holds a model of type 'bart'; training starts from"),
        ({"method": "em", "model_name_or_path": "marian"}, "method is 'em'; allowed are"),
        ({"model_name_or_path": "run"}, "method is 'em-routing', but run has one already; leave out --method"),
        ({"model_name_or_path": "run", "size": "tiny"}, "size is 'tiny', but run has one already; leave out --size"),
        ({"model_name_or_path": "marian", "config_overrides": "d_modle=8"}, "no field 'd_modle'; did you mean d_model"),
        ({"model_name_or_path": "marian", "tokenizer_name": "opus"}, "pad_token_id is 2 in the tokenizer and 0 in the"),
        ({"method": None, "model_name_or_path": "empty", "tokenizer_name": "marian"}, "empty"),
    ],
)
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_wrong_checkpoints_are_found_before_the_data_is_read(
    run, corpus, tmp_path, monkeypatch, capsys, changes, message
):
    monkeypatch.setattr("hf_capsule_mt.training.data.read_corpus", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(run)
    save_tiny_marian(tmp_path / "marian")
    save_tiny_marian(tmp_path / "bart")
    BartConfig().save_pretrained(tmp_path / "bart")
    marian_tokenizer(tmp_path, separate_vocabs=False).save_pretrained(tmp_path / "opus")
    (tmp_path / "empty").mkdir()
    check_error(corpus, tmp_path, {**FROM_CHECKPOINT, **changes}, message, capsys)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_file": ["three", "two"]}, "three has 3 lines and two has 2; line i of one must translate line i"),
        ({"train_file": ["empty", "void"]}, "(empty, void) holds no usable pair: 0 pairs read"),
        ({"train_file": ["blank", "lines"]}, "(blank, lines) holds no usable pair: 2 pairs read, 0 kept, 2 dropped"),
        ({"train_file": ["three"]}, "give a source and a target file"),
        ({"train_file": ["x.jsonl"]}, "x.jsonl needs source_lang and target_lang"),
        ({"train_file": ["x.jsonl"], "source_lang": "en", "target_lang": "fr"}, 'x.jsonl:1: no language "fr"'),
        ({"max_source_length": 1}, "are longer than max_source_length=1 or max_target_length=256 tokens. Raise"),
        ({"max_tokens_per_batch": 10}, "max_tokens_per_batch is 10, but the longest training text has 11 tokens"),
    ],
)
def test_wrong_data_is_found_before_training(corpus, tmp_path, monkeypatch, capsys, changes, message):
    monkeypatch.setattr(TranslationTrainer, "__init__", None)
    monkeypatch.chdir(tmp_path)
    texts = {"three": "a\nb\nc\n", "two": "a\nb\n", "empty": "", "void": "", "blank": "\n\n", "lines": "\n\n"}
    texts["x.jsonl"] = '{"translation": {"en": "a", "de": "b"}}\n'
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    check_error(corpus, tmp_path, changes, message, capsys)


def test_the_output_folder_is_a_file(corpus, tmp_path, capsys):
    (tmp_path / "file").write_text("text")
    with pytest.raises(SystemExit):
        main(arguments(corpus, tmp_path / "file"))
    assert "is a file; name a folder" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "text"


def test_help_begins_with_our_own_options(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert (
        "accelerate launch -m hf_capsule_mt.cli.train --method em-routing --size tiny --tokenizer_name tokenizer \\\n"
        in text
    )
    options = ["--method ", "--config_overrides ", "--train_file ", "--max_tokens_per_batch ", "--output_dir "]
    places = [text.index(f"\n  {option}") for option in options]
    assert places == sorted(places)
    assert "transformer, linear-combination" in text
    assert "(default: 4096)" in text
