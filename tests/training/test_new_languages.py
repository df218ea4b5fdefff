"""Languages that are added to NLLB, M2M-100 and mBART: trained, saved, and known to everything that translates."""

import json
import random

import ctranslate2
import pytest
import tiny_multilingual
import torch
from safetensors.torch import load_file
from starlette.testclient import TestClient
from tiny_marian import SHAPE, tiny_model, tiny_tokenizer
from tiny_run import arguments, files, stop_at
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
)

from hf_capsule_mt import add_languages, pipeline
from hf_capsule_mt.cli import evaluate, translate
from hf_capsule_mt.cli.train import main
from hf_capsule_mt.data.languages import KnownLanguages, language_ids
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.loading import load_tokenizer
from hf_capsule_mt.serving.app import build_app
from hf_capsule_mt.serving.models import load_models
from hf_capsule_mt.translation.generation.model_options import DecodingOptions

# German and Lower Sorbian, as each model writes them, and what another model writes.
CODES = {
    "nllb": ("deu_Latn", "dsb_Latn"),
    "m2m100": ("de", "dsb"),
    "mbart50": ("de_DE", "dsb_DE"),
    "mbart": ("de_DE", "dsb_DE"),
}
KINDS = sorted(CODES)
MODELS = {
    "nllb": (M2M100Config, M2M100ForConditionalGeneration),
    "mbart50": (MBartConfig, MBartForConditionalGeneration),
}
START = {"size": None, "tokenizer_name": None, "config_overrides": None, "method": None}
START |= {"max_source_length": 30, "max_target_length": 30}
SOURCE = torch.tensor([[9, 10, 11, 2]])


def made(kind, folder):
    """Return a model and its tokenizer."""
    return getattr(tiny_multilingual, kind)(*([folder] if kind == "m2m100" else []))


def saved(kind, folder):
    """Write a checkpoint and return its folder."""
    checkpoint = folder / kind
    checkpoint.mkdir(parents=True)
    for part in made(kind, folder):
        part.save_pretrained(checkpoint)
    return checkpoint


def train(corpus, checkpoint, folder, kind="nllb", **options):
    """Add Lower Sorbian, which begins as German, and train German to Lower Sorbian."""
    german, sorbian = CODES[kind]
    languages = {"new_language": sorbian, "like": german, "source_lang": german, "target_lang": sorbian}
    main(arguments(corpus, folder, **{**START, "model": checkpoint, **languages, **options}))
    return folder


@pytest.fixture(scope="module")
def nllb(tmp_path_factory):
    return saved("nllb", tmp_path_factory.mktemp("start"))


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """A corpus whose translations are the letters of the source, each replaced by another one."""
    folder = tmp_path_factory.mktemp("task")
    generator = random.Random(0)
    letters = "adegst"
    others = str.maketrans(letters, "hilnor")
    for name, size in (("train", 400), ("validation", 30)):
        sources = ["".join(generator.choices(letters, k=generator.randint(1, 3))) for _ in range(size)]
        (folder / f"{name}.source").write_text("".join(f"{source}\n" for source in sources))
        (folder / f"{name}.target").write_text("".join(f"{source.translate(others)}\n" for source in sources))
    return folder


