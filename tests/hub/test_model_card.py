"""Model cards say what the records say, in metadata that the Hub understands."""

import json
import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard
from tiny_marian import save_tiny_marian

from hf_capsule_mt import preset_config
from hf_capsule_mt.cli.push_to_hub import main
from hf_capsule_mt.configuration.description import describe_architecture
from hf_capsule_mt.hub.card_details import CardDetails
from hf_capsule_mt.hub.model_card import PAPERS, make_model_card, papers_of


@pytest.fixture
def record():
    """A training run, as run_record.json has it."""
    return {
        "kind": "run",
        "command": "hf-capsule-mt train --train_file '/home/me/a b.en' data/b.de --x=/home/c",
        "model": {"method": "em-routing", "size": "tiny", "model": None},
        "base_model": None,
        "data": {"train_file": ["train.en.gz", "train.de.gz"], "dataset_name": None, "source_lang": None},
        "training": {
            "max_tokens_per_batch": 4096,
            "gradient_accumulation_steps": 1,
            "optim": "adamw_torch",
            "weight_decay": 0.0,
            "learning_rate": 5e-3,
            "lr_scheduler_type": "inverse_sqrt",
            "warmup_steps": 2000,
            "seed": 1,
            "ema_decay": 0.999,
            "added_learning_rate": 0.01,
        },
        "config": preset_config("em-routing", "tiny").to_diff_dict(),
        "parameters": 3264520,
        "data_report": {"read": 29000},
        "pairs": {"trained_on": 28999, "too_long": 1},
        "mixed_precision": "bf16",
        "processes": 1,
        "updates": 6000,
        "environment": {"device": "a processor", "packages": {"torch": "2.11", "transformers": "5.17"}},
    }


def scored(name, **scores):
    return {
        "references": [{"file": f"data/{name}"}],
        "scores": {metric: {"score": score, "signature": "s"} for metric, score in scores.items()},
    }


def test_a_card(record):
    details = CardDetails("user/name", license="other", license_name="mine", data_name="Captions", data_license="none")
    evaluations = [scored("test_1.de.gz", bleu=30.123, ter=50.0), scored("test_2.de", bleu=20.0)]
    card = make_model_card(record, evaluations, details)
    data = card.data
    assert data.language == ["en", "de"]
    assert (data.pipeline_tag, data.library_name, data.license_name) == ("translation", "transformers", "mine")
    found = {(each.dataset_split, each.metric_type): each.metric_value for each in data.eval_results}
    assert found == {("test_1", "bleu"): 30.12, ("test_1", "ter"): 50.0, ("test_2", "bleu"): 20.0}
    text = card.text
    assert "# English to German, em-routing (tiny)" in text
    assert "| test_1 | 30.1 | 50.0 |\n| test_2 | 20.0 |  |\n" in text
    assert 'pipeline("translation", model="user/name")("A dog runs.")' in text
    assert "3,264,520 parameters" in text
    for part in ("28,999 of 29,000", "0.01 for new parts", "decay 0.999", "bfloat16", "Captions"):
        assert part in text
    assert "--train_file 'a b.en' data/b.de --x=c" in text
    assert "/home" not in text
    assert not re.search(r"\n{3,}", text)


@pytest.mark.parametrize(("module", "is_imported"), [("my_routing", True), ("__main__", False)])
def test_code_that_the_checkpoint_lacks(record, module, is_imported):
    assert "does not carry" not in make_model_card(record).text
    record["config"] = preset_config("transformer", "tiny", layer_aggregation="my_own").to_diff_dict()
    text = make_model_card(record | {"own_aggregations": {"layer_aggregation": module}}).text
    assert "does not carry the layer_aggregation `my_own`." in text
    assert "trust_remote_code" not in text
    assert (f"import {module}" in text) == is_imported
    assert (f"`{module}`" in text) == is_imported
    assert not re.search(r"\n{3,}", text)


def test_a_plain_model_is_marian(record):
    record["config"] = preset_config("transformer", "tiny").to_diff_dict()
    card = make_model_card(record)
    assert "marian" in card.data.tags
    assert "capsule_aggregated_marian" not in card.data.tags
    assert "no code is run" in card.text
    assert "trust_remote_code" not in card.text


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        ({"layer_aggregation": "simple_routing"}, "transformer with layer_aggregation simple_routing (tiny)"),
        ({"d_model": 64}, "transformer (tiny)"),
    ],
)
def test_a_part_that_is_not_of_the_method_is_in_the_title(record, fields, title):
    record["model"]["method"] = "transformer"
    record["config"] = preset_config("transformer", "tiny", **fields).to_diff_dict()
    card = make_model_card(record, [scored("test.de", bleu=1.0)])
    assert f"# English to German, {title}\n" in card.text
    assert card.data.model_name == f"English to German, {title}"


