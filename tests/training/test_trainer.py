"""Batches of a token budget in the Trainer, and training that does not depend on how batches are cut."""

import copy
import dataclasses
import gc
import json
import shutil
import weakref
from collections import Counter
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import FullyShardedDataParallelPlugin
from accelerate.utils import DynamoBackend
from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
from aggregated_models import aggregated_m2m100, m2m100, mbart
from datasets import IterableDataset
from filelock import FileLock
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from tiny_marian import marian_tokenizer, tiny_model, tiny_tokenizer
from tiny_run import SMALL, files, small
from tokenizers import Tokenizer, models, pre_tokenizers
from torch._subclasses import FakeTensorMode
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import (
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    EvalPrediction,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    set_seed,
)

from hf_capsule_mt import decoding
from hf_capsule_mt.configuration import METHODS, preset_config
from hf_capsule_mt.data.arrow_cache import read_corpus, tokenize_corpus
from hf_capsule_mt.data.batching import TokenBudgetBatchSampler, longest_sides
from hf_capsule_mt.data.corpus_files import Columns, find_corpora
from hf_capsule_mt.data.tokenizer import train_joint_bpe
from hf_capsule_mt.decoding import Engine
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.scores import score_translations
from hf_capsule_mt.files import LOCK
from hf_capsule_mt.training import checkpoint_folders, resuming
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.build import build_model
from hf_capsule_mt.training.callbacks import DivergenceError, SourceCallback
from hf_capsule_mt.training.checkpoint_folders import explained_full_disk
from hf_capsule_mt.training.evaluating import bleu_metric, default_metrics
from hf_capsule_mt.training.model_preparation import all_finite, compile_layers, freeze_positions, has_unread_weights
from hf_capsule_mt.training.options import DataArguments, ModelArguments, parse_override
from hf_capsule_mt.training.trainer import TranslationTrainer
from hf_capsule_mt.training.training_data import load_data

# A learning rate of 1 makes the change of a weight its gradient.
FAMILIES = {"M2M100": m2m100, "MBart": mbart}
UPDATE = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "warmup_steps": 0}
UPDATE |= {"max_grad_norm": 0, "max_steps": 1, "logging_steps": 1, "save_strategy": "no"}
UPDATE |= {"report_to": "none", "use_cpu": True}


@pytest.fixture(scope="module")
def pairs(corpus):
    [found] = find_corpora(files(corpus, "train"), Columns())
    return tokenize_corpus(read_corpus(found, Columns()), tiny_tokenizer())


def test_a_tokenizer_with_other_ids_than_the_models_is_refused(pairs, tmp_path):
    trainer = make_trainer(pairs, tmp_path)
    # As configurations of other families have it too.
    for value, refused in ((None, False), ([5, 2], False), (5, True)):
        trainer.model.config.eos_token_id = value
        with pytest.raises(ValueError, match="eos_token_id") if refused else nullcontext():
            TranslationTrainer(trainer.model, trainer.args, trainer.data_collator, processing_class=tiny_tokenizer())


def test_runs_with_the_same_arguments_are_the_same(pairs, tmp_path):
    """As in a loop over models. No trainer writes into the arguments of its caller."""
    tokenizer = tiny_tokenizer()
    options = {**UPDATE, "learning_rate": 0.01, "label_smoothing_factor": 0.1, "torch_compile": True}
    options |= {"torch_compile_backend": "eager", "warmup_steps": 0.5, "lr_scheduler_type": "linear"}
    options |= {"max_tokens_per_batch": 2000, "max_steps": 4}
    args = TranslationTrainingArguments(tmp_path / "run", **options)
    before = {**vars(args)}
    runs = []
    for _ in range(2):
        set_seed(0)
        model_args = ModelArguments(
            method="transformer",
            size="tiny",
            tokenizer_name="tokenizer",
            config_overrides=[*SMALL, "dropout=0", "encoder_layerdrop=0.5"],
        )
        model = build_model(model_args, tokenizer)
        model.config.label_smoothing = 0.0
        # Layers that are compiled leave out none of them.
        trainer = TranslationTrainer(
            model,
            args,
            train_dataset=pairs,
            eval_dataset=pairs,
            general_dataset=pairs.select(range(4)),
            processing_class=tokenizer,
            compute_metrics=lambda _: {"bleu": 1.0},
        )
        trainer.train()
        assert vars(args) == before
        assert trainer.args.ddp_find_unused_parameters
        assert trainer.args.torch_compile_backend == "eager"
        assert model.config.label_smoothing == 0.1
        runs.append([(entry["loss"], entry["learning_rate"]) for entry in trainer.state.log_history if "loss" in entry])
    assert runs[0] == runs[1]
    assert [rate for _, rate in runs[0]] == pytest.approx([0, 0.005, 0.01, 0.005])


def test_layers_are_compiled_as_the_options_say(pairs, tmp_path, monkeypatch):
    """A graph for each length would take minutes."""
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda layer, **options: compiled.append(options))
    options = {"torch_compile": True, "torch_compile_backend": "eager", "torch_compile_mode": "max-autotune"}
    trainer = make_trainer(pairs, tmp_path, **options)
    assert compiled == [{"dynamic": True, "backend": "eager", "mode": "max-autotune"}] * 3
    # accelerate would compile the whole model.
    assert trainer.accelerator.state.dynamo_plugin.backend == DynamoBackend.NO


@pytest.mark.parametrize("family", ["M2M100", "MBart"])
def test_layers_of_transformers_are_compiled(monkeypatch, family):
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda layer, **options: compiled.append(type(layer).__name__))
    model = FAMILIES[family](encoder_layers=1, decoder_layers=2)
    compile_layers(model, backend="eager", mode=None)
    assert compiled == [f"{family}EncoderLayer", *[f"{family}DecoderLayer"] * 2]


def test_what_is_given_is_not_replaced(pairs, tmp_path):
    """A collator next to a tokenizer, and a score of one's own that decides which checkpoint is best."""
    collator = DataCollatorForSeq2Seq(tiny_tokenizer(), pad_to_multiple_of=16)
    args = TranslationTrainingArguments(tmp_path, metric_for_best_model="chrf", **UPDATE)
    given = {"processing_class": tiny_tokenizer(), "compute_metrics": dict}
    trainer = TranslationTrainer(tiny_model(), args, collator, pairs, **given)
    assert next(iter(trainer.get_train_dataloader()))["labels"].shape[1] == 16
    assert trainer.args.metric_for_best_model == "chrf"


