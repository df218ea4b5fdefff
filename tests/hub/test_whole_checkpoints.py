"""A checkpoint that lacks a tensor or a file, or has another's, is refused by every door, with what is missing."""

import json
import logging
import shutil

import pytest
import transformers
from packaging.version import Version
from safetensors.torch import load_file, save_file
from test_security import ours  # noqa: F401
from tiny_marian import save_tiny_marian
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

from hf_capsule_mt import CapsNMTForConditionalGeneration, CapsuleAggregatedMarianForConditionalGeneration
from hf_capsule_mt.checkpoints import check_folder, load_tokenizer, load_weights
from hf_capsule_mt.cli import translate

WEIGHTS, SETTINGS = "model.safetensors", "generation_config.json"
each_family = pytest.mark.parametrize("ours", ["em-routing", "capsnmt", "rnmt"], indirect=True)


def edit(file, **fields):
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def by_command(folder, capsys):
    """What `translate` says."""
    (folder.parent / "in").write_text("a b\n")
    with pytest.raises(SystemExit) as exit_:
        translate.main(["--model", str(folder), "--input_file", str(folder.parent / "in")])
    assert exit_.value.code == 2
    return capsys.readouterr().err


def by_pipeline(folder):
    with pytest.raises((ValueError, OSError)) as error:
        pipeline("translation", model=str(folder), device="cpu")
    return str(error.value)


@each_family
def test_every_tensor_is_needed(ours):  # noqa: F811
    """The first in order is Marian's bias, which Transformers can do without."""
    tensors = load_file(ours / WEIGHTS)
    for name in sorted(tensors)[::12]:
        save_file({other: tensors[other] for other in tensors if other != name}, ours / WEIGHTS, {"format": "pt"})
        with pytest.raises(ValueError, match=name.replace(".", r"\.")):
            load_weights(AutoModelForSeq2SeqLM, ours)


@each_family
def test_the_pipeline_takes_no_random_weights(ours):  # noqa: F811
    tensors = load_file(ours / WEIGHTS)
    lost = sorted(tensors)[0]
    save_file({name: tensors[name] for name in tensors if name != lost}, ours / WEIGHTS, {"format": "pt"})
    assert f"the weights in {ours} do not fit its configuration: {lost}. Put back" in by_pipeline(ours)
    # For training from, it still loads, as with any model of Transformers.
    model, report = AutoModelForSeq2SeqLM.from_pretrained(ours, output_loading_info=True)
    assert set(report["missing_keys"]) == model.unfit_tensors == {lost}
    options = {"tokenizer": AutoTokenizer.from_pretrained(ours), "device": "cpu"}
    with pytest.raises(ValueError, match=lost):
        pipeline("translation", model=model, **options)
    assert pipeline("translation", model=model.train().eval(), **options)("a", max_new_tokens=2)


@each_family
def test_nor_weights_that_had_another_shape(ours):  # noqa: F811
    model = AutoModelForSeq2SeqLM.from_pretrained(ours)
    options = {"vocab_size": model.config.vocab_size + 3, "ignore_mismatched_sizes": True}
    model, report = AutoModelForSeq2SeqLM.from_pretrained(ours, **options, output_loading_info=True)
    assert model.unfit_tensors == {name for name, *_ in report["mismatched_keys"]} != set()


def test_nor_in_the_model_of_another(tmp_path):
    """Which Transformers loads with a warning."""
    folder = save_tiny_marian(tmp_path / "marian")
    tensors = load_file(folder / WEIGHTS)
    lost = "model.encoder.layers.0.fc1.weight"
    save_file({name: tensors[name] for name in tensors if name != lost}, folder / WEIGHTS, {"format": "pt"})
    assert f"the weights in {folder} do not fit its configuration: {lost}. Put back" in by_pipeline(folder)
    save_file({**tensors, "unused": tensors[lost].clone()}, folder / WEIGHTS, {"format": "pt"})
    assert pipeline("translation", model=str(folder), device="cpu")("a", max_new_tokens=2)


def test_nor_those_of_another_model(ours, tmp_path):  # noqa: F811
    shutil.copy(save_tiny_marian(tmp_path / "marian") / WEIGHTS, ours / WEIGHTS)
    assert "do not fit" in by_pipeline(ours) or "mismatch" in by_pipeline(ours)