def teach(kind, task, folder):
    """Return the folder of a model that has learned Lower Sorbian as the task has it."""
    _, tokenizer = made(kind, folder)
    config_class, model_class = MODELS[kind]
    shape = {**SHAPE, "d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "init_std": 0.1, "dropout": 0.0}
    torch.manual_seed(0)
    model = model_class(config_class(vocab_size=max(tokenizer.get_vocab().values()) + 1, **shape))
    for part in (model, tokenizer):
        part.save_pretrained(folder / "start")
    rate = {"learning_rate": 1e-2, "lr_scheduler_type": "linear", "label_smoothing": 0}
    size = {"max_tokens_per_batch": 400, "max_steps": 150, "logging_steps": 50}
    return train(task, folder / "start", folder / "run", kind, **rate, **size)


@pytest.fixture(scope="module")
def taught(task, tmp_path_factory):
    return teach("nllb", task, tmp_path_factory.mktemp("taught"))


def read(file):
    return file.read_text().split("\n")[:-1]


@pytest.mark.parametrize("kind", KINDS)
def test_languages_begin_as_others(kind, tmp_path):
    model, tokenizer = made(kind, tmp_path)
    german, sorbian = CODES[kind]
    upper = sorbian.replace("dsb", "hsb")
    before = model(input_ids=SOURCE, labels=SOURCE).logits
    size = model.config.vocab_size
    others = language_ids(tokenizer)
    add_languages(model, tokenizer, {sorbian: german, upper: german})
    ids = language_ids(tokenizer)
    assert ids == {**others, sorbian: size, upper: size + 1}
    assert model.config.vocab_size == size + 2
    after = model(input_ids=SOURCE, labels=SOURCE).logits
    torch.testing.assert_close(after[..., :size], before)
    for code in (sorbian, upper):
        torch.testing.assert_close(after[..., ids[code]], before[..., ids[german]])
    replaced = [ids[sorbian] if token_id == ids[german] else token_id for token_id in (ids[german], 9, 10, 2)]
    as_german = model(input_ids=torch.tensor([[ids[german], 9, 10, 2]]), labels=SOURCE).logits
    torch.testing.assert_close(model(input_ids=torch.tensor([replaced]), labels=SOURCE).logits, as_german)


@pytest.mark.parametrize("kind", KINDS)
def test_plain_transformers_loads_them(kind, tmp_path):
    german, sorbian = CODES[kind]
    model, tokenizer = made(kind, tmp_path)
    add_languages(model, tokenizer, {sorbian: german})
    tokenizer.src_lang = sorbian
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "saved")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert type(loaded) is type(tokenizer)
    token = "__dsb__" if kind == "m2m100" else sorbian
    token_id = loaded.convert_tokens_to_ids(token)
    assert token_id == loaded.get_vocab()[token] == model.config.vocab_size - 1
    assert token in loaded.all_special_tokens
    if kind == "m2m100":
        # The class has a list of languages. docs/tutorials/nllb.md has these lines.
        loaded.lang_code_to_token["dsb"] = "__dsb__"
        loaded.lang_token_to_id["__dsb__"] = token_id
    loaded.src_lang = sorbian
    assert token_id in loaded("a b")["input_ids"]
    loaded.tgt_lang = sorbian
    assert token_id in loaded(text_target="a b")["input_ids"]
    assert loaded.decode(loaded("a b")["input_ids"], skip_special_tokens=True) == tokenizer.decode(
        tokenizer("a b")["input_ids"], skip_special_tokens=True
    )
    reloaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "saved")
    torch.testing.assert_close(
        reloaded(input_ids=SOURCE, labels=SOURCE).logits, model(input_ids=SOURCE, labels=SOURCE).logits
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_package_knows_them_again(kind, tmp_path):
    german, sorbian = CODES[kind]
    model, tokenizer = made(kind, tmp_path)
    add_languages(model, tokenizer, {sorbian: german})
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "saved")
    translator = pipeline(tmp_path / "saved", device="cpu", src_lang=sorbian, tgt_lang=sorbian)
    assert translator("a b") != []
    loaded = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert KnownLanguages(loaded).direction(sorbian, german).source == sorbian
    # Another one can be added later.
    upper = sorbian.replace("dsb", "hsb")
    add_languages(translator.model, loaded, {upper: sorbian})
    loaded.save_pretrained(tmp_path / "again")
    assert {sorbian, upper} <= set(language_ids(AutoTokenizer.from_pretrained(tmp_path / "again")))


@pytest.mark.parametrize("fields", [{"added_languages": 5}, {"added_languages": [5]}, {"added_source": "dsb_DE"}])
def test_damaged_languages_are_blamed_on_the_file(tmp_path, fields):
    checkpoint = saved("mbart50", tmp_path)
    file = checkpoint / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
    with pytest.raises(UserError, match="is damaged"):
        load_tokenizer(checkpoint)