def test_padding_on_the_left_is_refused(tmp_path):
    """The decoder would read it as text."""
    tokenizer = tiny_tokenizer()
    tokenizer.padding_side = "left"
    args = TranslationTrainingArguments(tmp_path, **UPDATE)
    with pytest.raises(UserError, match="The tokenizer pads on the left"):
        TranslationTrainer(tiny_model(), args, processing_class=tokenizer)
    # A collator of one's own may read them otherwise.
    TranslationTrainer(tiny_model(), args, list, processing_class=tokenizer)


def test_targets_that_begin_without_a_position_are_refused(tmp_path):
    """The model would decode at other positions than it was trained at."""
    args = TranslationTrainingArguments(tmp_path, **UPDATE)
    model = aggregated_m2m100("none", decoder_start_token_id=0)
    with pytest.raises(UserError, match="Let them begin with EOS: decoder_start_token_id=2"):
        TranslationTrainer(model, args)
    TranslationTrainer(aggregated_m2m100("none"), args)


def test_without_arguments_a_trainer_has_the_defaults(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = TranslationTrainer(tiny_model()).args
    assert (args.max_tokens_per_batch, args.warmup_steps) == (4096, 4000)


def test_what_several_devices_of_a_process_cannot_do(pairs, tmp_path, monkeypatch):
    trainer = make_trainer(pairs, tmp_path)
    trainer.args.ema_decay = 0.9
    trainer._check_supported()
    for name in ("is_fsdp_enabled", "is_deepspeed_enabled"):
        setattr(trainer, name, True)
        with pytest.raises(UserError, match="ema_decay needs all weights"):
            trainer._check_supported()
        setattr(trainer, name, False)
    monkeypatch.setattr(TranslationTrainingArguments, "n_gpu", 2)
    with pytest.raises(UserError, match="has several GPUs"):
        trainer._check_supported()


class Bare(torch.nn.Module):
    """A model without a configuration, which only knows the first token of a target."""

    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Embedding(29, 29)

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.scores(input_ids).mean(1)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels[:, 0]), "logits": logits}


def test_a_model_without_a_configuration(pairs, tmp_path):
    model = Bare()
    before = model.scores.weight.detach().clone()
    options = {"predict_with_generate": False, "save_strategy": "steps", "save_steps": 1}
    args = TranslationTrainingArguments(tmp_path, **{**UPDATE, **options})
    trainer = TranslationTrainer(model, args, DataCollatorForSeq2Seq(tiny_tokenizer()), pairs, [pairs[0]])
    trainer.train()
    assert trainer.evaluate()["eval_loss"] > 0
    assert not torch.equal(load_file(tmp_path / "checkpoint-1" / "model.safetensors")["scores.weight"], before)


def test_a_share_of_warmup_is_that_of_every_run(pairs, tmp_path):
    args = TranslationTrainingArguments(tmp_path, **{**UPDATE, "warmup_steps": 0.5, "lr_scheduler_type": "linear"})
    for updates in (4, 40):
        trainer = make_trainer(pairs, tmp_path)
        trainer = TranslationTrainer(trainer.model, args, trainer.data_collator, train_dataset=pairs)
        trainer.create_optimizer_and_scheduler(updates)
        factor = trainer.lr_scheduler.lr_lambdas[0]
        assert [factor(update) for update in (0, updates // 4, updates // 2)] == [0, 0.5, 1]


def test_arguments_of_transformers_are_refused(pairs, tmp_path):
    model = make_trainer(pairs, tmp_path).model
    args = Seq2SeqTrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    with pytest.raises(UserError, match="needs TranslationTrainingArguments, and args is a Seq2SeqTrainingArguments"):
        TranslationTrainer(model, args, train_dataset=pairs)


@contextmanager
def group_of_one_process():
    """On a CPU."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def test_a_model_that_the_trainer_replaces_by_its_wrapper(pairs, tmp_path, monkeypatch):
    """With FSDP, version 1. The wrapper has no embeddings to hide, and the model has them again."""
    trainer = make_trainer(pairs, tmp_path)
    model = trainer.model
    embeddings = model.get_input_embeddings()

    def wrap(self, *args, **kwargs):
        assert self.model.get_input_embeddings() is None
        # accelerate makes one on accelerators only, in the same way.
        wrapped = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
        self.model = self.model_wrapped = wrapped
        return self.model, None

    monkeypatch.setattr(Seq2SeqTrainer, "_prepare_for_training", wrap)
    with group_of_one_process():
        wrapper, _ = trainer._prepare_for_training(1, None, None)
    assert isinstance(wrapper, FullyShardedDataParallel)
    assert wrapper.module is model
    assert model.get_input_embeddings() is embeddings
    assert model.get_output_embeddings() is not None


@pytest.mark.parametrize("is_finite", [True, False])
def test_weights_on_several_devices_are_finite(is_finite):
    """Here the first one is on a device without numbers, which gives what is asked for."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        model[1].weight[0, 0] = 1.0 if is_finite else torch.inf
    assert all_finite(model, torch.device("cpu")).item() == is_finite
    with FakeTensorMode(allow_non_fake_inputs=True):
        model[0].weight = torch.nn.Parameter(torch.ones(2, 2, device="cuda"))
        assert all_finite(model, torch.device("cpu")).device.type == "cpu"


def make_trainer(pairs, folder, method="em-routing", overrides=SMALL, **options):
    """A trainer without dropout."""
    tokenizer = tiny_tokenizer()
    set_seed(0)
    model_args = ModelArguments(
        method=method, size="tiny", tokenizer_name="tokenizer", config_overrides=[*overrides, "dropout=0"]
    )
    model = build_model(model_args, tokenizer)
    args = TranslationTrainingArguments(str(folder), **{**UPDATE, **options})
    return TranslationTrainer(model, args, train_dataset=pairs, data_collator=DataCollatorForSeq2Seq(tokenizer, model))


def test_with_rdrop_only_training_reads_a_batch_twice(pairs, tmp_path):
    """Evaluation would return the logits of more pairs than it was given."""
    trainer = make_trainer(pairs, tmp_path, rdrop_alpha=5.0)
    trainer.model.eval()
    rows = [pairs[index] for index in range(3)]
    _, outputs = trainer.compute_loss(trainer.model, trainer.data_collator(rows), return_outputs=True)
    assert len(outputs.logits) == 3
    assert "rdrop_loss" not in outputs


def loss_and_gradients(trainer):
    """Of the first update."""
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer.train()
    gradients = {name: before[name] - weight for name, weight in trainer.model.state_dict().items()}
    return trainer.state.log_history[0]["loss"], gradients


def assert_same(one, other):
    """Sums in another order differ in the last bits."""
    assert one[0] == pytest.approx(other[0], rel=1e-6)
    assert any(gradient.abs().max() > 1e-3 for gradient in one[1].values())
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], rtol=1e-5, atol=1e-6, msg=lambda text, at=name: at + text)


