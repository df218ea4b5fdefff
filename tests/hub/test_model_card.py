"""Model cards say what the records say, in metadata that the Hub understands."""

import ast
import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from hf_capsule_mt import preset_config
from hf_capsule_mt.cli.write_model_card import main
from hf_capsule_mt.hub.model_card import CardDetails, make_model_card
from hf_capsule_mt.records import (
    BaseModel,
    DataFile,
    EvaluationRecord,
    RunRecord,
    Score,
    ScoreSettings,
    SpeedRecord,
    read,
    write,
)

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "records"
PUBLISHED = sorted(path.name for path in (ROOT / "model_cards").glob("multi30k-*.md"))


def load(name):
    return json.loads((RECORDS / name).read_text(encoding="utf-8"))


@pytest.fixture
def record():
    return read(RunRecord, RECORDS / "multi30k_em-routing_run_record.json")


def changed(record, **parts):
    """The record with other fields in its parts: changed(record, data={"source_lang": "en"})."""
    return replace(record, **{name: replace(getattr(record, name), **fields) for name, fields in parts.items()})


def configured(record, method, **fields):
    return replace(record, config=preset_config(method, "tiny", **fields).to_diff_dict())


def test_published_cards_are_those_of_the_records(tmp_path):
    runpy.run_path(str(ROOT / "model_cards" / "write_all.py"))["main"](tmp_path)
    assert PUBLISHED
    assert sorted(path.name for path in tmp_path.iterdir()) == PUBLISHED
    for name in PUBLISHED:
        assert (ROOT / "model_cards" / name).read_bytes() == (tmp_path / name).read_bytes()


@pytest.mark.parametrize("name", PUBLISHED)
def test_metadata(name):
    data = ModelCard.load(ROOT / "model_cards" / name).data
    row = name.removeprefix("multi30k-en-de-tiny-").removesuffix(".md")
    method = load(f"multi30k_{row}_run_record.json")["model"]["method"]
    assert data.language == ["en", "de"]
    assert (data.pipeline_tag, data.library_name) == ("translation", "transformers")
    assert (data.license, data.license_name) == ("other", "non-commercial")
    assert data.model_name == f"{method} (tiny), en to de"
    found = {(result.dataset_split, result.metric_type): result for result in data.eval_results}
    assert len(found) == 6
    for year in (2016, 2017):
        scores = load(f"multi30k_{row}_test_{year}_flickr.json")["scores"]
        for metric, entry in scores.items():
            result = found[f"test_{year}_flickr.lc.norm.tok", metric]
            assert result.metric_value == round(entry["score"], 2)
            assert result.metric_args == {"signature": entry["signature"]}
            assert result.task_type == "translation"


def test_a_run_that_was_not_evaluated(record):
    """Its record has the score of some weights, of which nobody knows whether they are those of the card."""
    card = make_model_card(record)
    assert card.data.eval_results is None
    assert "was not evaluated" in card.text


def test_scores_belong_to_what_was_scored(record):
    record = changed(record, data={"dataset_name": "wmt/wmt14", "train_file": []})
    scored = {"settings": ScoreSettings("13a", False, ["bleu"]), "environment": record.environment}
    evaluations = [
        EvaluationRecord(scores={"bleu": Score(30.123, "s")}, references=[DataFile(f"x/{name}")], **scored)
        for name in ("flores.de.gz", "validation")
    ]
    flores, validation = make_model_card(record, evaluations).data.eval_results
    assert (flores.dataset_type, flores.dataset_split, flores.metric_value) == ("flores", "flores", 30.12)
    assert (validation.dataset_type, validation.dataset_split) == ("wmt/wmt14", "validation")


def test_what_a_fine_tuned_model_comes_from(record):
    data = {"dataset_name": "wmt/wmt14", "train_file": [], "source_lang": "en", "target_lang": "de"}
    base = BaseModel("Helsinki-NLP/opus-mt-en-de", "abc")
    card = make_model_card(replace(changed(record, data=data), base_model=base))
    assert card.data.base_model == "Helsinki-NLP/opus-mt-en-de"
    assert card.data.datasets == ["wmt/wmt14"]
    assert "Started from: `Helsinki-NLP/opus-mt-en-de`, revision `abc`" in card.text
    assert "after Helsinki-NLP/opus-mt-en-de had been trained on other text" in card.text


