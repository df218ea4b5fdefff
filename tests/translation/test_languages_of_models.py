"""NLLB, M2M-100, mBART and MADLAD are told the languages of texts, everywhere in the same way."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations

import pytest
import tiny_multilingual
import torch
from interrupted_translation import interrupt_after
from transformers import NllbTokenizer

from hf_capsule_mt import pipeline
from hf_capsule_mt.analysis.demo_page import answer
from hf_capsule_mt.cli import distill, evaluate, translate
from hf_capsule_mt.data.encoding import special_ids
from hf_capsule_mt.data.languages import KnownLanguages, languages_of_columns
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.serving.models import load_models
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.options import DataArguments
from hf_capsule_mt.training.training_data import load_data
from hf_capsule_mt.translation.alignment.forced import forced_pass
from hf_capsule_mt.translation.corpus_translator import CorpusTranslator
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.files.job import LINES as LINES_OF_TEXT
from hf_capsule_mt.translation.files.job import Job
from hf_capsule_mt.translation.generation.decoder import Decoded
from hf_capsule_mt.translation.generation.model_options import DecodingOptions
from hf_capsule_mt.translation.preparation import TextReader, TooLong
from hf_capsule_mt.translation.quality.judge import judge

PAIRS = {
    "nllb": ("eng_Latn", "deu_Latn"),
    "m2m100": ("en", "de"),
    "mbart": ("en_XX", "de_DE"),
    "mbart50": ("en_XX", "de_DE"),
}
KINDS = sorted(PAIRS)
PAIR = ["--source_lang", "eng_Latn", "--target_lang", "deu_Latn"]
TEXTS = ["the old house", "two dogs see the house", "a child", "", "12 + 3", "old dogs see a green child"]
LINES = [f"{text} {number % 7}" if text else "" for number, text in enumerate(TEXTS * 34)][:200]


def made(kind, folder):
    arguments = (folder,) if kind == "m2m100" else ()
    model, tokenizer = getattr(tiny_multilingual, kind)(*arguments)
    model.generation_config.decoder_start_token_id = 2
    model.generation_config.forced_eos_token_id = None
    with torch.no_grad():
        # Or most of the words would be languages.
        model.get_input_embeddings().weight[sorted(KnownLanguages(tokenizer).ids.values())] *= 0.3
    return model, tokenizer


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """An NLLB model that ends some translations by itself."""
    folder = tmp_path_factory.mktemp("nllb")
    model, tokenizer = made("nllb", folder)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def expected(checkpoint):
    translator = pipeline(checkpoint, device="cpu", src_lang="eng_Latn", tgt_lang="deu_Latn")
    return [result["translation_text"] for result in translator(LINES, batch_size=8)]


@pytest.mark.parametrize("is_legacy", [False, True])
def test_every_pair_of_nllb(is_legacy):
    """In both layouts of its codes."""
    _, tokenizer = tiny_multilingual.nllb()
    if is_legacy:
        tokenizer = NllbTokenizer(vocab=tokenizer.get_vocab(), legacy_behaviour=True)
    known = KnownLanguages(tokenizer)
    assert len(known.ids) == 202
    words = tokenizer("the house", add_special_tokens=False)["input_ids"]
    ids_of_sources = {}
    for source, target in permutations(sorted(known.ids), 2):
        direction = known.direction(source, target)
        assert direction.first_token == tokenizer.convert_tokens_to_ids(target)
        if source not in ids_of_sources:
            with direction.spoken_by(tokenizer):
                ids_of_sources[source] = tokenizer("the house")["input_ids"]
        assert (direction.source, direction.target) == (source, target)
    for source, ids in ids_of_sources.items():
        code = tokenizer.convert_tokens_to_ids(source)
        assert ids == ([*words, 2, code] if is_legacy else [code, *words, 2])
    assert tokenizer.src_lang == "eng_Latn"
    assert tokenizer.tgt_lang is None


def test_every_target_of_nllb(engine_calls):
    model, tokenizer = made("nllb", None)
    translator = pipeline(model, tokenizer=tokenizer, device="cpu", src_lang="eng_Latn", max_new_tokens=2)
    source = tokenizer("the old house", return_tensors="pt")
    for number, (language, token) in enumerate(sorted(KnownLanguages(tokenizer).ids.items()), 1):
        [result] = translator("the old house", tgt_lang=language, return_tensors=True)
        assert result["translation_token_ids"][1] == token
        if number % 20 == 0:
            ids = model.generate(**source, forced_bos_token_id=token, max_new_tokens=2)
            assert torch.equal(result["translation_token_ids"], ids[0])
        assert len(engine_calls) == number


@pytest.mark.parametrize("kind", KINDS)
def test_a_direction_of_each_kind(kind, tmp_path):
    model, tokenizer = made(kind, tmp_path)
    source, target = PAIRS[kind]
    reader = TextReader(model.config, tokenizer)
    direction = reader.languages.direction(source, target)
    [sentence] = reader.prepare("the house", direction=direction).sentences
    tokenizer.src_lang = source
    assert sentence.token_ids == tokenizer("the house")["input_ids"]
    names = {"m2m100": "__de__"}
    token = tokenizer.convert_tokens_to_ids(names.get(kind, target))
    assert direction.first_token == token != tokenizer.unk_token_id
    assert token in special_ids(tokenizer)
    assert tokenizer.decode([token, *sentence.token_ids], skip_special_tokens=True).split() == ["the", "house"]


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_and_missing_languages(kind, tmp_path):
    _, tokenizer = made(kind, tmp_path)
    source, target = PAIRS[kind]
    known = KnownLanguages(tokenizer)
    for name, pair in (("--source_lang", ("xx_Yyyy", target)), ("--target_lang", (source, "xx_Yyyy"))):
        with pytest.raises(UserError, match=f"{name} is 'xx_Yyyy', which is no language of the model"):
            known.direction(*pair)
    with pytest.raises(UserError, match=f"of its {len(known.ids)} languages are .*{target}"):
        known.direction(source, "de_Xyz")
    with pytest.raises(UserError, match=f"--target_lang is missing. The model has {len(known.ids)} languages"):
        known.direction(source, None)
    # Most tokenizers come with a source language that nobody has chosen.
    with pytest.raises(UserError, match="--source_lang is missing"):
        known.direction(None, target)
    assert known.direction(None, target, needs_source=False).source == tokenizer.src_lang
    # Those of a fine-tuned model are in its tokenizer.
    tokenizer.tgt_lang = target
    assert known.direction() == known.direction(source, target)


def test_languages_of_commands(checkpoint, tmp_path, capsys):
    (tmp_path / "en").write_text("the house\n")
    command = ["--model", checkpoint, "--input_file", str(tmp_path / "en"), "--output_file", str(tmp_path / "out")]
    for options, message in (
        ([], "--source_lang is missing"),
        (["--source_lang", "eng_Latn"], "--target_lang is missing"),
        (["--source_lang", "english", "--target_lang", "deu_Latn"], "are eng_Latn"),
        (["--source_lang", "eng_Latn", "--target_lang", "de"], "are deu_Latn"),
    ):
        with pytest.raises(SystemExit):
            translate.main([*command, *options])
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_without_its_languages():
    """What Transformers makes of a folder that has only `sentencepiece.bpe.model`."""
    tokenizer = NllbTokenizer(vocab={"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}, extra_special_tokens=[])
    with pytest.raises(UserError, match=r"no token for any language.*tokenizer\.json"):
        KnownLanguages(tokenizer).direction("eng_Latn", "deu_Latn")


def test_threads_with_different_languages(often_switched):
    model, tokenizer = tiny_multilingual.nllb()
    reader = TextReader(model.config, tokenizer)
    codes = sorted(reader.languages.ids)[:60]
    directions = [reader.languages.direction(source, target) for source, target in zip(codes, reversed(codes))]

    def first_id(direction):
        [sentence] = reader.prepare("the old house", direction=direction).sentences
        return sentence.token_ids[0]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(first_id, directions * 4))
    assert found == [reader.languages.ids[direction.source] for direction in directions * 4]


def test_translate_writes_what_the_pipeline_writes(checkpoint, expected, tmp_path, engine_calls):
    (tmp_path / "en").write_text("".join(f"{line}\n" for line in LINES))
    files = ["--input_file", str(tmp_path / "en"), "--output_file", str(tmp_path / "de")]
    report = tmp_path / "report.jsonl"
    translate.main(["--model", checkpoint, *files, *PAIR, "--report_file", str(report)])
    assert (tmp_path / "de").read_text().split("\n")[:-1] == expected
    assert len(set(expected)) > 10
    assert engine_calls
    for record in map(json.loads, report.read_text().splitlines()):
        assert "Latn" not in json.dumps([record["translation"], record.get("lowest_word"), record.get("uncovered")])


def test_a_report_leaves_out_the_language(checkpoint, tmp_path):
    """The score is that of the words: the first token has the probability 1 whatever the model thinks."""
    (tmp_path / "en").write_text("the old house\n")
    report = tmp_path / "report.jsonl"
    files = ["--input_file", str(tmp_path / "en"), "--report_file", str(report)]
    translate.main(["--model", checkpoint, *files, *PAIR])
    [record] = map(json.loads, report.read_text().splitlines())
    options = DecodingOptions(checkpoint)
    model, tokenizer = options.load(torch.device("cpu"))
    known = KnownLanguages(tokenizer)
    source = tokenizer("the old house", return_tensors="pt")
    # The command's limit is that of the settings.
    ids = model.generate(**source, forced_bos_token_id=known.ids["deu_Latn"])
    logits = model(**source, decoder_input_ids=ids[:, :-1]).logits
    scores = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[0, :, 0]
    assert record["score"] == pytest.approx(scores[1:].mean().item(), abs=1e-4)
    assert record["score"] != pytest.approx(scores.mean().item(), abs=1e-3)


@pytest.mark.parametrize(("target", "script"), [("deu_Latn", None), ("rus_Cyrl", "Latin")])
def test_a_judgement_knows_the_script_of_the_language(checkpoint, target, script):
    model, tokenizer = DecodingOptions(checkpoint).load(torch.device("cpu"))
    reader = TextReader(model.config, tokenizer)
    direction = reader.languages.direction("eng_Latn", target)
    sentences = reader.prepare("the old house", direction=direction).sentences
    decoded = Decoded([direction.first_token, 8, 9], 2, text="das alte Haus")
    [forced] = forced_pass(model, [sentences[0].token_ids], [decoded.ids], first_token=direction.first_token)
    judgement = judge(reader, sentences[0], replace(decoded, forced=forced))
    assert (judgement.signals.script, "other_script" in judgement.faults) == (script, script is not None)


def test_tags_and_kept_parts(checkpoint, tmp_path, capsys):
    text = "the <b>old</b> {name} house"
    (tmp_path / "en").write_text(f"{text}\n")
    keep = r"\{\w+\}"
    translate.main(["--model", checkpoint, "--input_file", str(tmp_path / "en"), *PAIR, "--tags", "--keep", keep])
    [line] = capsys.readouterr().out.splitlines()
    translator = pipeline(checkpoint, device="cpu", src_lang="eng_Latn", tgt_lang="deu_Latn")
    assert translator(text, tags=True, keep=keep) == [{"translation_text": line}]
    assert "{name}" in line
    assert "</b>" in line
    assert "Latn" not in line


def test_an_interrupted_translation(checkpoint, expected, tmp_path, monkeypatch):
    (tmp_path / "en").write_text("".join(f"{line}\n" for line in LINES))
    files = ["--input_file", str(tmp_path / "en"), "--output_file", str(tmp_path / "de")]
    command = ["--model", checkpoint, *files, *PAIR, "--chunk_size", "50"]
    undo = interrupt_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        translate.main(command)
    undo()
    translate.main(command)
    assert (tmp_path / "de").read_text().split("\n")[:-1] == expected


def test_the_output_depends_on_the_languages(checkpoint):
    job = Job(DecodingOptions(checkpoint), source_lang="eng_Latn", target_lang="deu_Latn")
    for name in ("source_lang", "target_lang"):
        assert replace(job, **{name: "fra_Latn"}).settings(LINES_OF_TEXT) != job.settings(LINES_OF_TEXT)


def test_a_cut_source_keeps_its_language(checkpoint, caplog):
    options = DecodingOptions(checkpoint)
    reader = TextReader(options.config(), options.tokenizer())
    direction = reader.languages.direction("fra_Latn", "deu_Latn")
    prepared = reader.prepare("the old house " * 90, direction=direction, too_long=TooLong.CUT)
    [sentence] = prepared.sentences
    assert sentence.is_cut
    assert len(sentence.token_ids) == reader.limit
    assert sentence.token_ids[0] == reader.languages.ids["fra_Latn"]


def test_rows_of_corpora(checkpoint, expected):
    languages = {"source_lang": "eng_Latn", "target_lang": "deu_Latn"}
    translator = CorpusTranslator(checkpoint, **languages, device="cpu")
    assert translator.translate(LINES[:20])[0] == expected[:20]
    with pytest.raises(UserError, match="target_lang is missing"):
        CorpusTranslator(checkpoint, source_lang="eng_Latn", device="cpu").translate(LINES[:1])


def test_files_of_a_format(checkpoint, expected, tmp_path):
    (tmp_path / "page.md").write_text(f"{LINES[1]}\n")
    translator = pipeline(checkpoint, device="cpu")
    files = tmp_path / "page.md", tmp_path / "out.md"
    translate_file(translator, *files, "en", source_lang="eng_Latn", target_lang="deu_Latn")
    assert files[1].read_text().strip() == expected[1].strip()
    with pytest.raises(UserError, match="--target_lang is missing"):
        translate_file(translator, *files, "en", source_lang="eng_Latn")


def test_evaluate(checkpoint, expected, tmp_path, capsys):
    (tmp_path / "en").write_text("".join(f"{line}\n" for line in LINES[:20]))
    (tmp_path / "de").write_text("".join(f"{line}\n" for line in expected[:20]))
    files = ["--input_file", str(tmp_path / "en"), "--references", str(tmp_path / "de")]
    aligning = ["--adequacy", "--aligner", "attention"]
    evaluate.main(["--model", checkpoint, *files, *PAIR, "--metrics", "chrf", *aligning])
    assert "100.00" in capsys.readouterr().out


def test_distill(checkpoint, expected, tmp_path):
    """Rows may call the languages otherwise than the teacher."""
    data = tmp_path / "rows.jsonl"
    rows = [{"translation": {"en": line, "de": "x"}} for line in LINES[:8] if line]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    output = tmp_path / "out.tsv"
    command = ["--model", checkpoint, "--train_file", str(data), "--output_file", str(output), "--max_new_tokens", "9"]
    columns = ["--source_column", "en", "--target_column", "de"]
    distill.main([*command, *PAIR, *columns])
    translator = pipeline(checkpoint, device="cpu", src_lang="eng_Latn", tgt_lang="deu_Latn", max_new_tokens=9)
    written = [line.split("\t") for line in output.read_text().splitlines()]
    assert written
    for source, target in written:
        assert translator(source) == [{"translation_text": target}]


def test_columns_that_are_no_languages():
    _, tokenizer = tiny_multilingual.nllb()
    with pytest.raises(UserError, match=r"no language of the model.*--source_column and --target_column"):
        languages_of_columns(tokenizer, "en", "de")
    _, tokenizer = tiny_multilingual.madlad()
    assert languages_of_columns(tokenizer, "en", "de") == (None, "de")
    assert languages_of_columns(tokenizer, "en", "deu") == (None, None)


def test_training_data(tmp_path, checkpoint):
    (tmp_path / "en").write_text("the old house\n" * 4)
    (tmp_path / "de").write_text("das alte Haus\n" * 4)
    options = DecodingOptions(checkpoint)
    tokenizer = options.tokenizer()
    args = TranslationTrainingArguments(output_dir=str(tmp_path / "run"), report_to=[], generation_max_length=60)
    files = [str(tmp_path / "en"), str(tmp_path / "de")]

    def loaded(tokenizer, **languages):
        limits = {"max_source_length": 60, "max_target_length": 60}
        data = DataArguments(train_file=files, **limits, **languages)
        return load_data(data, args, tokenizer, options.config()).train[0]

    pair = loaded(tokenizer, source_lang="fra_Latn", target_lang="deu_Latn")
    ids = KnownLanguages(tokenizer).ids
    assert pair["input_ids"][0] == ids["fra_Latn"]
    assert pair["labels"][0] == ids["deu_Latn"]
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == ("fra_Latn", "deu_Latn")
    with pytest.raises(UserError, match="--target_lang is missing"):
        loaded(options.tokenizer(), source_lang="fra_Latn")
    legacy = NllbTokenizer(vocab=tokenizer.get_vocab(), legacy_behaviour=True)
    with pytest.raises(UserError, match="legacy_behaviour"):
        loaded(legacy, source_lang="fra_Latn", target_lang="deu_Latn")


def test_serving(checkpoint, expected):
    decoding = DecodingOptions(checkpoint)
    name = f"en-de={checkpoint}:eng_Latn:deu_Latn"
    [model] = load_models([name], decoding, torch.device("cpu"))
    [sentence] = model.prepare(LINES[1]).sentences
    [[translation]] = model.decode([sentence])
    assert translation.text == expected[1]
    with pytest.raises(UserError, match=r"the source language in --models is 'en', which is no language.* eng_Latn"):
        load_models([f"en-de={checkpoint}"], decoding, torch.device("cpu"))


def test_the_demo(checkpoint, expected):
    loaded = DecodingOptions(checkpoint).load(torch.device("cpu"))
    answered = answer(lambda name: loaded, "nllb", LINES[1], ("eng_Latn", "deu_Latn"))
    assert answered.routing.translation == expected[1]
    assert "--source_lang is missing" in answer(lambda name: loaded, "nllb", LINES[1]).problem


def test_codes_of_madlad(engine_calls):
    """They stand in front of the source, as those of OPUS-MT do."""
    model, tokenizer = tiny_multilingual.madlad()
    reader = TextReader(model.config, tokenizer)
    assert reader.codes.languages == ["de", "pt_BR"]
    by_code = reader.prepare("<2de> the house").sentences[0].token_ids
    assert by_code[0] == tokenizer.convert_tokens_to_ids("<2de>")
    for target in ("de", "<2de>"):
        direction = reader.languages.direction(None, target)
        assert reader.prepare("the house", direction=direction).sentences[0].token_ids == by_code
    other = reader.prepare("<2pt_BR> the house", direction=direction).sentences[0]
    assert other.segment.code == "<2pt_BR>"
    assert reader.prepare("<2de> 12").sentences[0].copy == "12"
    with pytest.raises(UserError, match=r"'<2fr> the house' begins with a code.*It has de, pt_BR"):
        reader.prepare("<2fr> the house")
    with pytest.raises(UserError, match="--target_lang is 'fr', but the tokenizer has no code <2fr>"):
        reader.languages.direction(None, "fr")
    with pytest.raises(UserError, match="--source_lang is 'en', but the model has one source language"):
        reader.languages.direction("en", "de")
    translator = pipeline(model, tokenizer=tokenizer, device="cpu", max_new_tokens=5)
    assert translator("the house", tgt_lang="de") == translator("<2de> the house")