def test_scores_of_validation_data_belong_to_the_data_set(record):
    record["data"] = {"dataset_name": "wmt/wmt14", "train_file": [], "source_lang": "en_XX", "target_lang": "de"}
    card = make_model_card(record, [scored("flores.de", bleu=1.0), scored("validation", bleu=2.0)])
    assert [each.dataset_type for each in card.data.eval_results] == ["flores", "wmt/wmt14"]
    assert card.data.datasets == ["wmt/wmt14"]
    assert card.data.language == ["de"], "the Hub refuses en_XX"


def test_what_a_model_started_from(record):
    record["model"]["model"] = "/home/me/plain"
    assert "| Started from | `plain`, a local checkpoint |" in make_model_card(record).text
    record["base_model"] = {"name": "Helsinki-NLP/opus-mt-en-de", "revision": "abc"}
    card = make_model_card(record)
    assert card.data.base_model == "Helsinki-NLP/opus-mt-en-de"
    assert "`Helsinki-NLP/opus-mt-en-de`, revision `abc`" in card.text


@pytest.mark.parametrize(
    ("method", "words", "paper"),
    [
        ("transformer", "Transformer", "vaswani2017attention"),
        ("em-routing", "EM routing", "dou2019dynamic"),
        ("head-simple-routing", "Attention heads", "li2019information"),
        ("gdr", "PAST", "zheng2019dynamic"),
        ("capsnmt", "LSTMs", "wang2019towards"),
        ("rnmt", "GRUs", "bahdanau2015neural"),
        ("pre-norm-transparent", "linear combination", "dou2019dynamic"),
        ("dlcl", "linear combination", "wang2019learning"),
        ("delta-residuals", "attention over what each layer added", "luo2026delta"),
        ("hyper-connections", "hyper-connections", "zhu2025hyper"),
        ("mhc", "manifold-constrained hyper-connections", "xie2025mhc"),
        ("deep-shallow", "Transformer", "vaswani2017attention"),
    ],
)
def test_every_method_is_described_and_has_its_paper(method, words, paper):
    config = preset_config(method, "tiny")
    assert words in describe_architecture(config)
    assert papers_of(config)[-1]["key"] == paper


def test_a_preprint_is_cited_without_a_book(record):
    record["config"] = preset_config("mhc", "tiny").to_dict()

    text = make_model_card(record).text

    of_mhc = text[text.index("@misc{xie2025mhc,") :]
    assert "  howpublished = {arXiv:2512.24880},\n  year = {2025},\n}\n" in of_mhc
    assert "@inproceedings{zhu2025hyper," in text
    assert text.count("booktitle") == text.count("@inproceedings")


def test_the_citation_file_has_every_paper():
    citation = yaml.safe_load((Path(__file__).parents[2] / "CITATION.cff").read_text())
    cited = {reference["title"]: reference["year"] for reference in citation["references"]}
    papers = yaml.safe_load(PAPERS.read_text())
    assert cited == {paper["title"]: paper["year"] for paper in papers.values()}


@pytest.fixture
def average(record, tmp_path):
    folder = tmp_path / "run" / "average"
    save_tiny_marian(folder)
    (folder.parent / "run_record.json").write_text(json.dumps(record))
    (folder / "averaging.json").write_text('{"checkpoints": ["run/checkpoint-400", "run/checkpoint-500"]}')
    return folder


def test_the_command_writes_the_card(average, tmp_path, capsys):
    (tmp_path / "test.json").write_text(json.dumps(scored("test.de", bleu=30.0)))
    options = ["--license", "apache-2.0", "--evaluations", str(tmp_path / "test.json")]
    main(["--model", str(average), "--repo_id", "user/name", "--dry_run", *options])
    card = ModelCard.load(average / "README.md")
    assert card.data.license == "apache-2.0"
    assert "the mean of checkpoint-400, checkpoint-500" in card.text
    assert "| test | 30.0 |" in card.text
    assert "README.md, config.json, generation_config.json, model.safetensors" in capsys.readouterr().out
    last = average.rename(average.parent / "checkpoint-500")
    (last / "averaging.json").unlink()
    main(["--model", str(last), "--repo_id", "user/name", "--dry_run", *options])
    assert "those of checkpoint-500" in (last / "README.md").read_text()
    average = last
    (average / "README.md").write_text("Changed by hand.")
    main(["--model", str(average), "--repo_id", "user/name", "--dry_run"])
    assert (average / "README.md").read_text() == "Changed by hand."


def test_no_record(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--model", str(tmp_path), "--repo_id", "user/name", "--dry_run"])
    assert "run_record.json" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
