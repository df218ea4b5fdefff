"""The model a run starts from: from scratch, from this package's checkpoints, from Marian's."""

import pytest
import torch
from tiny_marian import marian_tokenizer, save_tiny_marian, tiny_model, tiny_tokenizer
from tiny_run import SMALL, small
from transformers import AutoModelForSeq2SeqLM, BartConfig, MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from hf_capsule_mt import (
    METHODS,
    CapsNMTForConditionalGeneration,
    CapsuleAggregatedMarianConfig,
    CapsuleAggregatedMarianForConditionalGeneration,
    RNMTForConditionalGeneration,
)
from hf_capsule_mt.checkpoints import load_tokenizer
from hf_capsule_mt.configuration import decoding_fields, method_config_class, method_fields
from hf_capsule_mt.data.tokenizer import check_tokenizer, train_joint_bpe
from hf_capsule_mt.training.arguments import ModelArguments
from hf_capsule_mt.training.build import build_model

MARIAN_METHODS = [method for method in METHODS if method_config_class(method) is CapsuleAggregatedMarianConfig]
RECURRENT_METHODS = [method for method in METHODS if method not in MARIAN_METHODS]
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


def test_tokenizers_that_train_another_model():
    tokenizer = train_joint_bpe(["some text"], 300)
    config = from_scratch(tokenizer=tokenizer).config
    tokenizer.padding_side = "left"
    with pytest.raises(ValueError, match="padding_side of the tokenizer is 'left'"):
        check_tokenizer(tokenizer, config)
    tokenizer.padding_side, tokenizer.pad_token = "right", tokenizer.eos_token
    config.pad_token_id = config.eos_token_id
    with pytest.raises(ValueError, match="pad token and its eos token are both '</s>'"):
        check_tokenizer(tokenizer, config)


def test_a_tokenizer_without_a_special_token_is_named_before_a_model_is_made_for_it():
    for given, message in (
        ({"eos_token": "</s>"}, "The tokenizer has no pad_token. Give it one"),
        ({"pad_token": "<pad>"}, "The tokenizer has no eos_token. Give it one"),
    ):
        bare = PreTrainedTokenizerFast(tokenizer_object=tiny_tokenizer().backend_tokenizer, **given)
        with pytest.raises(ValueError, match=message):
            from_scratch(tokenizer=bare)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_from_scratch(method):
    config = from_scratch("encoder_layers=2", method=method).config
    assert type(config) is method_config_class(method)
    assert method_fields(method).items() <= config.to_dict().items()


@pytest.mark.parametrize("method", MARIAN_METHODS)
def test_aggregations_from_scratch_replace(method):
    config = from_scratch("encoder_layers=2", method=method).config
    assert config.layer_aggregation_output == config.head_aggregation_output == "replace"


@pytest.mark.parametrize("method", RECURRENT_METHODS)
def test_recurrent_from_scratch(method):
    tokenizer = tiny_tokenizer()
    model = from_scratch("d_model=32", method=method, tokenizer=tokenizer)
    classes = {"caps_nmt": CapsNMTForConditionalGeneration, "rnmt": RNMTForConditionalGeneration}
    assert type(model) is classes[model.config.model_type]
    config, generation = model.config, model.generation_config
    assert (config.d_model, config.label_smoothing) == (32, 0.1)
    assert generation.max_length == 512
    for name, value in decoding_fields(method).items():
        assert getattr(generation, name) == value
    assert generation.bad_words_ids == [[tokenizer.pad_token_id]]
    assert generation.forced_eos_token_id == tokenizer.eos_token_id
    check_tokenizer(tokenizer, config)


def test_size_is_base_unless_given():
    assert from_scratch(size=None).config.dropout == 0.1
    assert from_scratch(size="tiny").config.dropout == 0.3


@pytest.mark.parametrize("method", [None, *MARIAN_METHODS])
def test_warm_start_from_marian_changes_no_logit(marian, method):
    parent = MarianMTModel.from_pretrained(marian)
    # That method is for two layers of the encoder, and this model has one.
    overrides = ["head_aggregation_encoder_layers=[0]"] if method == "head-em-effective" else []
    model = build(method=method, model_name_or_path=marian, overrides=overrides)
    for name, value in method_fields(method or "transformer").items():
        assert getattr(model.config, name) == (value if name != "head_aggregation_encoder_layers" else [0])
    assert model.config.layer_aggregation_output == model.config.head_aggregation_output == "residual"
    assert torch.equal(logits(model), logits(parent))
    assert model.generation_config.to_dict() == parent.generation_config.to_dict()


