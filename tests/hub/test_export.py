"""The command `export`: programs for ONNX Runtime that translate as `generate()` does, or no folder."""

import json
from pathlib import Path

import pytest
import tiny_multilingual
import torch
from families import translator
from tiny_marian import save_tiny_marian
from torch import nn
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    MT5Config,
    MT5ForConditionalGeneration,
    NllbMoeConfig,
)

from hf_capsule_mt.cli.export import main
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.hub import exporting
from hf_capsule_mt.hub.export_programs import PAST, EncoderProgram, StepProgram, family_of, next_states, run_steps
from hf_capsule_mt.hub.exporting import PROGRAMS, check_numbers, example_source, read_program

TRAINED = Path(__file__).parents[2] / "checkpoints" / "tatoeba-en-de-transformer"
PLAIN = {"nllb": "deu_Latn", "mbart50": "de_DE", "t5": None, "trained": None}
"""Plain families, with the language to write."""
KINDS = ["marian-everything", "marian-source_linear", "m2m100-everything", "m2m100-source_linear"]
KINDS += ["m2m100-delta", "m2m100-mhc"]
KINDS += ["nllb", "mbart50", "t5", "mt5"]
"""Families that differ in the code of their programs."""


def small_model(kind="capsule", **fields):
    """Its programs take less time to make."""
    return translator(f"recurrent-{kind}", vocab_size=29, encoder_layers=1, **fields)


@pytest.mark.slow
def test_a_whole_recurrent_model():
    """Of other families the page of the documentation exports one."""
    model, examples = small_model(decoder_layers=1, routing_iterations=1), []
    for rows, length in ((2, 3), (3, 7)):
        words = torch.full((rows, length), 4), torch.ones(rows, length).long(), torch.full((rows, length + 1), 5)
        examples.append(dict(zip(("input_ids", "attention_mask", "decoder_input_ids"), words)))
        examples[-1]["attention_mask"][0, 2:] = 0
    sizes = {name: dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC) for name in examples[0]} | {"use_cache": None}
    with torch.no_grad():
        program = torch.export.export(model, (), {**examples[0], "use_cache": False}, dynamic_shapes=sizes).module()
        found, wanted = (each(**examples[1], use_cache=False).logits for each in (program, model))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "output", "words"),
    [
        ("moe", "new", "moe is of type nllb-moe, which cannot be exported. These can: marian, "),
        ("model", "full", "full is there and not empty. Name another folder."),
        ("nowhere/at/all", "new", "nowhere/at/all"),
    ],
)
def test_refusals(tmp_path, monkeypatch, capsys, model, output, words):
    monkeypatch.chdir(tmp_path)
    save_tiny_marian(tmp_path / "model")
    NllbMoeConfig().save_pretrained("moe")
    (tmp_path / "moe" / "model.safetensors").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit, match="2"):
        main(["--model", model, "--output_dir", output])
    assert words in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_what_decodes_with_the_programs_finds_the_settings(tmp_path, monkeypatch):
    """Next to the programs are the tokenizer and the settings of `generate()`, which the loop of the page reads."""
    checkpoint = save_tiny_marian(tmp_path / "model")
    monkeypatch.setattr(exporting, "write_program", lambda program, example, path: path.touch())
    monkeypatch.setattr(exporting, "read_program", lambda path: None)
    monkeypatch.setattr(exporting, "check_numbers", lambda original, exported: 0.0)
    exporting.export_checkpoint(checkpoint, tmp_path / "new", "torch")
    settings = GenerationConfig.from_pretrained(tmp_path / "new")
    assert settings.bad_words_ids == [[0]]
    assert settings.to_dict() == GenerationConfig.from_pretrained(checkpoint).to_dict()
    exported, original = (AutoTokenizer.from_pretrained(folder) for folder in (tmp_path / "new", checkpoint))
    assert exported.get_vocab() == original.get_vocab()