def test_rows_without_a_token_stay_behind_the_new_ones(tmp_path):
    model, tokenizer = made("m2m100", tmp_path)
    size = model.config.vocab_size
    # M2M-100 has eight words that were made up.
    model.resize_token_embeddings(size + 8, mean_resizing=False)
    weight = model.get_input_embeddings().weight.clone()
    add_languages(model, tokenizer, {"dsb": "de"})
    new_weight = model.get_input_embeddings().weight
    assert torch.equal(new_weight[size], weight[tokenizer.lang_code_to_id["de"]])
    assert torch.equal(torch.cat([new_weight[:size], new_weight[size + 1 :]]), weight)


@pytest.mark.parametrize("kind", ["nllb", "m2m100"])
def test_ctranslate2_converts_them(kind, tmp_path):
    german, sorbian = CODES[kind]
    model, tokenizer = made(kind, tmp_path)
    if kind == "m2m100":
        model.resize_token_embeddings(model.config.vocab_size + 8, mean_resizing=False)
    add_languages(model, tokenizer, {sorbian: german})
    tokenizer.save_pretrained(tmp_path / "saved")
    model.save_pretrained(tmp_path / "saved")
    converted = tmp_path / "converted"
    ctranslate2.converters.TransformersConverter(str(tmp_path / "saved")).convert(str(converted))
    translator = ctranslate2.Translator(str(converted))
    token = "__dsb__" if kind == "m2m100" else sorbian
    source = tokenizer.convert_ids_to_tokens(tokenizer("a b")["input_ids"])
    [result] = translator.translate_batch([source], target_prefix=[[token]], beam_size=1, max_decoding_length=5)
    token_id = tokenizer.convert_tokens_to_ids(token)
    expected = model.generate(
        **tokenizer("a b", return_tensors="pt"), forced_bos_token_id=token_id, num_beams=1, max_new_tokens=5
    )
    words = tokenizer.convert_ids_to_tokens(expected[0])
    assert result.hypotheses[0] == [word for word in words[1:] if word != "</s>"]


@pytest.mark.parametrize(
    ("kind", "languages", "message"),
    [
        ("nllb", {"dsb": "deu_Latn"}, "Did you mean dsb_Latn?"),
        ("nllb", {"dsb_latn": "deu_Latn"}, "Did you mean dsb_Latn?"),
        ("m2m100", {"__dsb__": "de"}, "Did you mean dsb?"),
        ("mbart50", {"dsb": "de_DE"}, "Did you mean dsb_DE?"),
        ("nllb", {"Sorbian": "deu_Latn"}, "'Sorbian' is not written like .* Write it like deu_Latn"),
        ("nllb", {"pol_Latn": "deu_Latn"}, "The model has pol_Latn already"),
        ("nllb", {"ger": "pol_Latn"}, "The model has deu_Latn already"),
        ("m2m100", {"deu": "en"}, "The model has de already"),
        ("nllb", {"dsb_Latn": "de"}, "cannot begin as 'de', which the model lacks. The nearest .* deu_Latn"),
        ("nllb", {"dsb_Latn": "deu_Latn", "hsb_Latn": "dsb_Latn"}, "cannot begin as 'dsb_Latn'"),
        ("madlad", {"dsb": "de"}, "This tokenizer is a T5Tokenizer"),
    ],
)
def test_refused_languages(kind, languages, message, tmp_path):
    model, tokenizer = made(kind, tmp_path)
    with pytest.raises(UserError, match=message):
        add_languages(model, tokenizer, languages)


def test_a_tokenizer_that_does_not_list_its_languages_is_refused(tmp_path):
    model, tokenizer = made("m2m100", tmp_path)
    unlisted = type(tokenizer)(tokenizer.vocab_file, tokenizer.spm_file)
    with pytest.raises(UserError, match="does not list the languages"):
        add_languages(model, unlisted, {"dsb": "de"})


