"""Probing encoders of trained models: what the classifier reads is the decoder's, and the encoder stays as it is."""

import random
import shutil

import pytest
import torch
from tiny_marian import WORDS, tiny_model, tiny_tokenizer
from tokenizers import normalizers, processors
from transformers import AutoModelForSeq2SeqLM

from benchmarks.probing import encoders as probed_encoders
from benchmarks.probing.classifiers import ProbingSettings, probe
from benchmarks.probing.data import ProbingData
from benchmarks.probing.encoders import TrainedEncoder, sentence_vectors
from hf_capsule_mt.configuration import preset_config

SENTENCES = ["a b c", "d", "e f g h i j", "b c", "a b c"]
SMALL = {"encoder_layers": 2, "vocab_size": 3 + len(WORDS), "d_model": 16}


def model_of(method, seed=0, **fields):
    torch.manual_seed(seed)
    return AutoModelForSeq2SeqLM.from_config(preset_config(method, "tiny", **{**SMALL, **fields})).eval()


def saved(model, folder):
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "method", ["transformer", "em-routing", "head-em-routing", "rnmt", "capsnmt-hybrid", "capsnmt"]
)
def test_a_sentence_is_read_by_itself(method):
    """The mean of its states, or what CapsNMT's decoder reads; with others in the batch or without."""
    model, tokenizer = model_of(method), tiny_tokenizer()
    vectors = sentence_vectors(model, tokenizer, SENTENCES)
    assert torch.equal(vectors[0], vectors[-1])
    for sentence, vector in zip(SENTENCES, vectors, strict=True):
        with torch.no_grad():
            outputs = model.get_encoder()(tokenizer(sentence, return_tensors="pt")["input_ids"])
        expected = outputs.sentence_state if method == "capsnmt" else outputs.last_hidden_state.mean(1)
        torch.testing.assert_close(vector, expected[0])


def task(train=400, validation=64, test=64):
    """Are the words of the first half of the alphabet, or of the second?"""
    rng, halves = random.Random(0), {"first": WORDS[:13], "second": WORDS[13:]}

    def examples(size):
        for number in range(size):
            label = ("first", "second")[number % 2]
            yield label, " ".join(rng.choices(halves[label], k=rng.randint(1, 6)))

    return ProbingData(*(list(examples(size)) for size in (train, validation, test)))


def test_the_classifier_learns_and_the_encoder_stays(tmp_path):
    encoder = TrainedEncoder(saved(model_of("em-routing"), tmp_path / "model"))
    before = {name: weight.clone() for name, weight in encoder.model.state_dict().items()}
    settings = ProbingSettings(epochs=10, batch_size=16, learning_rate=1e-2)
    result = probe(task(), encoder, 1, settings, tmp_path / "run")
    assert result["majority_accuracy"] == 0.5
    assert result["test_accuracy"] > 0.75
    assert result["config"]["layer_aggregation"] == "em_routing"
    assert result["parameters"] == 16 * 16 + 16 + 2 * 16 + 2
    assert all(torch.equal(weight, before[name]) for name, weight in encoder.model.state_dict().items())
    again = probe(task(), encoder, 1, settings, tmp_path / "again")
    assert again == result
    assert probe(task(), encoder, 2, settings, tmp_path / "other") != result


def test_weights_of_half_precision_are_read_in_float32(tmp_path):
    encoder = TrainedEncoder(saved(model_of("transformer").to(torch.bfloat16), tmp_path))
    assert encoder.model.dtype == torch.float32
    [vector] = sentence_vectors(encoder.model, encoder.tokenizer, ["a b c"])
    assert vector.dtype == torch.float32
    assert not torch.equal(vector, vector.bfloat16())


def test_a_model_of_transformers(tmp_path):
    encoder = TrainedEncoder(saved(tiny_model(), tmp_path))
    assert list(encoder.sha256) == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sentence_vectors(encoder.model, encoder.tokenizer, ["a", "b c"])[1].shape == (16,)


