"""Checkpoints load, translate, train and are saved again where this package does not exist."""

import itertools
import json
import re

import pytest
import torch
from elsewhere import run_elsewhere
from tiny_marian import marian_tokenizer, tiny_tokenizer
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    pipeline,
)

from hf_capsule_mt import (
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianForSequenceClassification,
    __version__,
    preset_config,
)
from hf_capsule_mt.configuration import method_config_class
from hf_capsule_mt.configuration.source import source_files as files_for

SENTENCES = ["a b c", "d", "e f g h"]
TINY = {"d_model": 16, "encoder_layers": 2, "vocab_size": 29}
TWO_STACKS = {**TINY, "decoder_layers": 2}
SMALL = {**TWO_STACKS, "init_std": 0.7}
EVERYTHING = {
    "head_aggregation": "em_routing",
    "head_aggregation_decoder_layers": None,
    "head_aggregation_cross_layers": None,
    "label_smoothing": 0.1,
}
KINDS = {
    "em-routing": {**SMALL, **EVERYTHING},
    "gdr": {**SMALL, **EVERYTHING, "layer_aggregation": "linear", "guided_capsule_dim": 4},
    "gdr-attention": {**SMALL, "guided_capsule_dim": 4},
    "capsnmt": {**TWO_STACKS, "label_smoothing": 0.1},
    "rnmt": TINY,
    "rnmt-gdr": {**TINY, "label_smoothing": 0.1, "guided_capsule_dim": 4},
}
FAMILIES = ("em-routing", "capsnmt", "rnmt")
ADAPTERS = {
    "em-routing": "decoding_marian_adapter.py",
    "capsnmt": "decoding_caps_nmt_adapter.py",
    "rnmt": "decoding_rnmt_adapter.py",
}
BATCH = {"input_ids": [[3, 4, 5, 2], [6, 2, 0, 0]], "attention_mask": [[1, 1, 1, 1], [1, 1, 0, 0]]}
LABELS = [[7, 8, 2], [9, 2, -100]]


def source_files(method="em-routing"):
    """What a checkpoint of a family carries."""
    references = method_config_class(method).auto_classes.values()
    return files_for(frozenset(reference.partition(".")[0] for reference in references))


def save(folder, method="em-routing", **fields):
    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(preset_config(method, "tiny", **{**KINDS[method], **fields})).eval()
    model.generation_config.max_new_tokens = 7
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return model


def tensors(**lists):
    return {name: torch.tensor(value) for name, value in lists.items()}


LOAD = """
import sys
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
trust = {"trust_remote_code": True}
torch.set_grad_enabled(False)  # it may choose another kernel, with another rounding
batch = {name: torch.tensor(value) for name, value in batch.items()}
for method, folder in folders.items():
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, **trust)
    base = AutoModel.from_pretrained(folder, **trust)
    translator = pipeline("translation", model=folder, device="cpu", **trust)
    translations = translator(sentences, num_beams=2)
    engine = sys.modules[type(translator.model).__module__.rpartition(".")[0] + ".decoding_generation"]
    found[method] = {
        "config": AutoConfig.from_pretrained(folder, **trust).model_type,
        "ids": AutoTokenizer.from_pretrained(folder, **trust)(sentences)["input_ids"],
        "logits": model(**batch, labels=torch.tensor(labels)).logits.tolist(),
        "hidden": base(**batch, decoder_input_ids=torch.tensor([[0, 3], [0, 4]])).last_hidden_state.tolist(),
        "translations": [result["translation_text"] for result in translations],
        "with the engine": translator.model in engine._engines,
        "without it": translator(sentences, num_beams=2, engine="transformers") == translations,
        "untold": pipeline(model=folder, device="cpu", **trust).task,
        "tagged": told(translator, tagged, tags=True, keep="[xy]"),
        "long": told(translator, "a " * 999),
    }
"""
TELL = """
def told(translator, *args, **options):
    try:
        return str(translator(*args, **options, max_new_tokens=9))
    except ValueError as error:
        return str(error)
"""
TAGGED = "<p>a <b>c x</b> d</p><p>e</p>"