def test_data_and_validation_bleu_in_python(corpus, tmp_path):
    """With the tokenizer a trainer needs neither a collator nor a metric."""
    tokenizer = tiny_tokenizer()
    data_args = DataArguments([str(file) for file in files(corpus, "train")], max_source_length=9)
    data_args.validation_file = [str(file) for file in files(corpus, "validation")]
    args = TranslationTrainingArguments(
        tmp_path / "run", max_tokens_per_batch=60, max_steps=1, warmup_steps=0, report_to="none", use_cpu=True
    )
    model_args = ModelArguments("em-routing", "tiny", tokenizer_name="tokenizer", config_overrides=SMALL)
    model = build_model(model_args, tokenizer)
    data = load_data(data_args, args, tokenizer, model.config)
    assert len(data.train) + data.facts.pairs["too_long"] == data.facts.report.kept == 60
    assert data.facts.pairs["too_long"] > 0
    assert data.facts.validation == {"scored": len(data.validation), "too_long": 12 - len(data.validation)}
    assert len(data.validation) < 12
    sets = {"train_dataset": data.train, "eval_dataset": data.validation}
    trainer = TranslationTrainer(model, args, processing_class=tokenizer, **sets)
    trainer.train()
    assert trainer.evaluate()["eval_bleu"] >= 0
    ids = np.array([[3, 4, 5, 6, 2, -100]])
    assert trainer.compute_metrics(SimpleNamespace(predictions=ids, label_ids=ids)) == {"bleu": pytest.approx(100)}
    with pytest.raises(ValueError, match="pad_token_id is 0 in the tokenizer and 1 in the model's config"):
        load_data(data_args, args, tokenizer, MarianConfig(pad_token_id=1))


@pytest.fixture
def evaluated(corpus, tmp_path):
    """Makes trainers with a tokenizer and validation data, from options."""
    tokenizer = tiny_tokenizer()
    data_args = DataArguments([str(file) for file in files(corpus, "train")])
    data_args.validation_file = [str(file) for file in files(corpus, "validation")]
    fixed = {"max_tokens_per_batch": 60, "max_steps": 1, "warmup_steps": 0, "logging_steps": 1, "save_strategy": "no"}
    fixed |= {"report_to": "none", "use_cpu": True}

    def make(**options):
        given = {name: options.pop(name) for name in ("compute_metrics", "train_dataset") if name in options}
        args = TranslationTrainingArguments(tmp_path / "run", **{**fixed, **options})
        model_args = ModelArguments("transformer", "tiny", tokenizer_name="tokenizer", config_overrides=SMALL)
        model = build_model(model_args, tokenizer)
        data = load_data(data_args, args, tokenizer, model.config)
        sets = {"train_dataset": data.train, "eval_dataset": data.validation, **given}
        return TranslationTrainer(model, args, processing_class=tokenizer, **sets)

    return make


def test_what_a_model_or_ones_own_scores_cannot_have(evaluated, marian, pairs, tmp_path):
    assert evaluated(compute_metrics=dict).args.metric_for_best_model is None
    # Without that score the run could not choose.
    assert evaluated(compute_metrics=dict, save_strategy="best").args.metric_for_best_model == "bleu"
    with pytest.raises(ValueError, match="no R-Drop"):
        marian_trainer(marian, pairs, tmp_path, rdrop_alpha=1.0)


def test_after_training_a_score_is_what_it_is(evaluated):
    """While a run goes on, it is no number if the model has forgotten too much, so that it is never the best one."""
    trainer = evaluated()
    trainer.general_dataset = trainer.eval_dataset
    trainer.state.log_history = [{"step": 0, "eval_general_bleu": 50.0}]
    scores = trainer.evaluate()
    assert trainer.has_forgotten
    assert 0 <= scores["eval_bleu"] <= 100


def test_sources_without_references_are_translated(evaluated, pairs):
    trainer = evaluated(compute_metrics=dict, generation_max_length=5)
    sources = [{"input_ids": pairs[index]["input_ids"]} for index in range(3)]
    prediction = trainer.predict(sources)
    assert len(prediction.predictions) == 3
    assert prediction.label_ids is None
    assert all(name.startswith("test_") for name in prediction.metrics)


def test_only_the_trainers_own_validation_data_is_scored_next_to_the_general_data(evaluated):
    trainer = evaluated()
    trainer.general_dataset = trainer.eval_dataset
    for dataset, is_scored in ((trainer.eval_dataset, False), (None, True)):
        trainer.evaluate(dataset)
        assert any("eval_general_bleu" in entry for entry in trainer.state.log_history) == is_scored


def test_rows_may_have_other_columns_and_must_be_counted(evaluated):
    rows = [{"input_ids": [3, 4, 2], "labels": [4, 3, 2], "translation": {"en": "a b"}}] * 5
    evaluated(train_dataset=rows).train()
    counted = evaluated(train_dataset=IterableDataset.from_generator(lambda: iter(rows)))
    with pytest.raises(TypeError, match="IterableDataset without a length"):
        counted.train()


@pytest.mark.parametrize("differs", [{"pairs": 8}, {"update to resume from": 1}])
def test_processes_with_other_data(pairs, tmp_path, monkeypatch, differs):
    monkeypatch.setattr(resuming, "gather_object", lambda mine: [*mine, {**mine[0], **differs}])
    with pytest.raises(ValueError, match="Process 1 has"):
        make_trainer(pairs, tmp_path).train()