@pytest.mark.parametrize("method", ["em-routing", "head-em-routing", "gdr"])
def test_a_plain_transformer_of_ones_own_becomes_another_method(tmp_path, method):
    parent = from_scratch("dropout=0.25", method="transformer")
    parent.save_pretrained(tmp_path)
    model = build(method=method, model_name_or_path=str(tmp_path), overrides=["attention_dropout=0.5"])
    assert {name: getattr(model.config, name) for name in method_fields(method)} == method_fields(method)
    assert (model.config.dropout, model.config.attention_dropout) == (0.25, 0.5)
    assert model.config.layer_aggregation_output == model.config.head_aggregation_output == "residual"
    assert torch.equal(logits(model), logits(parent))


@pytest.mark.parametrize("method", ["rnmt", "rnmt-gdr"])
def test_a_plain_rnmt_of_ones_own_becomes_guided(tmp_path, method):
    parent = from_scratch("dropout=0.25", method="rnmt")
    parent.generation_config.length_penalty = 0.7
    parent.save_pretrained(tmp_path)
    model = build(method=method, model_name_or_path=str(tmp_path), overrides=["label_smoothing=0.2"])
    assert {name: getattr(model.config, name) for name in method_fields(method)} == method_fields(method)
    assert (model.config.dropout, model.config.label_smoothing) == (0.25, 0.2)
    assert model.generation_config.length_penalty == 0.7
    assert torch.equal(logits(model), logits(parent))


@pytest.mark.parametrize(
    ("method", "overrides", "message"),
    [
        ("em-routing", (), "method is 'em-routing', which no RNMT model can become, but .*leave out"),
        (
            "capsnmt-hybrid",
            (),
            r"the weights of the RNMT.* do not fit the configuration: model\.encoder\.agg",
        ),
        ("rnmt-gdr", ("d_model=32",), "the weights of the RNMT.* do not fit the configuration: size mismatch"),
        ("rnmt-gdr", ("layer_aggregation=linear",), "RNMTConfig has no field 'layer_aggregation'; did you mean"),
    ],
)
def test_what_a_plain_rnmt_cannot_become(tmp_path, method, overrides, message):
    from_scratch(method="rnmt").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        build(method=method, model_name_or_path=str(tmp_path), overrides=list(overrides))


def test_guided_routing_is_not_added_twice():
    with pytest.raises(ValueError, match="the model has guided_routing='gdr'; give one without it"):
        RNMTForConditionalGeneration.from_rnmt(from_scratch(method="rnmt-gdr"))
    with pytest.raises(ValueError, match="from_rnmt takes a trained RNMTForConditionalGeneration, not a str; load it"):
        RNMTForConditionalGeneration.from_rnmt("folder")


def test_warm_start_with_other_fields(marian):
    model = build(method="em-routing", model_name_or_path=marian, overrides=["routing_iterations=2", "dropout=0.5"])
    assert (model.config.routing_iterations, model.config.dropout) == (2, 0.5)


def test_half_precision_checkpoints_are_trained_in_float32(tmp_path, own):
    tiny_model().half().save_pretrained(tmp_path / "marian")
    AutoModelForSeq2SeqLM.from_pretrained(own).half().save_pretrained(own)
    for path in (tmp_path / "marian", own):
        assert {weight.dtype for weight in build(model_name_or_path=str(path)).parameters()} == {torch.float32}


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_two_vocabularies(tmp_path):
    tokenizer = marian_tokenizer(tmp_path, separate_vocabs=True)
    sizes = {"vocab_size": tokenizer.vocab_size, "decoder_vocab_size": len(tokenizer.target_encoder)}
    ids = {"pad_token_id": 2, "eos_token_id": 0, "forced_eos_token_id": 0, "decoder_start_token_id": 2}
    untied = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
    small = {name: int(value) for name, value in (override.split("=") for override in SMALL)}
    parent = MarianMTModel(MarianConfig(**small, **sizes, **ids, **untied))
    parent.save_pretrained(tmp_path / "marian")
    model = build(tokenizer, method="em-routing", model_name_or_path=str(tmp_path / "marian"))
    assert logits(model).shape[-1] == len(tokenizer.target_encoder)
    assert torch.equal(logits(model), logits(parent))
    check_tokenizer(tokenizer, model.config)


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("method", ["rnmt", "capsnmt"])
def test_two_vocabularies_are_refused_for_a_model_with_one(tmp_path, method):
    marian_tokenizer(tmp_path, separate_vocabs=True).save_pretrained(tmp_path / "two")
    tokenizer = load_tokenizer(tmp_path / "two")
    config = from_scratch(method=method, tokenizer=tokenizer).config
    message = f"two has one vocabulary for the source and another for the target; {config.model_type} has one for both"
    with pytest.raises(ValueError, match=f"{message}: make a tokenizer with hf-capsule-mt train_tokenizer, or take"):
        check_tokenizer(tokenizer, config)
    # As the message says.
    check_tokenizer(tokenizer, from_scratch("decoder_vocab_size=100", "vocab_size=100", tokenizer=tokenizer).config)