@pytest.mark.parametrize("names", [["corpus.tsv"], ["a.txt", "b.txt"], ["train.src", "train.tgt"], ["a.en", "b.en"]])
def test_languages(record, names):
    record = changed(record, data={"train_file": names})
    card = make_model_card(record)
    assert card.data.language is None
    assert "in one direction" in card.text
    card = make_model_card(record, details=CardDetails(source_lang="en", target_lang="deu"))
    assert card.data.language == ["en", "deu"]
    assert "from en to deu" in card.text


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_languages_of_compressed_files(record, ending):
    named = changed(record, data={"train_file": [f"train.en{ending}", f"train.de{ending}"]})
    assert make_model_card(named).data.language == ["en", "de"]


def test_head_aggregation_is_described(record):
    record.config.update(head_aggregation="simple_routing", head_aggregation_cross_layers=[0, 3])
    text = make_model_card(record).text
    assert (
        "encoder self-attention (layers 1, 2, 3, 4) and of the decoder's attention to the encoder (layers 1, 4)" in text
    )
    assert "li2019information" in text
    assert "dou2019dynamic" in text


def test_guided_routing_is_described(record):
    record = configured(record, "gdr", layer_aggregation="em_routing", bca_loss_weight=0.5)
    text = make_model_card(record).text
    assert "not translated by guided dynamic routing in 3 iterations: 2 PAST, 2 FUTURE, 2 redundant capsules of" in text
    assert "width 256, trained with a bag-of-words loss (weight 1) and a content agreement loss (weight 0.5)." in text
    assert "EM routing" in text
    assert all(key in text for key in ("vaswani2017attention", "dou2019dynamic", "zheng2019dynamic"))
    record.config.update(guided_routing="attention", bow_loss_weight=0, bca_loss_weight=0)
    text = make_model_card(record).text
    assert (
        "by an attention to each: 2 PAST, 2 FUTURE capsules of width 256, trained with no losses of their own." in text
    )


def test_guided_rnmt_is_described(record):
    record = configured(record, "rnmt-gdr")
    text = make_model_card(record).text
    assert (
        "a conditional GRU to write, width 128, a vocabulary of 32000. On top of the decoder, source words are" in text
    )
    assert all(key in text for key in ("bahdanau2015neural", "zheng2019dynamic"))


def test_capsnmt_is_described(record):
    record = configured(record, "capsnmt")
    text = make_model_card(record).text
    assert "4 bidirectional layers to read the source, 3 to write, width 128, a vocabulary of 32000." in text
    assert "3 iterations to 6 capsules (position-aware routing, weights of their own for every iteration, sep" in text
    assert "wang2019towards" in text
    assert "vaswani2017attention" not in text
    record.config.update(share_routing_weights=True, position_aware_routing=False, separable_scoring=False)
    assert "3 iterations to 6 capsules." in make_model_card(record).text
    record.config.update(share_routing_weights=False, position_aware_routing=True, separable_scoring=True)
    record.config["routing_iterations"] = 1
    assert "1 iterations to 6 capsules (position-aware routing)." in make_model_card(record).text
    record.config["sentence_aggregation"] = "pooling"
    assert "pooled: the largest, the mean, the first and the last." in make_model_card(record).text


def test_rnmt_is_described(record):
    record = configured(record, "rnmt")
    text = make_model_card(record).text
    assert "1 bidirectional layer to read the source, a conditional GRU to write, width 128, a vocabulary" in text
    assert "bahdanau2015neural" in text
    assert not any(
        other in text for other in ("vaswani2017attention", "wang2019towards", "capsules", "with every word")
    )
    record = configured(record, "capsnmt-hybrid", encoder_layers=2)
    text = make_model_card(record).text
    assert "2 bidirectional layers to read the source" in text
    assert "3 iterations to 6 capsules (position-aware routing" in text
    assert "The decoder also reads what this makes of the sentence, with every word." in text
    assert "bahdanau2015neural" in text
    assert "wang2019towards" in text