@pytest.mark.parametrize("method", ["transformer", "rnmt"])
def test_what_surrounds_a_sentence_changes_nothing(method):
    model, tokenizer = model_of(method), tiny_tokenizer()
    expected = sentence_vectors(model, tokenizer, SENTENCES)
    tokenizer.padding_side, tokenizer.pad_token = "left", None
    model.train()
    torch.testing.assert_close(sentence_vectors(model, tokenizer, SENTENCES), expected)
    assert model.training


def test_the_scale_of_the_states_changes_nothing(tmp_path, monkeypatch):
    encoder, data = TrainedEncoder(saved(model_of("transformer"), tmp_path)), task(32, 12, 10)
    train, *others = encoder.classifier(data).splits
    vectors = torch.stack([example["vectors"] for example in train])
    torch.testing.assert_close(vectors.mean(0), torch.zeros(16), atol=1e-5, rtol=0)
    torch.testing.assert_close(vectors.std(0, correction=0), torch.ones(16))

    def scaled(*arguments):
        return 100 * sentence_vectors(*arguments) + 7

    monkeypatch.setattr(probed_encoders, "sentence_vectors", scaled)
    again = encoder.classifier(ProbingData(data.train, data.validation, data.test)).splits
    for split, other in zip([train, *others], again, strict=True):
        for example, its in zip(split, other, strict=True):
            torch.testing.assert_close(example["vectors"], its["vectors"], atol=1e-3, rtol=1e-3)
            assert example["labels"] == its["labels"]


def test_sentences_are_encoded_once_a_task(tmp_path, monkeypatch):
    encoder, encoded = TrainedEncoder(saved(model_of("transformer"), tmp_path)), []

    def counted(model, tokenizer, sentences):
        encoded.append(len(sentences))
        return sentence_vectors(model, tokenizer, sentences)

    monkeypatch.setattr(probed_encoders, "sentence_vectors", counted)
    first, second = task(32, 12, 10), task(16, 6, 4)
    for data in (first, first, second, first):
        encoder.classifier(data)
    assert encoded == [32, 12, 10, 16, 6, 4, 32, 12, 10]


def test_a_run_that_was_interrupted_goes_on(tmp_path):
    encoder, data = TrainedEncoder(saved(model_of("transformer"), tmp_path / "model")), task(64, 16, 16)
    settings = ProbingSettings(epochs=3, batch_size=16)
    expected = probe(data, encoder, 1, settings, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    shutil.rmtree(tmp_path / "parts" / "checkpoint-12")
    assert probe(data, encoder, 1, settings, tmp_path / "parts") == expected


def test_sentences_that_are_too_long_are_cut(caplog):
    model, tokenizer = model_of("transformer", max_position_embeddings=4), tiny_tokenizer()
    vectors = sentence_vectors(model, tokenizer, [*SENTENCES, "e f g"])
    assert torch.equal(vectors[2], vectors[-1])
    assert "1 lines have more than 4 tokens, the model's limit, and were cut (the first is line 3)" in caplog.text


def test_a_sentence_without_tokens():
    tokenizer = tiny_tokenizer()
    tokenizer._tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    tokenizer._tokenizer.normalizer = normalizers.Replace("z", " ")
    vectors = sentence_vectors(model_of("transformer"), tokenizer, ["a", "z"])
    assert vectors[0].any()
    assert not vectors[1].any()


def test_the_tokenizer_of_another_model():
    with pytest.raises(ValueError, match="it is another model's; name a folder with the tokenizer"):
        sentence_vectors(model_of("transformer", vocab_size=10), tiny_tokenizer(), ["z"])


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent is not a folder"):
        TrainedEncoder(tmp_path / "absent")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
def test_what_an_encoder_depends_on_is_hashed(name, tmp_path):
    before = TrainedEncoder(saved(model_of("transformer"), tmp_path)).sha256
    assert name in before
    assert "generation_config.json" not in before
    if name == "model.safetensors":
        saved(model_of("transformer", seed=1), tmp_path)
    else:
        (tmp_path / name).write_text((tmp_path / name).read_text() + "\n")
    after = TrainedEncoder(tmp_path).sha256
    assert {file for file in before if before[file] != after[file]} == {name}