def test_own_checkpoint(own):
    model = build(model_name_or_path=own, overrides=["dropout=0.5", "label_smoothing=0"])
    assert isinstance(model, CapsuleAggregatedMarianForConditionalGeneration)
    assert (model.config.layer_aggregation, model.config.dropout, model.config.label_smoothing) == (
        "em_routing",
        0.5,
        0,
    )
    assert torch.equal(logits(model), logits(AutoModelForSeq2SeqLM.from_pretrained(own)))
    assert model.generation_config.bad_words_ids == [[0]]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["d_modle=8"], "no field 'd_modle'; did you mean d_model"),
        (["d_model=abc"], "d_model is 'abc'; allowed are values of int"),
        (["activation_function=rilu"], "activation_function is 'rilu'; allowed are"),
        (["num_output_capsules=3"], "num_output_capsules is 3; .* d_model=16"),
        (["dropout"], "config_overrides has 'dropout'; write name=value"),
    ],
)
def test_impossible_fields(overrides, message):
    with pytest.raises(ValueError, match=message):
        from_scratch(*overrides)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("d_modle=8", "no field 'd_modle'; did you mean d_model"),
        ("d_model=32", "MarianMTModel do not fit the configuration|do not fit its configuration with .*'d_model': 32"),
        ("d_model=abc", "d_model is 'abc'; allowed are values of int"),
    ],
)
def test_fields_that_do_not_fit_a_checkpoint(marian, own, override, message):
    for path in (marian, own):
        with pytest.raises((ValueError, OSError), match=message):
            build(model_name_or_path=path, overrides=[override])


def test_a_field_that_leaves_weights_out(own):
    with pytest.raises(ValueError, match=r"weights in .*own do not fit .*'linear'.*: model\.decoder\.aggregation"):
        build(model_name_or_path=own, overrides=["layer_aggregation=linear"])


def test_own_checkpoint_as_another_method(own):
    with pytest.raises(ValueError, match=r"method is 'linear-combination', but .*own has one"):
        build(method="linear-combination", model_name_or_path=own)


@pytest.mark.parametrize("method", RECURRENT_METHODS)
def test_a_marian_model_cannot_become_recurrent(marian, method):
    with pytest.raises(ValueError, match=f"method is '{method}', which no Marian model can become, but .*leave out"):
        build(method=method, model_name_or_path=marian)


def test_capsnmt_checkpoint(tmp_path):
    from_scratch(method="capsnmt").save_pretrained(tmp_path)
    model = build(model_name_or_path=str(tmp_path), overrides=["dropout=0.5"])
    assert isinstance(model, CapsNMTForConditionalGeneration)
    assert (model.config.dropout, model.generation_config.length_penalty) == (0.5, 0.8)
    with pytest.raises(ValueError, match=r"no field 'layer_aggregation'; did you mean .*sentence_aggregation"):
        build(model_name_or_path=str(tmp_path), overrides=["layer_aggregation=linear"])
    with pytest.raises(ValueError, match=r"weights in .* do not fit .*: model\.encoder\.aggregation\.scoring"):
        build(model_name_or_path=str(tmp_path), overrides=["separable_scoring=false"])
    with pytest.raises(OSError, match=r"do not fit its configuration with .*'routing_iterations': 2"):
        build(model_name_or_path=str(tmp_path), overrides=["routing_iterations=2"])


def test_rnmt_checkpoint(tmp_path):
    from_scratch(method="rnmt").save_pretrained(tmp_path)
    model = build(model_name_or_path=str(tmp_path), overrides=["dropout=0.5"])
    assert isinstance(model, RNMTForConditionalGeneration)
    assert (model.config.dropout, model.generation_config.num_beams) == (0.5, 4)
    # The hybrid has weights that this has not.
    with pytest.raises(ValueError, match=r"weights in .* do not fit .*: model\.encoder\.aggregation\.scoring"):
        build(model_name_or_path=str(tmp_path), overrides=["sentence_aggregation=capsule"])


def test_checkpoint_of_another_type(tmp_path):
    BartConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="holds a model of type 'bart'; training starts from"):
        build(model_name_or_path=str(tmp_path))


@pytest.mark.parametrize(("option", "message"), [("method", "'em-routing'"), ("size", "'tiny', 'base', 'big'")])
def test_unknown_names_list_what_there_is(option, message):
    with pytest.raises(ValueError, match=f"{option} is 'unknown'; allowed are .*{message}"):
        from_scratch(**{option: "unknown"})