def test_a_tokenizer_of_a_larger_model_is_refused(tmp_path):
    model, tokenizer = made("nllb", tmp_path)
    model.resize_token_embeddings(len(tokenizer) - 1, mean_resizing=False)
    with pytest.raises(UserError, match="more tokens than the model"):
        add_languages(model, tokenizer, {"dsb_Latn": "deu_Latn"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"like": None}, "--new_language names 1 and --like 0 languages"),
        ({"new_language": ["dsb_Latn", "dsb_Latn"], "like": ["deu_Latn", "ces_Latn"]}, "names a language twice"),
        ({"new_language": "deu_Latn", "like": "ces_Latn"}, "The model has deu_Latn already"),
        ({"new_language": None, "like": None}, "--new_language adds a language to a model"),
    ],
)
def test_refused_options(corpus, nllb, tmp_path, options, message, capsys):
    with pytest.raises(SystemExit):
        train(corpus, nllb, tmp_path / "run", **options)
    assert message in capsys.readouterr().err


def test_a_model_of_one_pair_is_refused(corpus, tmp_path, capsys):
    tiny_model().save_pretrained(tmp_path / "marian")
    tiny_tokenizer().save_pretrained(tmp_path / "marian")
    with pytest.raises(SystemExit):
        train(corpus, tmp_path / "marian", tmp_path / "run")
    assert "New languages are for models with a token for each language" in capsys.readouterr().err


def test_a_language_is_learned(taught, task, tmp_path, engine_calls):
    """A letter in six would be right by chance."""
    translate.main(
        [
            "--model",
            str(taught),
            "--input_file",
            str(task / "validation.source"),
            "--output_file",
            str(tmp_path / "out"),
        ]
    )
    assert engine_calls
    outputs, targets = read(tmp_path / "out"), read(task / "validation.target")
    right = sum(output == target for output, target in zip(outputs, targets, strict=True))
    assert right > 0.8 * len(targets)
    by_hand = AutoModelForSeq2SeqLM.from_pretrained(taught)
    tokenizer = AutoTokenizer.from_pretrained(taught)
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == ("deu_Latn", "dsb_Latn")
    batch = tokenizer(read(task / "validation.source"), return_tensors="pt", padding=True)
    written = by_hand.generate(**batch, forced_bos_token_id=tokenizer.convert_tokens_to_ids("dsb_Latn"))
    assert tokenizer.batch_decode(written, skip_special_tokens=True) == outputs
    translator = pipeline(taught, device="cpu", tgt_lang="dsb_Latn")
    assert [result["translation_text"] for result in translator(read(task / "validation.source"))] == outputs


def test_mbart_learns_one(task, tmp_path, engine_calls):
    folder = teach("mbart50", task, tmp_path)
    translator = pipeline(folder, device="cpu")
    outputs = [result["translation_text"] for result in translator(read(task / "validation.source"))]
    assert engine_calls
    targets = read(task / "validation.target")
    right = sum(output == target for output, target in zip(outputs, targets, strict=True))
    assert right > 0.8 * len(targets)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "mbart"
    card = (folder / "README.md").read_text()
    assert "A Transformer of the mBART family" in card
    assert "It is an mBART model: Transformers loads it" in card