@pytest.mark.slow
def test_load_and_translate_elsewhere(tmp_path):
    models = {method: save(tmp_path / method, method) for method in KINDS}
    folders = {method: str(tmp_path / method) for method in KINDS}
    texts = {"sentences": SENTENCES, "tagged": TAGGED}
    found = run_elsewhere(TELL + LOAD, tmp_path, folders=folders, **texts, batch=BATCH, labels=LABELS)
    names = {}
    exec(TELL, names)
    words = tensors(**BATCH, decoder_input_ids=[[0, 3], [0, 4]])
    for method, model in models.items():
        with torch.no_grad():
            translator = pipeline("translation", model=folders[method], device="cpu")
            here = translator(SENTENCES, num_beams=2)
            tagged = names["told"](translator, TAGGED, tags=True, keep="[xy]")
            if method == "capsnmt":
                assert "a caps_nmt model has no attention" in tagged
            else:
                assert sorted(re.findall("<[^>]*>", tagged)) == sorted(re.findall("<[^>]*>", TAGGED))
            assert found[method] == {
                "config": model.config.model_type,
                "ids": tiny_tokenizer()(SENTENCES)["input_ids"],
                "logits": model(**tensors(**BATCH, labels=LABELS)).logits.tolist(),
                "hidden": model.model(**words).last_hidden_state.tolist(),
                "translations": [result["translation_text"] for result in here],
                "with the engine": True,
                "without it": True,
                "untold": "translation",
                "tagged": tagged,
                "long": names["told"](translator, "a " * 999),
            }, method


TRAIN_AND_SAVE = """
from itertools import product
from transformers import AutoModelForSeq2SeqLM
batch = {name: torch.tensor(value) for name, value in batch.items()}
labels = torch.tensor(labels)
for (before, after), method in product(generations, methods):
    model = AutoModelForSeq2SeqLM.from_pretrained(f"{before}/{method}", trust_remote_code=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(**batch, labels=labels).loss.backward()
    optimizer.step()
    model.save_pretrained(f"{after}/{method}")
    found.setdefault(method, model(**batch, labels=labels).logits.tolist())
"""


@pytest.mark.slow
def test_train_and_are_saved_again_elsewhere(tmp_path):
    first, second, third = folders = [tmp_path / name for name in ("first", "second", "third")]
    # From where the second was saved, a third time.
    generations = [list(map(str, pair)) for pair in itertools.pairwise(folders)]
    methods = [*FAMILIES, "gdr"]
    models = {method: save(first / method, method) for method in methods}
    batch, options = tensors(**BATCH, labels=LABELS), {"methods": methods, "batch": BATCH, "labels": LABELS}
    found = run_elsewhere(TRAIN_AND_SAVE, tmp_path, generations=generations, **options)
    for method, before in models.items():
        assert found[method] != before(**batch).logits.tolist()
        for name, text in source_files(method).items():
            assert (second / method / name).read_text(encoding="utf-8") == text
        assert (second / method / "config.json").read_bytes() == (first / method / "config.json").read_bytes()
        # Here, without remote code.
        model = AutoModelForSeq2SeqLM.from_pretrained(second / method)
        assert type(model) is type(before)
        assert model(**batch).logits.tolist() == found[method]
    for method in methods:
        again = {file.name for file in (second / method).iterdir()}
        assert {file.name for file in (third / method).iterdir()} == again