def test_a_failed_check_leaves_nothing(tmp_path, monkeypatch):
    save_tiny_marian(tmp_path / "model")
    monkeypatch.setattr(exporting, "write_program", lambda program, example, path: path.touch())
    monkeypatch.setattr(exporting, "read_program", lambda path: lambda tensors: {})
    monkeypatch.setattr(exporting, "check_numbers", _fail)
    options = ["--model", str(tmp_path / "model"), "--format", "torch", "--output_dir", str(tmp_path / "new")]
    with pytest.raises(SystemExit, match="2"):
        main(options)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [("capsule", "logits"), ("capsule", "present.0.hidden"), ("capsule", "sentence_state"), ("rnmt", "logits")],
)
def test_checks_find_differences(kind, wrong):
    model = small_model(kind)
    family = family_of(model)
    own = EncoderProgram(family), StepProgram(family)

    def changed(program):
        def run(tensors):
            outputs = program(tensors)
            return {
                name: tensor + 3e-4 * tensor.abs().clamp(min=1) * (name == wrong) for name, tensor in outputs.items()
            }

        return run

    with torch.no_grad():
        assert check_numbers(own, own) == 0
        with pytest.raises(ValueError, match=wrong):
            check_numbers(own, tuple(map(changed, own)))


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_programs_have_the_logits_of_the_whole_model(name, merged):
    """A first step of several tokens, and steps of one token, as `model(...)` computes them all at once."""
    model = _mt5() if name == "mt5" else _plain_or_routed(name)
    family = family_of(model, merged)
    source = example_source(model, (6, 1, 4))
    tokens = source["input_ids"].flip(1)
    # A whole M2M-100 does not count padding, and steps do.
    tokens = tokens.masked_fill(tokens == model.config.pad_token_id, 4)
    first = 3 if merged else 1
    steps = [tokens[:, :first], *tokens[:, first:].split(1, dim=1)]
    encoder, step = EncoderProgram(family), StepProgram(family)
    with torch.no_grad():
        _, *outputs = run_steps(encoder, step, source, steps, step.begin)
        expected = model(**source, decoder_input_ids=tokens).logits
    logits = torch.cat([output["logits"] for output in outputs], dim=1)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Makes checkpoint and exported folder of a plain family, once."""
    folders = {}

    def export(name):
        if name not in folders:
            folder = tmp_path_factory.mktemp(name)
            checkpoint = TRAINED
            if name != "trained":
                checkpoint = folder / "model"
                model, tokenizer = getattr(tiny_multilingual, name)()
                model.save_pretrained(checkpoint)
                tokenizer.save_pretrained(checkpoint)
            main(["--model", str(checkpoint), "--output_dir", str(folder / "out"), "--dtype", "float32", "int8"])
            folders[name] = checkpoint, folder / "out"
        return folders[name]

    return export


@pytest.mark.slow
@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("name", PLAIN)
def test_onnx_runtime_writes_the_tokens_of_generate(name, num_beams, exported):
    checkpoint, folder = exported(name)
    model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # At the end of a translation it would force a token.
    model.generation_config.forced_eos_token_id = None
    # This mBART names no start.
    start = model.generation_config.decoder_start_token_id
    first = [model.generation_config.bos_token_id if start is None else start]
    if PLAIN[name]:
        first.append(tokenizer.convert_tokens_to_ids(PLAIN[name]))
    programs = [read_program(folder / file) for file in PROGRAMS["onnx"]]
    for line in ["the old house is green", "two dogs", "a child sees two old dogs"]:
        source = {name: tokenizer(line, return_tensors="pt")[name] for name in ("input_ids", "attention_mask")}
        options = {"num_beams": num_beams, "early_stopping": "never", "length_penalty": 1.0, "max_new_tokens": 7}
        forced = {"forced_bos_token_id": first[1]} if PLAIN[name] else {}
        if num_beams == 1:
            del options["early_stopping"], options["length_penalty"]
        expected = model.generate(**source, **options, **forced)[0].tolist()
        found = _search(*programs, _first_inputs(folder), source, first, model.generation_config, num_beams)
        # generate() pads nothing in a batch of one.
        assert found == expected


@pytest.mark.slow
def test_names_are_those_that_optimum_and_transformers_js_read(exported):
    import onnxruntime

    _, folder = exported("nllb")
    encoder, step = (onnxruntime.InferenceSession(folder / file) for file in PROGRAMS["onnx"])
    assert [file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*.onnx"))] == [
        "onnx/decoder_model_merged.onnx",
        "onnx/decoder_model_merged_quantized.onnx",
        "onnx/encoder_model.onnx",
        "onnx/encoder_model_quantized.onnx",
    ]
    assert [value.name for value in encoder.get_inputs()] == ["input_ids", "attention_mask"]
    assert [value.name for value in encoder.get_outputs()] == ["last_hidden_state"]
    kinds = ["decoder.key", "decoder.value", "encoder.key", "encoder.value"]
    read = [value.name for value in step.get_inputs()]
    assert read[:3] == ["input_ids", "encoder_attention_mask", "encoder_hidden_states"]
    assert read[3:] == [f"past_key_values.0.{kind}" for kind in kinds]
    assert [value.name for value in step.get_outputs()] == ["logits", *(f"present.0.{kind}" for kind in kinds)]
    # transformers.js makes the first states: a size of another name than batch_size is 0.
    assert step.get_inputs()[3].shape == ["batch_size", 2, "past_decoder_sequence_length", 8]
    assert step.get_inputs()[5].shape == ["batch_size", 2, "past_encoder_sequence_length", 8]
    assert json.loads((folder / "config.json").read_text())["model_type"] == "m2m_100"
    assert (folder / "tokenizer.json").is_file()


@pytest.mark.slow
def test_int8_keeps_no_weight_in_float32(exported):
    """Also not that of the words, which input and output share."""
    import onnx

    _, folder = exported("trained")
    for file in PROGRAMS["onnx"]:
        path = folder / file
        quantized = path.with_stem(f"{path.stem}_quantized")
        graph = onnx.load(quantized).graph
        matrices = [weight for weight in graph.initializer if len(weight.dims) == 2 and min(weight.dims) > 1]
        # A trained position has its number in float32 too, but no words do.
        assert {weight.data_type for weight in matrices} <= {onnx.TensorProto.INT8, onnx.TensorProto.UINT8}
        made = {output: node.op_type for node in graph.node for output in node.output}
        # Products of attention remain. Those with weights would read them, or take them out of int8.
        factors = [made.get(node.input[1], "a weight") for node in graph.node if node.op_type == "MatMul"]
        assert not {"a weight", "DequantizeLinear"}.intersection(factors)
        assert quantized.stat().st_size < 0.35 * path.stat().st_size


@pytest.mark.slow
def test_int8_of_a_trained_model_translates_as_it(exported):
    checkpoint, folder = exported("trained")
    model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint)
    model.generation_config.forced_eos_token_id = None
    tokenizer = AutoTokenizer.from_pretrained(folder)
    paths = [folder / file for file in PROGRAMS["onnx"]]
    programs = [read_program(path.with_stem(f"{path.stem}_quantized")) for path in paths]
    for line in ["The train leaves at seven o'clock.", "I have lost my keys."]:
        source = {name: tokenizer(line, return_tensors="pt")[name] for name in ("input_ids", "attention_mask")}
        expected = model.generate(**source, num_beams=1, max_new_tokens=7)[0].tolist()
        first = [model.generation_config.decoder_start_token_id]
        assert _search(*programs, _first_inputs(folder), source, first, model.generation_config, 1) == expected


def test_a_large_program_has_its_weights_in_a_second_file(tmp_path, monkeypatch):
    class Doubled(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(64, 64)

        def forward(self, tensors):
            return {"states": self.map(tensors["attention_keys"])}

    program, example = Doubled().eval(), {"attention_keys": torch.randn(2, 3, 64)}
    monkeypatch.setattr(exporting, "_LARGEST_FILE", 1000)
    path = tmp_path / "onnx" / "encoder_model.onnx"
    path.parent.mkdir()
    exporting.write_program(program, example, path)
    exporting.quantize_program(path, path.with_stem("encoder_model_quantized"))
    names = ["encoder_model.onnx", "encoder_model.onnx_data"]
    names += ["encoder_model_quantized.onnx", "encoder_model_quantized.onnx_data"]
    assert sorted(file.name for file in path.parent.iterdir()) == names
    assert exporting._external_files(tmp_path) == {"encoder_model.onnx": 1, "encoder_model_quantized.onnx": 1}
    found = read_program(path)(example)["states"]
    torch.testing.assert_close(found, program(example)["states"].detach(), rtol=1e-4, atol=1e-5)
    read_program(path.with_stem("encoder_model_quantized"))(example)


def test_transformers_js_learns_of_the_second_file(tmp_path, monkeypatch):
    def write(program, example, path):
        path.touch()
        path.with_name(f"{path.name}_data").touch()

    checkpoint = save_tiny_marian(tmp_path / "model")
    monkeypatch.setattr(exporting, "write_program", write)
    monkeypatch.setattr(exporting, "read_program", lambda path: None)
    monkeypatch.setattr(exporting, "check_numbers", lambda original, exported: 0.0)
    exporting.export_checkpoint(checkpoint, tmp_path / "new")
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    files = {"decoder_model_merged.onnx": 1, "encoder_model.onnx": 1}
    assert config["transformers.js_config"] == {"use_external_data_format": files}


def test_int8_is_only_for_onnx(tmp_path, capsys):
    save_tiny_marian(tmp_path / "model")
    options = ["--model", str(tmp_path / "model"), "--format", "torch", "--dtype", "int8"]
    with pytest.raises(SystemExit, match="2"):
        main([*options, "--output_dir", str(tmp_path / "new")])
    assert "torch.export writes no int8" in capsys.readouterr().err


def _plain_or_routed(name):
    return translator(name) if "-" in name else getattr(tiny_multilingual, name)()[0]


def _mt5():
    torch.manual_seed(0)
    config = MT5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, initializer_factor=5.0)
    return MT5ForConditionalGeneration(config).eval()


def _first_inputs(folder):
    """What makes the input of the first step, from what ONNX Runtime says of the program."""
    import onnxruntime

    inputs = onnxruntime.InferenceSession(folder / PROGRAMS["onnx"][1]).get_inputs()

    def begin(source, encoded):
        states = {value.name: torch.zeros(1, value.shape[1], 0, value.shape[3]) for value in inputs[3:]}
        hidden_states = encoded["last_hidden_state"]
        return {"encoder_attention_mask": source["attention_mask"], "encoder_hidden_states": hidden_states, **states}

    return begin


def _search(encoder, step, begin, source, first, settings, num_beams):
    """Beam search by hand, for seven new tokens. It goes on to the end, and then takes the best that it has seen."""
    inputs = begin(source, encoder(source))
    never = [words[0] for words in settings.bad_words_ids or []]
    beams, finished = [(0.0, first)], []
    tokens = torch.tensor([first])
    while len(first) + 1 <= 8:
        outputs = step({"input_ids": tokens, **inputs})
        scores = outputs["logits"][:, -1].log_softmax(-1)
        scores[:, never] = -torch.inf
        scores += torch.tensor([[score] for score, _ in beams])
        best = scores.flatten().topk(min(2 * num_beams, scores.numel()))
        going_on = []
        for rank, (score, index) in enumerate(zip(best.values.tolist(), best.indices.tolist())):
            beam, token = divmod(index, scores.shape[1])
            written = [*beams[beam][1], token]
            is_last = token == settings.eos_token_id or len(written) == 8
            if not is_last:
                going_on.append((score, beam, written))
            elif rank < num_beams:
                finished.append((score / (len(written) - 1), written))
        going_on = going_on[:num_beams]
        if not going_on or (num_beams == 1 and finished):
            break
        beams = [(score, written) for score, _, written in going_on]
        parents = torch.tensor([beam for _, beam, _ in going_on])
        tokens = torch.tensor([written[-1:] for _, written in beams])
        inputs.update(next_states(outputs))
        for name, tensor in inputs.items():
            inputs[name] = tensor[parents if name.startswith(PAST) else torch.zeros_like(parents)].contiguous()
        first = beams[0][1]
    return max(finished)[1]


def _fail(*_):
    raise UserError("logits differ")