def test_languages_that_the_hub_refuses_are_left_out(record):
    record = changed(record, data={"source_lang": "en_XX", "target_lang": "de"})
    assert make_model_card(record).data.language == ["de"]


def test_the_best_checkpoint_is_named(record):
    record = changed(record, training={"load_best_model_at_end": True, "metric_for_best_model": "bleu"})
    record = replace(record, best_checkpoint="run/checkpoint-500")
    assert "Weights: of checkpoint-500, the best in bleu" in make_model_card(record).text


def test_absolute_paths_stay_at_home(record):
    command = "accelerate launch scripts/train.py --train_file '/home/me/a b.en' data/b.de --x=/home/c --set a=/home/d"
    text = make_model_card(replace(record, command=command)).text
    assert "--train_file 'a b.en' data/b.de --x=c --set a=d" in text
    assert "/home" not in text


def test_examples_are_python(record):
    sentence = 'She said "no" \\ grün.'
    code = "\n".join(
        re.findall(
            r"^```python\n(.*?)^```",
            str(make_model_card(record, details=CardDetails(example=sentence))),
            flags=re.MULTILINE | re.DOTALL,
        )
    )
    assert sentence in {node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)}


def test_the_same_records_make_the_same_card(record):
    assert str(make_model_card(record)) == str(make_model_card(record))


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ({"repo_id": "a b"}, "'a b' is not the name of a repository"),
        ({"source_lang": "English"}, "source_lang is 'English'"),
        ({"license": "other"}, "license_name None"),
        ({"license_name": "mine"}, "license is None"),
    ],
)
def test_impossible_details(details, message):
    with pytest.raises(ValueError, match=message):
        CardDetails(**details)


def test_records_of_something_else(record):
    settings = ScoreSettings("13a", False, ["bleu"])
    compared = EvaluationRecord(settings=settings, references=[], environment=record.environment)
    with pytest.raises(ValueError, match="an evaluation has no scores; give what hf-capsule-mt evaluate"):
        make_model_card(record, [compared])
    with pytest.raises(ValueError, match="no row 'em-routing' of size 'tiny' with 3,264,520 parameters"):
        make_model_card(record, speed=read(SpeedRecord, RECORDS / "speed_base.json"))
    with pytest.raises(ValueError, match="with 3,264,521 parameters"):
        make_model_card(replace(record, parameters=3_264_521), speed=read(SpeedRecord, RECORDS / "speed_tiny.json"))


def test_the_speed_of_a_model_that_was_trained_on(record):
    """It was given no size, and has the parameters of one that was measured."""
    speed = read(SpeedRecord, RECORDS / "speed_tiny.json")
    model = {"size": None, "others": {"model_name_or_path": "plain"}}
    shown = [line for line in make_model_card(record, speed=speed).text.splitlines() if "plain Marian" in line]
    assert shown
    assert set(shown) <= set(make_model_card(changed(record, model=model), speed=speed).text.splitlines())


def test_the_speed_is_that_of_the_same_fields(record):
    stored = read(SpeedRecord, RECORDS / "speed_tiny.json")
    speed = replace(stored, results={"em-routing a=1 b=residual": stored.results["em-routing"]})
    written = changed(record, model={"config_overrides": ['b="residual"', "a=1"]})
    whole = make_model_card(record, speed=stored).text
    assert make_model_card(written, speed=speed).text == whole
    with pytest.raises(ValueError, match="""no row 'em-routing b="residual" a=1' of size 'tiny'"""):
        make_model_card(written, speed=stored)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((None, "is not a file"), ("{", "is not valid JSON"), ("[]", "is no object")),
        ('{"kind": "run", "version": 2, "model": {}}', "lacks command, data, training, config,"),
    ],
)
def test_the_command_names_broken_files(tmp_path, capsys, text, message):
    file = tmp_path / "record.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit) as exit_:
        main(["--run_record", str(file), "--output_file", str(tmp_path / "README.md")])
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert all(part in error for part in (str(file), message))
    assert not (tmp_path / "README.md").exists()