def test_mbart_has_smoothed_labels(corpus, tmp_path):
    losses = []
    for smoothing in (0, 0.5):
        checkpoint = saved("mbart50", tmp_path / str(smoothing))
        validation = {"validation_file": files(corpus, "validation"), "eval_strategy": "steps", "eval_steps": 2}
        folder = train(corpus, checkpoint, checkpoint / "run", "mbart50", label_smoothing=smoothing, **validation)
        record = json.loads((folder / "run_record.json").read_text())
        assert record["training"]["label_smoothing_factor"] == smoothing
        losses.append(record["metrics"]["eval_loss"])
    # The weights are random, so a smoothed loss is not near the other one.
    assert abs(losses[1] - losses[0]) > 0.01


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("mbart50", {"method": "em-routing"}, "is mBART, which cannot become em-routing"),
        ("mbart50", {"config_overrides": "layers=2"}, "MBartConfig has no field 'layers'"),
        ("mbart", {}, "so the model could never stop"),
        ("t5", {}, "Start from Marian, M2M-100, NLLB-200, mBART-50"),
    ],
)
def test_what_mbart_cannot(corpus, tmp_path, capsys, kind, options, message):
    checkpoint = saved(kind, tmp_path)
    languages = {"new_language": None, "like": None, "source_lang": "en_XX", "target_lang": "de_DE"}
    with pytest.raises(SystemExit):
        train(corpus, checkpoint, tmp_path / "run", "mbart50", **{**languages, **options})
    assert message in capsys.readouterr().err


def test_it_is_scored(taught, task, tmp_path):
    languages = ["--source_lang", "deu_Latn", "--target_lang", "dsb_Latn"]
    texts = ["--input_file", str(task / "validation.source"), "--references", str(task / "validation.target")]
    results = tmp_path / "scores.json"
    evaluate.main(["--model", str(taught), *languages, *texts, "--metrics", "chrf", "--output_file", str(results)])
    assert json.loads(results.read_text())["scores"]["chrf"]["score"] > 80


def test_a_server_names_it(taught):
    models = load_models([f"de-dsb={taught}:deu_Latn:dsb_Latn"], DecodingOptions(str(taught)), torch.device("cpu"))
    with TestClient(build_app(models)) as client:
        languages = {entry["code"]: entry for entry in client.get("/languages").json()}
        assert languages["dsb"]["name"] == "Lower Sorbian"
        assert languages["de"]["targets"] == ["dsb"]
        targets = client.get("/v2/languages", params={"type": "target"}).json()
        assert [(target["language"], target["name"]) for target in targets] == [("DSB", "Lower Sorbian")]
        source = "ade"
        [result] = pipeline(taught, device="cpu")(source)
        target = result["translation_text"]
        answer = client.post("/translate", json={"q": source, "source": "de", "target": "dsb"}).json()
        assert answer["translatedText"] == target
        answer = client.post("/v2/translate", json={"text": [source], "source_lang": "DE", "target_lang": "DSB"}).json()
        assert answer["translations"][0]["text"] == target


def test_the_card_says_it(taught):
    card = (taught / "README.md").read_text()
    assert "# German to Lower Sorbian, m2m_100" in card
    assert "Lower Sorbian (`dsb_Latn`) is a new language, which began as a copy of `deu_Latn`." in card
    # Nobody needs code of the repository to load it.
    assert "trust_remote_code" not in card


@pytest.mark.parametrize("kind", ["nllb", "m2m100"])
def test_a_method_and_both_directions(corpus, tmp_path, kind):
    """The new language as the source, with routed layers, R-Drop and a stream."""
    checkpoint = saved(kind, tmp_path)
    german, sorbian = CODES[kind]
    options = {"source_lang": sorbian, "target_lang": german, "method": "em-routing", "streaming": True}
    folder = train(corpus, checkpoint, tmp_path / "run", kind, **options, rdrop_alpha=1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # The class of M2M-100 cannot be loaded with a source that it lacks.
    assert tokenizer.src_lang == (sorbian if kind == "nllb" else "en")
    assert tokenizer.tgt_lang == german
    # The package loads it, and a copy of it.
    load_tokenizer(folder).save_pretrained(tmp_path / "copy")
    AutoTokenizer.from_pretrained(tmp_path / "copy")
    assert load_tokenizer(tmp_path / "copy").src_lang == sorbian
    [expected] = pipeline(folder, device="cpu", src_lang=sorbian, tgt_lang=german)("a b")
    assert pipeline(folder, device="cpu")("a b") == [expected]
    # A run that starts there has the language already, and turns it round.
    train(corpus, folder, tmp_path / "second", kind, new_language=None, like=None)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "second")
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == (german, sorbian)
    assert load_tokenizer(tmp_path / "second").src_lang == german