@pytest.mark.parametrize("content", [None, "", "{}", "[]", '{"num_beams": 4, "len', '{"num_beems": 4}'])
def test_decoding_settings_do_not_vanish(ours, capsys, content):  # noqa: F811
    file = ours / SETTINGS
    file.unlink() if content is None else file.write_text(content)
    assert SETTINGS in by_command(ours, capsys)
    assert SETTINGS in by_pipeline(ours)
    with pytest.raises(OSError, match="how its model decodes"):
        AutoModelForSeq2SeqLM.from_pretrained(ours)
    # The caller's own take their place.
    AutoModelForSeq2SeqLM.from_pretrained(
        ours, generation_config=CapsNMTForConditionalGeneration.generation_config_class()
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_beams": "4"}, "num_beams is '4'; allowed are integers of at least 1"),
        ({"num_beams": 10**9}, "num_beams is 1000000000; allowed are integers up to 1000"),
        (
            {"num_return_sequences": 2**31, "do_sample": True},
            "num_return_sequences is 2147483648; allowed are integers up to 1000",
        ),
        (
            {"encoder_no_repeat_ngram_size": 2**31},
            "encoder_no_repeat_ngram_size is 2147483648; allowed are integers from",
        ),
        ({"length_penalty": float("nan")}, "length_penalty is nan; allowed are finite numbers"),
        ({"eos_token_id": 29}, "eos_token_id is 29; allowed are integers from 0 to 28"),
        ({"bad_words_ids": [[0.5]]}, r"bad_words_ids is \[\[0.5\]\]; allowed are lists of lists"),
        ({"max_length": -3}, "max_length is -3; allowed are integers of at least 1"),
        ({"penalty_alpha": "0.6"}, "penalty_alpha is '0.6'; allowed are finite numbers"),
        ({"use_cache": 0}, "use_cache is 0; allowed are None, True, False"),
    ],
)
def test_decoding_settings_are_checked(ours, capsys, fields, message):  # noqa: F811
    edit(ours / SETTINGS, **fields)
    with pytest.raises(ValueError, match=f"{SETTINGS} cannot be used: {message}"):
        AutoModelForSeq2SeqLM.from_pretrained(ours)
    assert str(ours) in by_command(ours, capsys)


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"stop_strings": ["a"]}, "stop_strings is ['a']"), ({"prompt_lookup_num_tokens": 3}, "assisted_generation")],
)
def test_what_was_saved_with_settings_for_generate_alone_loads_again(ours, capsys, fields, message):  # noqa: F811
    model = AutoModelForSeq2SeqLM.from_pretrained(ours)
    model.generation_config.update(**fields)
    model.save_pretrained(ours)
    [(name, value)] = fields.items()
    assert getattr(AutoModelForSeq2SeqLM.from_pretrained(ours).generation_config, name) == value
    assert message in by_command(ours, capsys)


def test_one_translation_a_line_whatever_the_settings_say(ours, tmp_path):  # noqa: F811
    text = tmp_path / "in"
    text.write_text("a b\nc\n")
    outputs = []
    for fields in ({"num_beams": 4}, {"num_beams": 4, "num_return_sequences": 3, "return_dict_in_generate": True}):
        edit(ours / SETTINGS, **fields)
        translate.main(["--model", str(ours), "--input_file", str(text), "--output_file", f"{text}.out"])
        outputs.append((tmp_path / "in.out").read_text())
    assert outputs[0] == outputs[1]


def test_the_settings_of_a_tokenizer(ours, tmp_path, capsys, caplog):  # noqa: F811
    (ours / "tokenizer_config.json").unlink()
    assert "has no tokenizer_config.json" in by_command(ours, capsys)
    assert "lacks tokenizer_config.json" in by_pipeline(ours)
    marian = save_tiny_marian(tmp_path / "marian")
    with caplog.at_level(logging.WARNING):
        for name in ("tokenizer_config.json", SETTINGS):
            (marian / name).unlink()
            check_folder(marian)
            assert name in caplog.text, "of another's checkpoint there is a warning"


def test_a_tokenizer_of_another_model(ours, capsys):  # noqa: F811
    file = ours / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["vocab"]["a"] = 77
    file.write_text(json.dumps(content))
    assert "the tokenizer makes a word 77, and the model" in by_command(ours, capsys)
    with pytest.raises(ValueError, match=r"the tokenizer makes a word 77, and the model .* has 29: it is another"):
        pipeline("translation", model=str(ours), device="cpu")("a b")


@pytest.mark.parametrize("elsewhere", ["../stolen.safetensors", "/etc/passwd", "..", "a/b.safetensors", "", None, 5])
def test_a_weight_map_stays_in_its_folder(ours, capsys, elsewhere):  # noqa: F811
    tensors = load_file(ours / WEIGHTS)
    shutil.move(ours / WEIGHTS, ours.parent / "stolen.safetensors")
    (ours / f"{WEIGHTS}.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": dict.fromkeys(tensors, elsewhere)})
    )
    assert f"{WEIGHTS}.index.json" in by_command(ours, capsys) or "holds no weights" in by_command(ours, capsys)
    with pytest.raises(OSError, match=r"weights must be files beside it. Do not trust this checkpoint"):
        AutoModelForSeq2SeqLM.from_pretrained(ours)