def test_processes_that_continue_from_other_updates(pairs, tmp_path, monkeypatch):
    options = {"save_strategy": "steps", "save_steps": 1}
    make_trainer(pairs, tmp_path, **options).train()
    monkeypatch.setattr(resuming, "gather_object", lambda mine: [*mine, {**mine[0], "update to resume from": None}])
    with pytest.raises(ValueError, match="Process 1 has update to resume from None, and process 0 has 1"):
        make_trainer(pairs, tmp_path, max_steps=2, **options).train("last")


@pytest.mark.parametrize(("counts_all", "reduction"), [(True, "sum"), (False, "mean")])
def test_losses_of_processes_are_put_together_as_they_were_divided(counts_all, reduction, pairs, tmp_path, monkeypatch):
    trainer = make_trainer(pairs, tmp_path)
    trainer.args.average_tokens_across_devices = counts_all
    asked = []
    monkeypatch.setattr(trainer.meter, "entry", lambda update, _, how: asked.append((update, how)) or {})
    trainer.train()
    assert asked == [(1, reduction)]


def test_a_loss_that_is_no_number_ends_a_run(pairs, tmp_path):
    trainer = make_trainer(pairs, tmp_path)
    with torch.no_grad():
        next(trainer.model.parameters()).fill_(torch.nan)
    with pytest.raises(DivergenceError, match="loss is nan at update 1"):
        trainer.train()


def test_scores_are_only_missed_where_they_choose(pairs, tmp_path, caplog):
    options = {"save_strategy": "steps", "save_steps": 1}
    make_trainer(pairs, tmp_path, **options).train()
    make_trainer(pairs, tmp_path, bleu_tokenize="char", **options).train("last")
    assert "Resuming from" in caplog.text
    assert "chosen from now on" not in caplog.text


def test_an_unknown_tokenizer_of_bleu_is_refused_at_once(tmp_path):
    args = TranslationTrainingArguments(tmp_path, bleu_tokenize="none at all", **UPDATE)
    with pytest.raises(UserError, match="'none at all' is unknown"):
        TranslationTrainer(tiny_model(), args, processing_class=tiny_tokenizer())


def test_options_of_generate_are_those_of_both_data_sets(evaluated):
    """Its own way to decode instead of the engine, and scores without BLEU."""
    trainer = evaluated(compute_metrics=lambda _: {"rouge": 1.0})
    trainer.general_dataset = trainer.eval_dataset
    calls = []

    def decode(model, *args, **options):
        calls.append(options)
        return decoding.generate(model, *args, **options)

    trainer.evaluate(custom_generate=decode)
    batches = len(trainer.get_eval_dataloader())
    assert len(calls) == 2 * batches
    general = [entry for entry in trainer.state.log_history if "eval_general_loss" in entry]
    assert len(general) == 1
    assert not [name for name in general[0] if name.endswith(("rouge", "bleu"))]


def test_a_collator_of_ones_own_may_read_other_columns(pairs, tmp_path):
    columns = []

    def collate(rows):
        columns.append(set(rows[0]))
        return {name: torch.tensor([row[name] for row in rows]) for name in ("input_ids", "labels")}

    rows = [{"input_ids": [3, 2], "labels": [4, 2], "label": 1, "label_ids": 1, "mine": 1, "text": "a"}] * 4
    for removes, expected in ((True, {*rows[0]} - {"text"}), (False, {*rows[0]})):
        options = {"remove_unused_columns": removes, "label_names": ["labels", "mine"]}
        args = TranslationTrainingArguments(tmp_path, **UPDATE, **options)
        trainer = TranslationTrainer(tiny_model(), args, collate, rows)
        next(iter(trainer.get_train_dataloader()))
        assert columns.pop() == expected


@pytest.mark.parametrize("is_first", [True, False])
def test_one_process_writes_what_goes_to_the_hub(is_first, tmp_path):
    """Of a model without a source that is its configuration."""
    args, state = SimpleNamespace(output_dir=tmp_path), SimpleNamespace(is_world_process_zero=is_first)
    SourceCallback().on_push_begin(args, state, None, model=tiny_model())
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"] * is_first


def test_other_errors_than_that_of_a_full_disk_stay_what_they_are():
    with pytest.raises(RuntimeError, match="another error"), explained_full_disk("run"):
        raise RuntimeError("another error")
    with pytest.raises(OSError, match="run cannot be written"), explained_full_disk("run"):
        raise RuntimeError("inline_container.cc:668: unexpected pos 64 vs 0")


def validation_bleu(tokenizer, translations, references):
    """What evaluation while training makes of texts that a tokenizer has turned into ids."""
    predictions = tokenizer(text_target=translations, padding=True, return_tensors="np")["input_ids"]
    labels = tokenizer(text_target=references, padding=True, return_tensors="np")["input_ids"]
    labels[labels == tokenizer.pad_token_id] = -100
    return bleu_metric(tokenizer)(EvalPrediction(predictions, labels))["bleu"]


def bleu_of_texts(translations, references):
    return score_translations(translations, [references], metrics=("bleu",))["bleu"]["score"]


WORDS = ["a b c d e", "f g"], ["a 漢 b c d 字 e", "f g"]
GERMAN = ["das alte Haus ist grün", "zwei"], ["das 漢 alte Haus ist 字 grün", "zwei"]
BYTES = ["das ist, wie gesagt, <gut>", "ein Café."], ["das ist, wie gesagt, <wahr>", "ein 漢 Café."]


