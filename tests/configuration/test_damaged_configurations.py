"""What damage makes of a configuration is refused with its name, whatever Transformers would do with it."""

import json
import math

import pytest

from hf_capsule_mt import CapsNMTConfig, CapsuleAggregatedMarianConfig, RNMTConfig, preset_config
from hf_capsule_mt.checkpoints import load_config

MARIAN = {
    "decoder_attention_heads": [-1, 0, 3, 2**63, "4", None, True],
    "activation_dropout": [-math.inf, math.nan, 1.5, "0", None],
    "encoder_layerdrop": [-1, 2, "0"],
    "decoder_ffn_dim": [0, -2, 2**40],
    "max_position_embeddings": [0, 2**31],
    "decoder_vocab_size": [0, -1],
    "init_std": [-1.0, math.inf, "a"],
    "inverse_temperature": [0, math.nan, True],
    "activation_function": ["", "ralu", None],
    "decoder_layers": [10**9, 0],
}
RECURRENT = {"encoder_layers": [10**9], "dropout": [-math.inf, 1]}
ALL = {
    "vocab_size": [2**63, -1, "29", None, 29.0],
    "dtype": ["", "float3", "nn", "int64", 5, [], {}],
    "torch_dtype": ["", "Tensor"],
    "pad_token_id": ["0", 29, -1, [0], 0.5, True, False],
    "eos_token_id": ["2", [2, "a"], 2**63, {}],
    "forced_eos_token_id": [math.inf, "</s>", [99]],
    "routing_iterations": [10**9, -1],
}
CASES = [
    (kind, field, value)
    for kind, fields in (
        ("em-routing", {**ALL, **MARIAN}),
        ("capsnmt", {**ALL, **RECURRENT}),
        ("rnmt", {**ALL, **RECURRENT}),
    )
    for field, values in fields.items()
    for value in values
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders of configurations by method."""
    folders = {method: tmp_path_factory.mktemp(method) for method in ("em-routing", "capsnmt", "rnmt")}
    for method, folder in folders.items():
        preset_config(method, "tiny", vocab_size=29).save_pretrained(folder)
    return folders


@pytest.mark.parametrize(("method", "field", "value"), CASES)
def test_a_damaged_value_is_named_with_its_file(saved, tmp_path, method, field, value):
    fields = json.loads((saved[method] / "config.json").read_text())
    if field == "torch_dtype":
        fields.pop("dtype", None)
    (tmp_path / "config.json").write_text(json.dumps({**fields, field: value}))
    with pytest.raises(
        ValueError, match=rf"^{tmp_path}: config.json cannot be used: (torch_)?\w*{field[-5:]}"
    ) as caught:
        load_config(tmp_path)
    assert "allowed" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "damaged", ["routing_iterationr", "rooting_iterations", "outing_iterations", "routing_iterationss"]
)
def test_a_damaged_name_is_told_from_what_others_add(saved, tmp_path, damaged):
    """Without it, the model would have the default."""
    fields = json.loads((saved["em-routing"] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**fields, "added_by_others": 1}))
    assert load_config(tmp_path).added_by_others == 1
    fields[damaged] = fields.pop("routing_iterations")
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=f"'{damaged}' is no field, and 'routing_iterations' is missing"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '{"vocab_size": ' + "1" * 5000 + "}", "[]", "", "{"]
)
def test_what_is_no_object_of_json(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=rf"^{tmp_path}/config.json is not valid JSON: .*; copy it again$"):
        load_config(tmp_path)


@pytest.mark.parametrize("config_class", [CapsuleAggregatedMarianConfig, CapsNMTConfig, RNMTConfig])
def test_the_defaults_are_allowed(config_class):
    config = config_class()
    assert config_class.from_dict(config.to_dict()).to_dict() == config.to_dict()
    assert config_class(dtype="bfloat16", eos_token_id=[2, 3], pad_token_id=None).eos_token_id == [2, 3]