@pytest.mark.slow
def test_classifiers_load_elsewhere(tmp_path):
    torch.manual_seed(0)
    config = preset_config("head-em-routing", "tiny", num_labels=5, **SMALL)
    model = CapsuleAggregatedMarianForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path / "checkpoint")
    code = """
from transformers import AutoModelForSequenceClassification
batch = {name: torch.tensor(value) for name, value in batch.items()}
try:
    AutoModelForSequenceClassification.from_pretrained(folder)
except ValueError as error:
    found["untrusted"] = str(error)
model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
found["logits"] = model(**batch).logits.tolist()
"""
    found = run_elsewhere(code, tmp_path, folder=str(tmp_path / "checkpoint"), batch=BATCH)
    assert "trust_remote_code=True" in found["untrusted"]
    assert found["logits"] == model(**tensors(**BATCH)).logits.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("separate_vocabs", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_an_opus_mt_checkpoint_all_the_way(tmp_path, separate_vocabs):
    """Warm start, two updates by the Trainer, its checkpoint elsewhere."""
    (tmp_path / "opus").mkdir()
    tokenizer = marian_tokenizer(tmp_path / "opus", separate_vocabs)
    sizes = {"vocab_size": tokenizer.vocab_size, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2}
    if separate_vocabs:
        sizes |= {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": len(tokenizer.target_encoder)}
    words = {"pad_token_id": 2, "eos_token_id": 0, "forced_eos_token_id": 0, "decoder_start_token_id": 2}
    torch.manual_seed(0)
    MarianMTModel(MarianConfig(**sizes, **words, init_std=0.5)).save_pretrained(tmp_path / "opus")
    tokenizer.save_pretrained(tmp_path / "opus")

    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(
        str(tmp_path / "opus"), layer_aggregation="em_routing", head_aggregation="simple_routing"
    )
    model.generation_config.max_new_tokens = 6
    data = [dict(tokenizer(text, text_target="das alte Haus")) for text in ("the old house", "two dogs") * 4]
    args = Seq2SeqTrainingArguments(
        str(tmp_path / "run"), max_steps=2, save_steps=2, learning_rate=0.01, report_to="none", use_cpu=True
    )
    collator = DataCollatorForSeq2Seq(tokenizer, model)
    Seq2SeqTrainer(model, args, collator, data, processing_class=tokenizer).train()
    folder = str(tmp_path / "run" / "checkpoint-2")
    texts = [">>de<< the old house", "two dogs see"]
    here = pipeline("translation", model=folder, device="cpu")(texts)
    code = """
from transformers import pipeline
translator = pipeline("translation", model=folder, device="cpu", trust_remote_code=True)
found["translations"] = translator(texts)
"""
    assert run_elsewhere(code, tmp_path, folder=folder, texts=texts)["translations"] == here


@pytest.mark.parametrize("method", FAMILIES)
def test_nothing_is_trusted_unasked(tmp_path, method):
    model_type = save(tmp_path, method).config.model_type
    # Here no remote code is needed, and none is run: a file that says otherwise would end this.
    (tmp_path / f"modeling_{model_type}.py").write_text("raise SystemExit('remote code was run')")
    assert AutoConfig.from_pretrained(tmp_path).model_type == model_type
    config = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).config
    assert not hasattr(config, "auto_map")
    assert not hasattr(config, "custom_pipelines")
    AutoTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize("method", FAMILIES)
def test_the_source_travels_whole_and_is_the_same_every_time(tmp_path, method):
    save(tmp_path / "one", method)
    save(tmp_path / "two", method)
    for name, text in source_files(method).items():
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() == text.encode()
        licence, *_ = text.splitlines()
        assert licence.startswith("# Copyright"), name
        assert f"# From hf-capsule-mt {__version__}, hf_capsule_mt/" in text
        assert text.count("# Copyright") == 1, name
        # One level of relative imports, all of files that travel too.
        for module in re.findall(r"^\s*from (\.\S*) import", text, flags=re.MULTILINE):
            assert f"{module.removeprefix('.')}.py" in source_files(method), (name, module)
        assert "hf_capsule_mt import" not in text, name
        compile(text, name, "exec")
    assert not list((tmp_path / "one").glob("*.tmp"))


@pytest.mark.parametrize(("method", "other"), list(itertools.permutations(FAMILIES, 2)))
def test_only_what_runs_travels(method, other):
    names = set(source_files(method))
    assert not [name for name in names if re.match(r"data|training|evaluation|cli|registration", name)]
    assert {name for name in names if not name.startswith(("modeling_", "configuration_", "decoding_"))} == {
        "shared_weights.py",
        "translation_pipeline_translation.py",
        "translation_source_limits.py",
    }
    family = method_config_class(other).model_type
    assert not {f"modeling_{family}.py", f"configuration_{family}.py", ADAPTERS[other], "decoding_families.py"} & names
    assert ADAPTERS[method] in names


@pytest.mark.parametrize(
    ("method", "others"), [("em-routing", {"AutoModelForSequenceClassification"}), ("capsnmt", set()), ("rnmt", set())]
)
def test_config_names_classes_that_travel(tmp_path, method, others):
    model = save(tmp_path, method)
    written = json.loads((tmp_path / "config.json").read_text())
    references = [*written["auto_map"].values(), written["custom_pipelines"]["translation"]["impl"]]
    assert set(written["auto_map"]) == {"AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM", *others}
    for reference in references:
        module, name = reference.split(".")
        assert f"class {name}(" in source_files(method)[f"{module}.py"]
    # The configuration in memory is as it was: saving adds nothing to it.
    assert not {"auto_map", "custom_pipelines"} & set(model.config.to_dict())