def word_tokenizer(_):
    """Its token 0 is a word."""
    vocabulary = {token: number for number, token in enumerate([*"abcdefg", "<pad>", "<unk>", "</s>"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


@pytest.mark.parametrize(
    ("texts", "tokenizer"),
    [
        (WORDS, lambda _: tiny_tokenizer()),
        (WORDS, word_tokenizer),
        (GERMAN, lambda folder: marian_tokenizer(folder, False)),
        (GERMAN, lambda folder: marian_tokenizer(folder, True)),
        (BYTES, lambda _: train_joint_bpe(BYTES[1], 300)),
    ],
    ids=["words", "words from 0", "one vocabulary", "two vocabularies", "bytes"],
)
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_validation_bleu_is_that_of_the_texts(tmp_path, texts, tokenizer):
    """Also if references have words that the tokenizer does not know."""
    translations, references = texts
    expected = bleu_of_texts(translations, references)
    assert expected < 80
    assert validation_bleu(tokenizer(tmp_path), translations, references) == pytest.approx(expected)


def test_an_end_that_also_stands_for_unknown_words_is_no_word():
    tokenizer = word_tokenizer(None)
    tokenizer.unk_token = "</s>"
    translations, references = ["a b c d e", "f g"], ["a b d c e f", "f g"]
    with_end = [f"{text} </s>" for text in references]
    expected = bleu_of_texts(translations, references)
    assert validation_bleu(tokenizer, translations, with_end) == pytest.approx(expected)


def test_the_default_metric_is_bleu_of_the_words_that_are_asked_for(tmp_path):
    tokenizer = train_joint_bpe(BYTES[1], 300)
    labels = tokenizer(BYTES[1], padding=True, return_tensors="np")["input_ids"]
    predictions = tokenizer(BYTES[0], padding=True, return_tensors="np")["input_ids"]
    for words in ("13a", "char"):
        args = TranslationTrainingArguments(tmp_path, bleu_tokenize=words, use_cpu=True, report_to="none")
        found = default_metrics(args, tokenizer)(EvalPrediction(predictions, labels))
        expected = score_translations(BYTES[0], [BYTES[1]], metrics=("bleu",), tokenize=words)["bleu"]["score"]
        assert found == {"bleu": pytest.approx(expected)}
    assert default_metrics(args, None) is None
    args.predict_with_generate = False
    assert default_metrics(args, tokenizer) is None


def test_a_folder_is_of_one_run(pairs, tmp_path, monkeypatch):
    """As it is for the command."""
    monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
    run, options = tmp_path / "run", {"save_strategy": "steps", "save_steps": 1}
    run.mkdir()
    trainer = make_trainer(pairs, run, **options)
    with FileLock(run / LOCK), pytest.raises(BlockingIOError):
        trainer.train()
    at_work = []
    trainer.training_step = lambda *args: (
        at_work.append((run / LOCK).exists()) or type(trainer).training_step(trainer, *args)
    )
    trainer.train()
    trainer.train()
    assert at_work == [True] * 2
    assert [file.name for file in run.iterdir()] == ["checkpoint-1"]
    with pytest.raises(ValueError, match="holds another run"):
        make_trainer(pairs, run, learning_rate=0.5).train()
    make_trainer(pairs, run, overwrite_output_dir=True).train()
    assert not [*run.iterdir()]


def test_a_model_of_other_shapes_does_not_continue_a_run(pairs, tmp_path):
    """It has weights of the same names."""
    options = {"save_strategy": "steps", "save_steps": 1}
    make_trainer(pairs, tmp_path, **options).train()
    wider = [field for field in SMALL if not field.startswith("encoder_ffn_dim")] + ["encoder_ffn_dim=24"]
    trainer = make_trainer(pairs, tmp_path, overrides=wider, max_steps=2, **options)
    with pytest.raises(ValueError, match="checkpoint-1 had weights"):
        trainer.train("last")


def as_of_processes(checkpoint, processes):
    """Let a checkpoint be one of a run on several processes, which made the same number of batches an update."""
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    state["stateful_callbacks"]["RunIdentity"]["attributes"]["dealt_to"] = processes
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    for process in range(processes):
        shutil.copy(checkpoint / "rng_state.pth", checkpoint / f"rng_state_{process}.pth")


def test_on_fewer_processes_a_run_has_the_same_pairs_in_the_same_updates(pairs, tmp_path):
    """The epoch's 8 batches of two processes would be 7 of one; also where it is resumed once more."""
    options = {"max_tokens_per_batch": 70, "save_strategy": "steps", "save_steps": 1}
    make_trainer(pairs, tmp_path, gradient_accumulation_steps=2, **options).train()
    as_of_processes(tmp_path / "checkpoint-1", 2)
    batches = list(TokenBudgetBatchSampler(longest_sides(pairs), 70, num_replicas=2, seed=42))
    assert len(batches) == 8
    for update in (1, 2):
        trainer = make_trainer(pairs, tmp_path, gradient_accumulation_steps=2, max_steps=update + 1, **options)
        found = labels_of_batches(trainer)
        trainer.train(True)
        assert found == [sorted(pairs[at]["labels"] for at in batch) for batch in batches[2 * update : 2 * update + 2]]


def test_the_speed_at_the_end_counts_pairs(pairs, tmp_path):
    """Batches have as many pairs as fill their budget, and the Trainer expects 8."""
    batches = len(make_trainer(pairs, tmp_path, max_tokens_per_batch=200).get_train_dataloader())
    trainer = make_trainer(pairs, tmp_path, max_tokens_per_batch=200, max_steps=2 * batches)
    metrics = trainer.train().metrics
    assert 2 * batches * 8 != 120
    assert metrics["train_samples_per_second"] * metrics["train_runtime"] == pytest.approx(120, rel=0.01)
    assert trainer.state.log_history[-1]["train_samples_per_second"] == metrics["train_samples_per_second"]


def test_a_finished_trainer_lets_its_model_go(pairs, tmp_path):
    """A notebook trains one model after the other."""
    trainer = make_trainer(pairs, tmp_path, ema_decay=0.5, predict_with_generate=True, generation_max_length=4)
    trainer.train()
    trainer.evaluate([pairs[0]])
    model = weakref.ref(trainer.model)
    del trainer
    gc.collect()
    assert model() is None


def test_processes_among_which_batches_cannot_be_dealt(pairs, tmp_path, monkeypatch):
    options = {"max_tokens_per_batch": 70, "save_strategy": "steps", "save_steps": 1}
    make_trainer(pairs, tmp_path, gradient_accumulation_steps=2, **options).train()
    trainer = make_trainer(pairs, tmp_path, max_steps=2, gradient_accumulation_steps=2, **options)
    trainer.train(True)
    with pytest.raises(ValueError, match="is of update 2"):
        make_trainer(pairs, tmp_path, gradient_accumulation_steps=2, **options).train(True)
    monkeypatch.setattr(TranslationTrainingArguments, "world_size", 2)
    with pytest.raises(ValueError, match="cut for 1 processes"):
        trainer.get_train_dataloader()


def test_the_batches_of_evaluation_are_evened_out(pairs, tmp_path):
    """A process that had fewer than others would leave them waiting. Those of training are even by themselves."""
    trainer = make_trainer(pairs, tmp_path)
    assert trainer.get_train_dataloader()
    assert trainer.accelerator.even_batches


def labels_of_batches(trainer):
    """A list that fills with the labels of every batch that is trained on."""
    found, training_step = [], trainer.training_step

    def step(model, inputs, *args):
        found.append(sorted(row[row != -100].tolist() for row in inputs["labels"]))
        return training_step(model, inputs, *args)

    trainer.training_step = step
    return found


@pytest.mark.parametrize("bf16", [False, True])
def test_validation_decodes_with_an_engine_of_the_weights_at_the_time(bf16, pairs, tmp_path, monkeypatch):
    options = {"max_steps": 3, "eval_steps": 1, "predict_with_generate": True, "bf16": bf16}
    trainer = make_trainer(pairs, tmp_path, generation_num_beams=2, generation_max_length=8, **options)
    trainer.eval_dataset, trainer.args.eval_strategy = [pairs[index] for index in range(6)], "steps"
    engines, found, expected = [], [], []

    def compute_metrics(prediction):
        batch = trainer.data_collator(trainer.eval_dataset)
        source = {name: batch[name] for name in ("input_ids", "attention_mask")}
        model = copy.deepcopy(trainer.model)
        # Under autocast accelerate puts another in the place of the class's.
        assert (vars(model).pop("forward", None) is not None) == bf16
        expected.append(model.generate(**source, num_beams=2, max_length=8).tolist())
        found.append(prediction.predictions[:, : len(expected[-1][0])].tolist())
        return {"bleu": 0.0}

    monkeypatch.setattr(trainer, "compute_metrics", compute_metrics)
    translate = Engine.translate
    monkeypatch.setattr(Engine, "translate", lambda engine, *args: engines.append(engine) or translate(engine, *args))
    trainer.train()
    assert found == expected
    assert len(set(map(str, expected))) == len(set(engines)) == 3
    assert trainer.model not in decoding.engine._engines


@pytest.mark.parametrize(
    ("method", "fields", "expected"),
    [
        ("gdr", "guided_routing_iterations=1", True),
        ("gdr", "guided_routing_iterations=2", False),
        ("rnmt-gdr", "guided_routing_iterations=1", True),
        ("rnmt-gdr", "guided_routing_iterations=2", False),
        ("gdr-classifier", "guided_routing_iterations=1", False),
        ("transformer", "share_encoder_decoder_embeddings=true", True),
        ("transformer", "share_encoder_decoder_embeddings=false", False),
        ("transformer", "share_encoder_decoder_embeddings=false encoder_layerdrop=1.0", True),
        ("transformer", "share_encoder_decoder_embeddings=false decoder_layerdrop=1.0", True),
    ],
)
def test_processes_do_not_wait_for_gradients_that_never_come(method, fields, expected, pairs, tmp_path):
    small = "tie_word_embeddings=false" if method == "transformer" else "guided_capsule_dim=4"
    trainer = make_trainer(pairs, tmp_path, method, ["d_model=16", *fields.split(), small])
    trainer.model.train()(**next(iter(trainer.get_train_dataloader()))).loss.backward()
    lacks = any(weight.requires_grad and weight.grad is None for weight in trainer.model.parameters())
    # What DistributedDataParallel is made with.
    asked = trainer.accelerator.ddp_handler.find_unused_parameters
    assert (lacks, trainer.args.ddp_find_unused_parameters, asked) == (expected,) * 3


@pytest.mark.parametrize("family", ["M2M100", "MBart"])
@pytest.mark.parametrize("is_tied", [True, False])
def test_there_is_an_embedding_that_nothing_reads_if_none_is_tied(family, is_tied):
    model = FAMILIES[family](tie_word_embeddings=is_tied, encoder_layerdrop=0, decoder_layerdrop=0).train()
    ids = torch.tensor([[3, 4, 2]])
    model(input_ids=ids, labels=ids).loss.backward()
    lacks = any(weight.requires_grad and weight.grad is None for weight in model.parameters())
    assert (lacks, has_unread_weights(model)) == (not is_tied, not is_tied)


def test_batches_hold_the_budget_and_an_epoch_every_pair(pairs, tmp_path):
    loader = make_trainer(pairs, tmp_path, max_tokens_per_batch=60).get_train_dataloader()
    epochs = [list(loader) for _ in range(2)]
    for batches in epochs:
        for batch in batches:
            assert max(batch["input_ids"].numel(), batch["labels"].numel()) <= 60
        sources = Counter(tuple(row[row != 0].tolist()) for batch in batches for row in batch["input_ids"])
        assert sources == Counter(tuple(pairs[index]["input_ids"]) for index in range(len(pairs)))
    assert not all(torch.equal(*both) for both in zip(*([batch["labels"][0] for batch in epoch] for epoch in epochs)))


def test_accumulation_is_one_big_batch(pairs, tmp_path):
    whole = make_trainer(pairs, tmp_path, max_tokens_per_batch=0, per_device_train_batch_size=24)
    parts = make_trainer(
        pairs, tmp_path, max_tokens_per_batch=0, per_device_train_batch_size=6, gradient_accumulation_steps=4
    )
    assert_same(loss_and_gradients(whole), loss_and_gradients(parts))


def test_accumulated_token_budgets_are_one_big_batch(pairs, tmp_path):
    number = len(make_trainer(pairs, tmp_path, max_tokens_per_batch=60).get_train_dataloader())
    parts = make_trainer(pairs, tmp_path, max_tokens_per_batch=60, gradient_accumulation_steps=number)
    whole = make_trainer(pairs, tmp_path, max_tokens_per_batch=11 * len(pairs))
    assert_same(loss_and_gradients(whole), loss_and_gradients(parts))


FIELDS = {field.name for field in dataclasses.fields(TranslationTrainingArguments)}
CHECKPOINTING = [name for name in ("activation_checkpointing", "gradient_checkpointing") if name in FIELDS]


# Newer Transformers have two names for it, and deprecate the older one.
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("name", CHECKPOINTING)
def test_checkpointing_gives_the_same_gradients(pairs, tmp_path, name):
    plain = make_trainer(pairs, tmp_path)
    checkpointed = make_trainer(pairs, tmp_path, **{name: True})
    assert_same(loss_and_gradients(plain), loss_and_gradients(checkpointed))
    assert is_checkpointed(checkpointed.model)
    assert not is_checkpointed(plain.model)


def is_checkpointed(model):
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


class Averaging(torch.optim.SGD):
    """Like schedule-free optimizers it has other weights in the model while it trains: here 1 more."""

    in_training = False

    def train(self):
        self._switch(True)

    def eval(self):
        self._switch(False)

    def _switch(self, in_training):
        for weight in self.param_groups[0]["params"]:
            weight.data += in_training - self.in_training
        self.in_training = in_training


def test_what_an_optimizer_averages_is_saved(pairs, tmp_path):
    trainer = make_trainer(pairs, tmp_path, save_strategy="steps", save_steps=1, max_steps=2)
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer.optimizer = Averaging(trainer.model.parameters(), lr=0.0)
    trainer.train()
    trainer.save_model()
    for folder in (tmp_path / "checkpoint-1", tmp_path / "checkpoint-2", tmp_path):
        saved = type(trainer.model).from_pretrained(folder).state_dict()
        for name, weight in before.items():
            torch.testing.assert_close(saved[name], weight)
    for name, weight in trainer.model.state_dict().items():
        torch.testing.assert_close(weight, before[name])


def test_a_checkpoint_that_is_written_again_is_not_whole_until_its_end(pairs, tmp_path):
    """A run that was killed in between would continue from weights of one run, and a state of another."""
    trainer = make_trainer(pairs, tmp_path, save_strategy="steps", save_steps=1)
    trainer.train()
    checkpoint = tmp_path / "checkpoint-1"
    assert checkpoint_folders.is_whole(checkpoint)
    trainer.save_model(checkpoint)
    assert not checkpoint_folders.is_whole(checkpoint)
    # The state of the run next to its result stays.
    trainer.save_state()
    trainer.save_model()
    assert checkpoint_folders.is_whole(tmp_path)


def test_tied_weights_that_processes_gathered_are_saved_once(pairs, tmp_path):
    """FSDP gathers them under each of their names."""
    trainer = make_trainer(pairs, tmp_path)
    gathered = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer._save(tmp_path, gathered)
    tied = trainer.model.all_tied_weights_keys.keys()
    assert tied <= gathered.keys()
    assert not tied & load_file(tmp_path / "model.safetensors").keys()


@pytest.fixture
def marian(tmp_path):
    """The folder of a Marian model with stored positions, as OPUS-MT checkpoints have them."""
    model = tiny_model()
    model.config.dropout, model._keys_to_ignore_on_save = 0.0, None
    model.save_pretrained(tmp_path / "marian")
    return tmp_path / "marian"


def marian_trainer(folder, pairs, output_dir, **options):
    args = TranslationTrainingArguments(output_dir, **{**UPDATE, **options})
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    return TranslationTrainer(model, args, train_dataset=pairs, processing_class=tiny_tokenizer())


@pytest.mark.parametrize(("family", "smoothing"), [("marian", 0), ("M2M100", 0), ("MBart", 0), ("marian", 0.1)])
def test_accumulation_with_models_of_transformers(family, smoothing, marian, pairs, tmp_path):
    """Transformers ignores the number of tokens of an update: its loss and gradients are four times too large.

    Its label smoothing does not ignore it.
    """
    if family != "marian":
        FAMILIES[family](dropout=0, attention_dropout=0, encoder_layerdrop=0, decoder_layerdrop=0).save_pretrained(
            marian
        )
    options = {"per_device_train_batch_size": 24, "label_smoothing_factor": smoothing}
    whole = loss_and_gradients(marian_trainer(marian, pairs, tmp_path, **options))
    options |= {"per_device_train_batch_size": 6, "gradient_accumulation_steps": 4}
    assert_same(whole, loss_and_gradients(marian_trainer(marian, pairs, tmp_path, **options)))


@pytest.mark.parametrize("scale", [1, 2])
def test_positions_of_transformers_marian(marian, pairs, tmp_path, scale):
    """They are not trained, and others than sinusoids are saved."""
    name = "model.encoder.embed_positions.weight"
    model = MarianMTModel.from_pretrained(marian)
    with torch.no_grad():
        model.get_parameter(name).mul_(scale)
    model._keys_to_ignore_on_save = None
    model.save_pretrained(marian)
    trainer = marian_trainer(marian, pairs, tmp_path, per_device_train_batch_size=24)
    trainer.train()
    trainer.save_model()
    trainer.create_model_card()
    assert (tmp_path / "README.md").is_file()
    assert (name in load_file(tmp_path / "model.safetensors")) == (scale == 2)
    assert torch.equal(MarianMTModel.from_pretrained(tmp_path).state_dict()[name], model.state_dict()[name])


def test_rounded_sinusoids_are_sinusoids(tmp_path):
    """As they are in checkpoints in half precision."""
    model = tiny_model()
    positions = model.get_parameter("model.encoder.embed_positions.weight")
    with torch.no_grad():
        positions.copy_(positions.half())
    assert not torch.allclose(positions, model.model.encoder.embed_positions.create_weight(), atol=1e-5)
    freeze_positions(model)
    model.save_pretrained(tmp_path)
    assert not [name for name in load_file(tmp_path / "model.safetensors") if "embed_positions" in name]


def test_marian_has_smoothing_only_from_the_trainer(marian, pairs, tmp_path):
    losses = []
    for smoothing in (0, 0.1):
        trainer = marian_trainer(marian, pairs, tmp_path, label_smoothing_factor=smoothing)
        losses.append(loss_and_gradients(trainer)[0])
    assert losses[0] != losses[1]


def test_what_a_checkpoint_of_marian_leaves_out_is_not_missed(marian, pairs, tmp_path, caplog):
    options = {"save_strategy": "steps", "save_steps": 1}
    marian_trainer(marian, pairs, tmp_path / "run", **options).train()
    file = tmp_path / "run" / "checkpoint-1" / "model.safetensors"
    weights = load_file(file)
    assert not [name for name in weights if "embed_positions" in name]
    marian_trainer(marian, pairs, tmp_path / "run", max_steps=2, **options).train(file.parent)
    assert "missing keys" not in caplog.text
    # A weight that the model does not have is told.
    save_file({**weights, "old": torch.zeros(1)}, file, metadata={"format": "pt"})
    marian_trainer(marian, pairs, tmp_path / "run", max_steps=2, **options).train(file.parent)
    assert "old" in caplog.text


def test_a_model_that_replaces_another_is_the_one_that_is_trained(pairs, tmp_path):
    trainer = make_trainer(pairs, tmp_path)
    replaced = trainer.model
    before = {name: weight.clone() for name, weight in replaced.state_dict().items()}
    model = copy.deepcopy(replaced)
    trainer.replace_model(model)
    trainer.train()
    for one, is_trained in ((replaced, False), (model, True)):
        after = one.state_dict()
        assert any(not torch.equal(weight, after[name]) for name, weight in before.items()) == is_trained


def test_positions_of_a_model_that_replaces_another(marian, pairs, tmp_path):
    """As that of the start does if every checkpoint has forgotten too much."""
    name = "model.encoder.embed_positions.weight"
    trainer = marian_trainer(marian, pairs, tmp_path)
    model = MarianMTModel.from_pretrained(marian)
    with torch.no_grad():
        model.get_parameter(name).mul_(2)
    trainer.replace_model(model)
    trainer.save_model()
    assert not model.get_parameter(name).requires_grad
    assert torch.equal(MarianMTModel.from_pretrained(tmp_path).get_parameter(name), model.get_parameter(name))


class Seen(TrainerCallback):
    """What a user's callback sees at the end of training, and after each update."""

    def __init__(self):
        self.epochs = []
        self.weight = None

    def on_step_end(self, args, state, control, **kwargs):
        self.epochs.append(state.epoch)

    def on_train_end(self, args, state, control, **kwargs):
        self.weight = next(kwargs["model"].parameters()).clone()


def test_callbacks_see_the_averages_and_the_share_of_a_stream(corpus, tmp_path):
    tokenizer = tiny_tokenizer()
    lengths = {"max_source_length": 30, "max_target_length": 30}
    data_args = DataArguments([str(file) for file in files(corpus, "train")], streaming=True, **lengths)
    options = {**UPDATE, "max_steps": 4, "max_tokens_per_batch": 60, "ema_decay": 0.9}
    args = TranslationTrainingArguments(tmp_path, **options)
    model = build_model(ModelArguments("transformer", "tiny", tokenizer_name="name", config_overrides=SMALL), tokenizer)
    stream = load_data(data_args, args, tokenizer, model.config).train
    seen = Seen()
    trainer = TranslationTrainer(model, args, processing_class=tokenizer, train_dataset=stream, callbacks=[seen])
    trainer.train()
    assert seen.epochs == [0.25, 0.5, 0.75, 1]
    assert [entry["epoch"] for entry in trainer.state.log_history if "loss" in entry] == seen.epochs
    assert torch.equal(seen.weight, next(model.parameters()))
    # The trainer skips no batches of a stream. The option stays as it was.
    assert not trainer.args.ignore_data_skip


def test_an_optimizer_of_ones_own_keeps_its_rates(pairs, tmp_path):
    trainer = make_trainer(pairs, tmp_path, added_learning_rate=1e-3)
    assert len({group["lr"] for group in trainer.create_optimizer().param_groups}) == 2
    trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.5)
    assert [group["lr"] for group in trainer.create_optimizer().param_groups] == [0.5]


@pytest.mark.parametrize(("warmup", "is_warned"), [(3, False), (4, True), (5, True)])
def test_a_run_that_ends_in_its_warmup(warmup, is_warned, pairs, tmp_path, caplog):
    trainer = make_trainer(pairs, tmp_path, warmup_steps=warmup)
    trainer.create_optimizer_and_scheduler(4)
    assert ("it ends before the learning rate reaches 1.0" in caplog.text) == is_warned


def test_a_weight_that_is_not_finite_on_another_process(pairs, tmp_path, monkeypatch):
    trainer = make_trainer(pairs, tmp_path)
    trainer.save_model()
    monkeypatch.setattr(TranslationTrainingArguments, "world_size", 2)
    monkeypatch.setattr(trainer.accelerator, "gather", lambda flag: torch.stack([flag, torch.zeros_like(flag)]))
    with pytest.raises(DivergenceError, match="a weight is not finite at update 0"):
        trainer.save_model()


def test_one_process_writes_the_card(pairs, tmp_path, monkeypatch):
    trainer = make_trainer(pairs, tmp_path)
    trainer.recorder = SimpleNamespace(model_card=lambda _: ModelCard("A card."))
    for is_first in (False, True):
        monkeypatch.setattr(trainer, "is_world_process_zero", lambda: is_first)  # noqa: B023
        trainer.create_model_card()
        assert (tmp_path / "README.md").exists() == is_first


@pytest.mark.parametrize("push", [True, False])
def test_the_model_is_saved_without_a_push(push, pairs, tmp_path, monkeypatch):
    trainer = make_trainer(pairs, tmp_path)
    monkeypatch.setattr(trainer.args, "push_to_hub", push)
    monkeypatch.setattr(trainer, "push_to_hub", None)
    trainer.save_without_push()
    assert (tmp_path / "model.safetensors").is_file()
    assert trainer.args.push_to_hub == push


# The words that each of their modules reads pass through these.
LAYERS = {"CapsuleAggregatedMarianEncoderLayer", "CapsuleAggregatedMarianDecoderLayer", "BidirectionalLayer"}
LAYERS |= {"CapsuleAggregatedM2M100EncoderLayer", "CapsuleAggregatedM2M100DecoderLayer"}
LAYERS |= {"RecurrentLayer", "BidirectionalGRULayer", "ConditionalGRU"}


def model_of(method):
    overrides = dict(parse_override(text) for text in small(method))
    return AutoModelForSeq2SeqLM.from_config(preset_config(method, "tiny", vocab_size=30, **overrides))


def plugin(version):
    return FullyShardedDataParallelPlugin(fsdp_version=version, auto_wrap_policy="transformer_based_wrap")


@pytest.mark.parametrize("method", METHODS)
def test_every_layer_is_wrapped(method):
    with torch.device("meta"):
        model = model_of(method)
    layers = [module for module in model.modules() if type(module).__name__ in LAYERS]
    assert layers
    older = plugin(1)
    older.set_auto_wrap_policy(model)
    wraps = fsdp2_prepare_auto_wrap_policy(plugin(2), model)
    for module in layers:
        assert wraps(module)
        assert older.auto_wrap_policy(module, recurse=False, nonwrapped_numel=1)
    assert not wraps(model)
