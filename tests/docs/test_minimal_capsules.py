"""docs/tutorials/minimal_capsules.py computes what the package computes, and learns."""

import ast
import importlib.util
import random
import re
import sys

import pytest
import torch
from code_blocks import ROOT

from hf_capsule_mt import CapsuleAggregatedMarianConfig, CapsuleAggregatedMarianForConditionalGeneration

FILE = ROOT / "docs" / "tutorials" / "minimal_capsules.py"
# Names of the package's weights, for patterns of names in the file.
NAMES = {
    r"^embedding\.": "model.shared.",
    r"^(encoder|decoder)_aggregation\.norm\.": r"model.\1.aggregation.layer_norm.",
    r"^(encoder|decoder)_aggregation\.beta": r"model.\1.aggregation.aggregator.routing.beta",
    r"^(encoder|decoder)_aggregation\.active\.": r"model.\1.aggregation.aggregator.activations.",
    r"^(encoder|decoder)_aggregation\.": r"model.\1.aggregation.aggregator.",
    r"^(encoder|decoder)\.": r"model.\1.layers.",
    r"\.self_attention\.": ".self_attn.",
    r"\.source_attention\.": ".encoder_attn.",
    r"\.self_norm\.": ".self_attn_layer_norm.",
    r"\.source_norm\.": ".encoder_attn_layer_norm.",
    r"\.feed_norm\.": ".final_layer_norm.",
    r"\.expand\.": ".fc1.",
    r"\.contract\.": ".fc2.",
    r"\.query\.": ".q_proj.",
    r"\.key\.": ".k_proj.",
    r"\.value\.": ".v_proj.",
    r"\.output\.": ".out_proj.",
}


@pytest.fixture(scope="module")
def minimal():
    spec = importlib.util.spec_from_file_location("minimal_capsules", FILE)
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def name_in_package(name):
    for pattern, replacement in NAMES.items():
        name = re.sub(pattern, replacement, name)
    return name


def models(minimal, capsules, seed=0):
    """The model of the file and that of the package, in double precision, with the same random weights."""
    torch.manual_seed(seed)
    config = minimal.Config(
        vocabulary=19, width=16, layers=2, heads=2, hidden=24, capsules=capsules, dropout=0.0, positions=12
    )
    small = minimal.Translator(config).double()
    for name, parameter in small.named_parameters():
        torch.nn.init.normal_(parameter, mean=float(name.endswith("norm.weight")), std=0.3)
    sizes = {"layers": 2, "attention_heads": 2, "ffn_dim": 24}
    package_config = CapsuleAggregatedMarianConfig(
        vocab_size=19,
        d_model=16,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()},
        activation_function="relu",
        scale_embedding=True,
        dropout=0.0,
        max_position_embeddings=12,
        pad_token_id=0,
        eos_token_id=2,
        forced_eos_token_id=None,
        decoder_start_token_id=0,
        label_smoothing=0.1,
        layer_aggregation="em_routing",
        num_output_capsules=capsules,
    )
    large = CapsuleAggregatedMarianForConditionalGeneration(package_config).double()
    weights = {name_in_package(name): tensor for name, tensor in small.state_dict().items()}
    missing, unexpected = large.load_state_dict(weights, strict=False)
    assert unexpected == []
    # The package has other names for the one embedding, and positions and a bias that are not learned.
    assert all(re.search(r"embed_tokens|lm_head|embed_positions|final_logits_bias", name) for name in missing)
    return small, large


@pytest.mark.parametrize("capsules", [16, 4])
def test_it_computes_what_the_package_computes(minimal, capsules):
    small, large = models(minimal, capsules)
    source = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0]])
    target = torch.tensor([[3, 5, 2, 0], [7, 6, 5, 2]])
    scores, loss = small.train()(source, target)
    outputs = large.train()(
        input_ids=source,
        attention_mask=(source != 0).long(),
        labels=target.masked_fill(target == 0, -100),
        return_logits=True,
    )
    torch.testing.assert_close(scores, outputs.logits, rtol=0, atol=1e-9)
    torch.testing.assert_close(loss, outputs.loss, rtol=0, atol=1e-9)
    loss.backward()
    outputs.loss.backward()
    gradients = {name: parameter.grad for name, parameter in large.named_parameters()}
    for name, parameter in small.named_parameters():
        assert parameter.grad.abs().max() > 0, name
        torch.testing.assert_close(parameter.grad, gradients[name_in_package(name)], rtol=0, atol=1e-9)


def test_it_decodes_as_the_package_does(minimal):
    small, large = models(minimal, capsules=16, seed=1)
    source = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0], [11, 12, 13, 2, 0]])
    translated = small.eval().translate(source)
    # One sentence ends by itself, and the others at the last position.
    assert [2 in row for row in translated.tolist()] == [False, True, False]
    with torch.no_grad():
        generated = large.eval().generate(
            input_ids=source, attention_mask=(source != 0).long(), num_beams=1, do_sample=False, max_length=12
        )
    assert translated.tolist() == generated[:, 1:].tolist()


def test_it_learns(minimal, capsys):
    random.seed(0)
    torch.manual_seed(0)
    pairs = minimal.read_pairs()[:40]
    vocabulary = minimal.Vocabulary(pairs)
    assert vocabulary.decode(vocabulary.encode([pairs[0][1]])[0]) == pairs[0][1]
    model = minimal.Translator(minimal.Config(vocabulary=len(vocabulary.words), layers=1, width=32, capsules=32))
    losses = minimal.train(model, pairs, vocabulary, updates=30, batch_size=8)
    assert losses[-1] < 0.8 * losses[0]
    assert "loss" in capsys.readouterr().out


def test_it_imports_only_torch_and_the_standard_library():
    imported = set()
    for node in ast.walk(ast.parse(FILE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module.partition(".")[0])
    assert imported - {"torch"} <= sys.stdlib_module_names
