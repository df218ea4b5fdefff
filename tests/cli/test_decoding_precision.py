"""`--dtype` of the commands that decode is the precision of what decodes."""

import argparse

import pytest
import torch
from tiny_marian import tiny_model, tiny_tokenizer
from transformers import PreTrainedModel, UMT5Config, UMT5ForConditionalGeneration
from translated_lines import translate_lines

from hf_capsule_mt.cli import decoding
from hf_capsule_mt.cli.parser import add_decoding, add_model
from hf_capsule_mt.decoding import Engine
from hf_capsule_mt.decoding.products.products import multiplies_bfloat16


def _args(*options):
    parser = argparse.ArgumentParser()
    add_model(parser)
    add_decoding(parser)
    args = parser.parse_args(["--device", "cpu", *options])
    decoding.check_options(args)
    return args


def _load(args):
    state = decoding.process_state("cpu")
    return decoding.decoding_options(args).load(decoding.device_of(args, state))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Checkpoints of a model that the engine decodes, of one that it does not, and of the first in bfloat16."""
    sizes = {"vocab_size": 40, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    other = UMT5ForConditionalGeneration(UMT5Config(**sizes, decoder_start_token_id=0))
    found = {}
    for name, model in {"known": tiny_model(), "other": other, "half": tiny_model().bfloat16()}.items():
        found[name] = str(tmp_path_factory.mktemp(name))
        model.save_pretrained(found[name])
        tiny_tokenizer().save_pretrained(found[name])
    return found


@pytest.mark.parametrize("folder", ["known", "half"])
@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16", "int8"])
def test_the_engine_has_it(dtype, folder, folders, monkeypatch):
    args = _args("--model", folders[folder], "--dtype", dtype)
    model, tokenizer = _load(args)
    keeps_half = folder == "half" and dtype in ("bfloat16", "int8") and multiplies_bfloat16(torch.device("cpu"))
    assert model.dtype == (torch.bfloat16 if keeps_half else torch.float32)
    asked, make = [], Engine.__init__
    monkeypatch.setattr(
        Engine, "__init__", lambda self, model, dtype, *choice: asked.append(dtype) or make(self, model, dtype, *choice)
    )
    options = decoding.decoding_options(args).generate_options()
    assert len(translate_lines(model, tokenizer, ["a b", "c"], **options)) == 2
    assert asked == ["float32" if dtype == "auto" else dtype]


@pytest.mark.parametrize(
    ("model", "options"),
    [("known", ["--engine", "transformers", "--dtype", "bfloat16"]), ("other", ["--dtype", "bfloat16"])],
)
def test_without_the_engine_the_weights_have_it(model, options, folders):
    assert _load(_args("--model", folders[model], *options))[0].dtype == torch.bfloat16


def test_a_gpu_has_no_int8(folders, monkeypatch):
    moved = []
    monkeypatch.setattr(PreTrainedModel, "to", lambda model, where: moved.append(where) or model)
    args = _args("--model", folders["known"], "--dtype", "bfloat16")
    args.device = "cuda"
    # The engine's own precision.
    assert _load(args)[0].dtype == torch.float32
    args.model, args.dtype = folders["half"], "auto"
    assert _load(args)[0].dtype == torch.bfloat16
    assert moved == 2 * [torch.device("cuda")]
    args.dtype = "int8"
    with pytest.raises(ValueError, match="on cuda"):
        _load(args)