@pytest.mark.parametrize("kind", ["nllb", "mbart50"])
def test_an_adapter_trains_the_new_row(corpus, tmp_path, kind):
    checkpoint = saved(kind, tmp_path / "start")
    train(corpus, checkpoint, tmp_path, kind, lora_rank=2)
    before, after = load_file(checkpoint / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    old, new = before["model.shared.weight"], after["model.shared.weight"]
    assert torch.equal(new[:-1], old)
    german = AutoTokenizer.from_pretrained(checkpoint).convert_tokens_to_ids(CODES[kind][0])
    assert 1e-4 < (new[-1] - old[german]).abs().max() < 1e-2
    adapter = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert adapter["trainable_token_indices"] == [len(old)]


def test_an_adapter_for_an_untied_model_is_refused(corpus, tmp_path, capsys):
    checkpoint = saved("nllb", tmp_path)
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint)
    model.save_pretrained(checkpoint)
    with pytest.raises(SystemExit):
        train(corpus, checkpoint, tmp_path / "run", lora_rank=2)
    assert "--new_language cannot be combined with --lora_rank" in capsys.readouterr().err


@pytest.mark.parametrize("lora_rank", [None, 2])
def test_a_resumed_run(corpus, nllb, tmp_path, monkeypatch, capsys, lora_rank):
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "lora_rank": lora_rank}
    whole = load_file(train(corpus, nllb, tmp_path / "whole", **options) / "model.safetensors")
    with monkeypatch.context() as patch:
        stop_at(patch, update=3)
        with pytest.raises(KeyboardInterrupt):
            train(corpus, nllb, tmp_path / "run", **options)
    options["resume_from_checkpoint"] = "last"
    with pytest.raises(SystemExit):
        train(corpus, nllb, tmp_path / "run", **options, new_language=None, like=None)
    assert "--target_lang is 'dsb_Latn', which is no language of the model." in capsys.readouterr().err
    resumed = load_file(train(corpus, nllb, tmp_path / "run", **options) / "model.safetensors")
    assert all(torch.equal(weight, whole[name]) for name, weight in resumed.items())


def test_a_checkpoint_has_its_language_already(corpus, nllb, tmp_path, capsys):
    train(corpus, nllb, tmp_path / "run", save_strategy="steps", save_steps=2)
    checkpoint = tmp_path / "run" / "checkpoint-2"
    with pytest.raises(SystemExit):
        train(corpus, checkpoint, tmp_path / "second")
    assert "The model has dsb_Latn already" in capsys.readouterr().err
    train(corpus, checkpoint, tmp_path / "second", new_language=None, like=None)


def test_the_start_that_is_kept_has_it(corpus, nllb, tmp_path, monkeypatch):
    from hf_capsule_mt.training import evaluating

    scores = iter([30.0, 10.0] + [1.0, 12.0] * 5)
    monkeypatch.setattr(evaluating, "bleu_metric", lambda *_: lambda prediction: {"bleu": next(scores)})
    both = files(corpus, "validation")
    guarded = {"validation_file": both, "general_validation_file": both, "eval_strategy": "steps", "eval_steps": 1}
    guarded |= {"save_strategy": "steps", "save_steps": 1, "load_best_model_at_end": True}
    with pytest.raises(SystemExit) as ended:
        train(corpus, nllb, tmp_path, **guarded)
    assert ended.value.code == 3
    old = load_file(nllb / "model.safetensors")["model.shared.weight"]
    new = load_file(tmp_path / "model.safetensors")["model.shared.weight"]
    german = AutoTokenizer.from_pretrained(nllb).convert_tokens_to_ids("deu_Latn")
    assert torch.equal(new, torch.cat([old, old[german : german + 1]]))
