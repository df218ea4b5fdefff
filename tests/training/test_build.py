"""The model a run starts from: from scratch, from this package's checkpoints, from Marian's."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_marian import SHAPE, marian_tokenizer, save_tiny_marian, tiny_model, tiny_tokenizer
from tiny_run import small
from tokenizers import Tokenizer, models, processors
from transformers import AutoModelForSeq2SeqLM, BartConfig, MarianMTModel, PreTrainedTokenizerFast

from hf_capsule_mt import METHODS, CapsuleAggregatedMarianConfig, CapsuleAggregatedMarianForConditionalGeneration
from hf_capsule_mt.configuration import (
    CapsuleAggregatedM2M100Config,
    decoding_fields,
    method_config_class,
    method_fields,
    preset_config,
)
from hf_capsule_mt.data.tokenizer import check_tokenizer, train_joint_bpe
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.modeling import CapsuleAggregatedM2M100ForConditionalGeneration
from hf_capsule_mt.training import build as training_build
from hf_capsule_mt.training.build import build_model, check_vocabulary
from hf_capsule_mt.training.options import ModelArguments

MARIAN_METHODS = [method for method in METHODS if method_config_class(method) is CapsuleAggregatedMarianConfig]
OTHER_METHODS = [method for method in METHODS if method not in MARIAN_METHODS]
TOKENS = {"vocab_size": 29, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
BATCH = {
    "input_ids": torch.tensor([[3, 4, 5, 2], [6, 7, 2, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
    "decoder_input_ids": torch.tensor([[0, 5, 4], [0, 7, 6]]),
}


def build(tokenizer=None, overrides=(), **options):
    arguments = ModelArguments(config_overrides=list(overrides), **options)
    return build_model(arguments, tokenizer or tiny_tokenizer())


def from_scratch(*overrides, method="em-routing", size="tiny", tokenizer=None):
    return build(tokenizer, [*small(method), *overrides], method=method, size=size, tokenizer_name="tokenizer")


def logits(model):
    with torch.no_grad():
        return model.eval()(**BATCH).logits


@pytest.fixture
def marian(tmp_path):
    return str(save_tiny_marian(tmp_path / "marian"))


@pytest.fixture
def own(tmp_path):
    from_scratch().save_pretrained(tmp_path / "own")
    return str(tmp_path / "own")


@pytest.mark.parametrize("from_marian", [False, True])
def test_a_fault_of_the_package_is_not_blamed_on_the_user(from_marian, marian, monkeypatch):
    """Its traceback would be gone."""
    # Of a number no fields can be taken.
    monkeypatch.setattr(training_build, "decoding_fields", lambda method: 5)
    monkeypatch.setattr(training_build, "method_fields", lambda method: 5)
    with pytest.raises(TypeError, match="mapping"):
        build(model=marian, method="em-routing") if from_marian else from_scratch()


def test_from_scratch_takes_the_special_ids_from_the_tokenizer():
    tokenizer = train_joint_bpe(["some text"], 300)
    model = from_scratch("dropout=0.25", "num_output_capsules=4", tokenizer=tokenizer)
    config = model.config
    assert config.vocab_size == len(tokenizer)
    assert (config.pad_token_id, config.decoder_start_token_id) == (tokenizer.pad_token_id,) * 2
    assert (config.eos_token_id, config.forced_eos_token_id) == (tokenizer.eos_token_id,) * 2
    assert (config.dropout, config.num_output_capsules, config.label_smoothing) == (0.25, 4, 0.1)
    assert model.generation_config.bad_words_ids == [[tokenizer.pad_token_id]]
    assert model.generation_config.num_beams == 4
    check_tokenizer(tokenizer, config)


@pytest.mark.parametrize("method", ["transformer", "rnmt"])
def test_special_ids_that_are_not_those_of_our_tokenizers(method):
    vocabulary = {token: number for number, token in enumerate([*"abcdefg", "<pad>", "<unk>", "</s>"])}
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 9)])
    model = from_scratch(method=method, tokenizer=PreTrainedTokenizerFast(tokenizer_object=words, **special))
    config, settings = model.config, model.generation_config
    assert (config.vocab_size, config.pad_token_id, config.decoder_start_token_id) == (10, 7, 7)
    assert (config.eos_token_id, config.forced_eos_token_id) == (9, 9)
    assert (settings.forced_eos_token_id, settings.bad_words_ids) == (9, [[7]])


def test_targets_of_a_pre_norm_model_begin_with_the_end():
    """M2M-100 gives padding no position."""
    tokenizer = train_joint_bpe(["some text"], 300)
    model = from_scratch(method="pre-norm-transformer", tokenizer=tokenizer)
    assert model.config.decoder_start_token_id == tokenizer.eos_token_id
    assert model.generation_config.decoder_start_token_id == tokenizer.eos_token_id


def test_another_start_of_targets_is_that_of_translations_too(own):
    model = build(model=own, overrides=["decoder_start_token_id=2"])
    assert model.config.decoder_start_token_id == model.generation_config.decoder_start_token_id == 2


@pytest.mark.parametrize("pad_token", [None, "</s>"])
def test_a_new_model_needs_padding_that_is_not_the_end(pad_token):
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = pad_token
    with pytest.raises(UserError, match="needs a pad token and an eos token that are not the same"):
        from_scratch(tokenizer=tokenizer)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_from_scratch(method):
    tokenizer = tiny_tokenizer()
    model = from_scratch("encoder_layers=2", method=method, tokenizer=tokenizer)
    config, generation = model.config, model.generation_config
    assert type(config) is method_config_class(method)
    fields = {**method_fields(method), "encoder_layers": 2}
    assert fields.items() <= config.to_dict().items()
    assert config.label_smoothing == 0.1
    assert generation.max_length is None
    assert generation.max_new_tokens == getattr(config, "max_position_embeddings", 512) - 1
    for name, value in decoding_fields(method).items():
        assert getattr(generation, name) == value
    assert generation.bad_words_ids == [[tokenizer.pad_token_id]]
    assert generation.forced_eos_token_id == tokenizer.eos_token_id
    check_tokenizer(tokenizer, config)


@pytest.mark.parametrize("method", [None, *MARIAN_METHODS])
def test_warm_start_from_marian_changes_no_logit(marian, method):
    parent = MarianMTModel.from_pretrained(marian)
    # That method is for two layers of the encoder, and this model has one.
    overrides = ["head_aggregation_encoder_layers=[0]"] if method == "head-em-effective" else []
    model = build(method=method, model=marian, overrides=overrides)
    for name, value in method_fields(method or "transformer").items():
        assert getattr(model.config, name) == (value if name != "head_aggregation_encoder_layers" else [0])
    assert model.config.layer_aggregation_output == model.config.head_aggregation_output == "residual"
    assert torch.equal(logits(model), logits(parent))
    assert model.generation_config.to_dict() == parent.generation_config.to_dict()


@pytest.mark.parametrize("method", ["em-routing", "head-em-routing", "gdr"])
def test_a_plain_transformer_of_ones_own_becomes_another_method(tmp_path, method):
    parent = from_scratch("dropout=0.25", method="transformer")
    parent.save_pretrained(tmp_path)
    model = build(method=method, model=str(tmp_path), overrides=["attention_dropout=0.5"])
    assert {name: getattr(model.config, name) for name in method_fields(method)} == method_fields(method)
    assert (model.config.dropout, model.config.attention_dropout) == (0.25, 0.5)
    assert model.config.layer_aggregation_output == model.config.head_aggregation_output == "residual"
    assert torch.equal(logits(model), logits(parent))


@pytest.mark.parametrize("method", ["rnmt", "rnmt-gdr"])
def test_a_plain_rnmt_of_ones_own_becomes_guided(tmp_path, method):
    parent = from_scratch("dropout=0.25", method="rnmt")
    parent.generation_config.length_penalty = 0.7
    parent.save_pretrained(tmp_path)
    model = build(method=method, model=str(tmp_path), overrides=["label_smoothing=0.2"])
    assert {name: getattr(model.config, name) for name in method_fields(method)} == method_fields(method)
    assert (model.config.dropout, model.config.label_smoothing) == (0.25, 0.2)
    assert model.generation_config.length_penalty == 0.7
    assert torch.equal(logits(model), logits(parent))


def test_own_checkpoint(own):
    model = build(model=own, overrides=["dropout=0.5", "label_smoothing=0"])
    assert isinstance(model, CapsuleAggregatedMarianForConditionalGeneration)
    assert (model.config.layer_aggregation, model.config.dropout, model.config.label_smoothing) == (
        "em_routing",
        0.5,
        0,
    )
    assert torch.equal(logits(model), logits(AutoModelForSeq2SeqLM.from_pretrained(own)))
    assert model.generation_config.bad_words_ids == [[0]]


@pytest.mark.parametrize("method", ["capsnmt", "rnmt"])
def test_own_recurrent_checkpoint(tmp_path, method):
    begun = from_scratch(method=method)
    begun.save_pretrained(tmp_path)
    model = build(model=str(tmp_path), overrides=["dropout=0.5"])
    assert type(model) is type(begun)
    assert (model.config.dropout, model.generation_config.num_beams) == (0.5, begun.generation_config.num_beams)


def test_checkpoints_that_cannot_become_the_method(marian, own, tmp_path):
    BartConfig().save_pretrained(tmp_path / "bart")
    from_scratch(method="rnmt").save_pretrained(tmp_path / "rnmt")
    for path, method in (
        (tmp_path / "bart", None),
        (own, "gdr"),
        (tmp_path / "rnmt", "em-routing"),
        *((marian, method) for method in OTHER_METHODS),
    ):
        with pytest.raises(ValueError, match=r"become|method already|Start from"):
            build(method=method, model=str(path))


def test_a_new_model_is_of_the_base_size_unless_told():
    with torch.device("meta"):
        config = build(method="transformer", tokenizer_name="tokenizer").config
    base = preset_config("transformer", "base")
    assert (config.d_model, config.encoder_layers) == (base.d_model, base.encoder_layers)


@pytest.mark.parametrize("method", [None, "em-routing"])
def test_a_model_in_half_precision_is_trained_in_float32(tmp_path, method):
    """As many OPUS-MT checkpoints are. Adam fails in float16."""
    tiny_model().half().save_pretrained(tmp_path)
    assert {weight.dtype for weight in build(model=str(tmp_path), method=method).parameters()} == {torch.float32}


def test_a_model_of_ones_own_in_half_precision_is_trained_in_float32(tmp_path):
    from_scratch().half().save_pretrained(tmp_path)
    assert {weight.dtype for weight in build(model=str(tmp_path)).parameters()} == {torch.float32}


def test_a_plain_rnmt_in_half_precision_becomes_guided_in_float32(tmp_path):
    from_scratch(method="rnmt").half().save_pretrained(tmp_path)
    model = build(method="rnmt-gdr", model=str(tmp_path))
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def test_an_unknown_field_of_a_checkpoint_is_named(own):
    with pytest.raises(UserError, match="CapsuleAggregatedMarianConfig has no field 'layers'"):
        build(model=own, overrides=["layers=9"])


def test_an_adapter_is_only_for_weights_that_are_trained(marian):
    build(model=marian, lora_rank=2)
    with pytest.raises(UserError, match="--config_overrides add weights"):
        build(model=marian, lora_rank=2, overrides=["layer_aggregation=em_routing"])


def with_other_targets(folder):
    """A tokenizer of two vocabularies, in the second of which two words have changed places."""
    folder.mkdir()
    tokenizer = marian_tokenizer(folder, True)
    one, other = list(tokenizer.target_encoder)[-2:]
    ids = tokenizer.target_encoder
    ids[one], ids[other] = ids[other], ids[one]
    return tokenizer


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_the_vocabulary_of_targets_is_compared_too(tmp_path, monkeypatch):
    own_tokenizer = with_other_targets(tmp_path / "own")
    monkeypatch.setattr(training_build, "load_tokenizer", lambda *_: own_tokenizer)
    args = ModelArguments(model="name", tokenizer_name="other")
    check_vocabulary(args, with_other_targets(tmp_path / "same"))
    with pytest.raises(UserError, match="has another vocabulary than"):
        check_vocabulary(args, marian_tokenizer(tmp_path, True))


def test_the_vocabulary_is_compared_with_that_of_the_revision(monkeypatch):
    of_revision = {"main": train_joint_bpe(["some text"], 300), "v1": tiny_tokenizer()}
    monkeypatch.setattr(training_build, "load_tokenizer", lambda name, revision="main": of_revision[revision])
    check_vocabulary(ModelArguments(model="name", revision="v1", tokenizer_name="other"), tiny_tokenizer())
    with pytest.raises(UserError, match="has another vocabulary than"):
        check_vocabulary(ModelArguments(model="name", tokenizer_name="other"), tiny_tokenizer())


@pytest.mark.parametrize("method", [None, "em-routing"])
def test_a_checkpoint_that_lacks_a_weight_is_refused(marian, method):
    """It would be drawn at random."""
    file = f"{marian}/model.safetensors"
    weights = load_file(file)
    del weights["model.encoder.layers.0.fc1.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match="fc1"):
        build(model=marian, method=method)


def test_a_checkpoint_without_settings_of_generation_is_refused(marian):
    """The model would be saved with settings that are not its own."""
    Path(marian, "generation_config.json").unlink()
    with pytest.raises(UserError, match="has no readable generation_config"):
        build(model=marian)


@pytest.mark.parametrize("name", ["m2m_100", "capsule_aggregated_m2m_100"])
def test_a_plain_m2m_100_of_ones_own_becomes_another_method(name, tmp_path):
    parent = CapsuleAggregatedM2M100ForConditionalGeneration(CapsuleAggregatedM2M100Config(**SHAPE, **TOKENS))
    parent.save_pretrained(tmp_path)
    # It is saved as an M2M-100. Both names are of the same model.
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "m2m_100"
    if name != "m2m_100":
        parent.config.to_json_file(tmp_path / "config.json")
        assert json.loads((tmp_path / "config.json").read_text())["model_type"] == name
    model = build(method="em-routing", model=str(tmp_path))
    assert type(model) is type(parent)
    assert model.config.layer_aggregation == "em_routing"
    assert torch.equal(logits(model), logits(parent))