@pytest.mark.parametrize("option", ["--run_record", "--evaluations", "--speed"])
def test_the_command_does_not_replace_what_it_reads(tmp_path, capsys, option):
    kept = tmp_path / "record.json"
    kept.write_text("{}")
    others = ["--run_record", str(RECORDS / "multi30k_em-routing_run_record.json")]
    with pytest.raises(SystemExit):
        main([*others, option, str(kept), "--output_file", f"{tmp_path}/../{tmp_path.name}/record.json"])
    assert "record.json, which is another file of this command, and would be lost" in capsys.readouterr().err
    assert kept.read_text() == "{}"


def test_where_a_local_checkpoint_started(record):
    for path, shown in (("runs/plain/seed1", "runs/plain/seed1"), ("/home/me/plain", "plain")):
        others = {**record.model.others, "model_name_or_path": path}
        text = make_model_card(changed(record, model={"others": others})).text
        assert f"* Started from: `{shown}`, a local checkpoint that is not published" in text
        assert "after what it started from had been trained" in text
    assert "Started from" not in make_model_card(record).text


def test_an_average(record, tmp_path, capsys):
    best = changed(record, training={"load_best_model_at_end": True, "metric_for_best_model": "bleu"})
    write(replace(best, best_checkpoint="run/checkpoint-500"), tmp_path / "run_record.json")
    (tmp_path / "averaging.json").write_text('{"checkpoints": ["run/checkpoint-400", "run/checkpoint-500"]}')
    main(["--run_record", str(tmp_path / "run_record.json"), "--output_file", str(tmp_path / "README.md")])
    text = (tmp_path / "README.md").read_text()
    assert "* Weights: the mean of checkpoint-400, checkpoint-500" in text
    assert "the best in" not in text
    (tmp_path / "averaging.json").write_text("{}")
    with pytest.raises(SystemExit):
        main(["--run_record", str(tmp_path / "run_record.json"), "--output_file", str(tmp_path / "README.md")])
    assert "averaging.json names no checkpoints" in capsys.readouterr().err


def test_averaged_weights_and_a_rate_of_what_was_added(record):
    text = make_model_card(changed(record, training={"others": {"ema_decay": 0.999, "added_learning_rate": 0.01}})).text
    assert "* Weights: an exponential moving average of those of all updates (decay 0.999)\n" in text
    assert "warm-up 2000; 0.01 for what was added\n* Dropout" in text
    assert "\n* Weights" not in make_model_card(changed(record, training={"others": {"ema_decay": 0.0}})).text


def test_a_checkpoint_of_the_run(record, tmp_path):
    best = changed(record, training={"load_best_model_at_end": True, "metric_for_best_model": "bleu"})
    write(replace(best, best_checkpoint="run/checkpoint-900"), tmp_path / "run_record.json")
    for step, weights in ((500, "of checkpoint-500"), (900, "of checkpoint-900, the best in bleu")):
        file = tmp_path / f"checkpoint-{step}" / "README.md"
        file.parent.mkdir()
        main(["--run_record", str(tmp_path / "run_record.json"), "--output_file", str(file)])
        lines = file.read_text().splitlines()
        assert f"* Updates: {step}" in lines
        assert f"* Weights: {weights}" in lines


def test_the_card_of_another_run(record, tmp_path, capsys):
    write(record, tmp_path / "run_record.json")
    options = ["--run_record", str(tmp_path / "run_record.json"), "--output_file", str(tmp_path / "README.md")]
    model = {**record.config, "transformers_version": "5.17.0", "dtype": "bfloat16"}
    for found, message in ((model, None), (model | {"encoder_layers": 5}, "config.json has encoder_layers = 5, but")):
        (tmp_path / "config.json").write_text(json.dumps(found))
        if message is None:
            main(options)
            (tmp_path / "README.md").unlink()
        else:
            with pytest.raises(SystemExit):
                main(options)
            assert message in capsys.readouterr().err
    assert not (tmp_path / "README.md").exists()


def test_a_record_without_a_model_or_packages(record):
    with pytest.raises(ValueError, match=r"config.model_type = None, which is no model here; give the record"):
        make_model_card(replace(record, config={}))
    assert "torch unknown" in make_model_card(changed(record, environment={"packages": {}})).text