def test_damaged_weights_are_named(ours):  # noqa: F811
    (ours / WEIGHTS).write_bytes((ours / WEIGHTS).read_bytes()[:-40])
    with pytest.raises(OSError, match=f"the weights in {ours} are damaged: .*; copy or download them again"):
        AutoModelForSeq2SeqLM.from_pretrained(ours)


def test_a_blank_string_has_an_empty_translation(ours):  # noqa: F811
    translator = pipeline("translation", model=str(ours), device="cpu", max_new_tokens=5)
    assert translator("") == translator(" \n") == [{"translation_text": ""}]
    alone = translator("a b")
    assert alone != [{"translation_text": ""}]
    for size in (1, 3):
        assert translator(["", "a b", " "], batch_size=size) == [
            {"translation_text": ""},
            *alone,
            {"translation_text": ""},
        ]
    assert translator("", num_beams=2, num_return_sequences=2) == [{"translation_text": ""}] * 2
    assert translator("", return_tensors=True)[0]["translation_token_ids"].tolist() == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_max_length": "32"}, "model_max_length is '32'; allowed are numbers of at least 1"),
        ({"model_max_length": 0}, "model_max_length is 0; allowed are numbers of at least 1"),
        ({"truncation_side": "up"}, "truncation_side|Truncation side"),
    ],
)
def test_settings_of_a_tokenizer_are_checked(ours, fields, message):  # noqa: F811
    edit(ours / "tokenizer_config.json", **fields)
    with pytest.raises(ValueError, match=f"the tokenizer in {ours} cannot be loaded: .*({message})"):
        load_tokenizer(ours)


@pytest.mark.skipif(
    Version(transformers.__version__) < Version("5.22"), reason="Transformers itself drops one of the two, by chance"
)
def test_two_words_of_one_number(ours):  # noqa: F811
    file = ours / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["vocab"]["a"] = content["model"]["vocab"]["b"]
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"are both word 4, so it decodes by chance"):
        load_tokenizer(ours)


def test_a_tokenizer_that_makes_nothing_of_a_text(ours):  # noqa: F811
    """It would be translated as if it were blank."""
    file = ours / "tokenizer.json"
    content = json.loads(file.read_text())
    content["post_processor"]["single"] = []
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"the tokenizer in {ours} cannot be loaded: it makes no words of a text"):
        load_tokenizer(ours)


def test_a_warm_start_takes_nothing_less(tmp_path):
    """What is random, or not a number, in the parent would be so in the model, and training would hide it."""
    folder = save_tiny_marian(tmp_path / "marian")
    tensors, lost = load_file(folder / WEIGHTS), "model.encoder.layers.0.fc1.weight"
    begin = CapsuleAggregatedMarianForConditionalGeneration.from_marian
    save_file({name: tensors[name] for name in tensors if name != lost}, folder / WEIGHTS, {"format": "pt"})
    with pytest.raises(
        ValueError,
        match=rf"marian lacks weights, or has others than its .*: {lost}; copy or download it again",
    ):
        begin(folder)
    save_file({**tensors, lost: tensors[lost] * float("nan")}, folder / WEIGHTS, {"format": "pt"})
    with pytest.raises(ValueError, match=rf"the weights in .*marian are not finite: {lost}"):
        begin(folder)
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    edit(folder / "config.json", d_model=8)
    with pytest.raises(OSError, match=r"the weights in .*marian do not fit its configuration: .* Put back the config"):
        begin(folder)
    edit(folder / "config.json", d_model=16)
    (folder / SETTINGS).write_text("{")
    with pytest.raises(OSError, match=r"generation_config.json, .*, cannot be used: it is damaged"):
        begin(folder)
    (folder / SETTINGS).unlink()
    assert begin(folder).config.d_model == 16
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])
    with pytest.raises(OSError, match=r"the weights in .*marian are damaged: .*; copy or download them again"):
        begin(folder)


@pytest.mark.parametrize("ours", ["transformer"], indirect=True)
def test_nor_of_a_plain_model_of_this_package(ours):  # noqa: F811
    tensors = load_file(ours / WEIGHTS)
    lost = sorted(tensors)[-1]
    save_file({name: tensors[name] for name in tensors if name != lost}, ours / WEIGHTS, {"format": "pt"})
    with pytest.raises(ValueError, match=f"lacks weights, or has others than its .*: .*{lost}"):
        CapsuleAggregatedMarianForConditionalGeneration.from_marian(ours, layer_aggregation="em_routing")
