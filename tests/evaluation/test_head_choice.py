"""The heads that align words: chosen on parallel text, stored with the model, and used by all that aligns."""

import json
import random

import pytest
import tiny_multilingual
import torch
from attention_of_model import cross_attention
from tiny_marian import aligned_files, save_tiny_marian, tiny_model, tiny_tokenizer
from transformers import GenerationConfig

import hf_capsule_mt
from hf_capsule_mt import preset_config
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.alignment import align_by_attention
from hf_capsule_mt.evaluation.head_choice import _Links, link_sentences, rate_heads, store_heads
from hf_capsule_mt.modeling.modeling_caps_nmt import CapsNMTForConditionalGeneration
from hf_capsule_mt.translation.alignment.forced import ForcedTarget, attending
from hf_capsule_mt.translation.generation.decoder import Decoded
from hf_capsule_mt.translation.text_translator import TextTranslator


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return aligned_files(tmp_path_factory.mktemp("text"))


@pytest.fixture
def checkpoint(tmp_path):
    return save_tiny_marian(tmp_path / "marian")


def rating(pairs):
    """The rating of links, the first half of which is one half of a text."""
    links = _Links()
    for number, pair in enumerate(pairs):
        links.pairs[number * 2 >= len(pairs)][pair] += 1
    return links.rating()


def test_links_that_predict_each_other_are_rated_highest():
    generator = random.Random(0)
    words = generator.choices("abcdefgh", k=200)
    aligned = rating([(word, word.upper()) for word in words])
    shifted = rating([(word, other.upper()) for word, other in zip(words, words[1:] + words[:1])])
    others = generator.choices(words, k=200)
    half = rating([(word, (word if number % 2 else others[number]).upper()) for number, word in enumerate(words)])
    assert aligned > half > max(shifted, 0.1)
    assert shifted < 0.1
    # One word for all, such as the full stop, and no links at all.
    assert rating([(".", word.upper()) for word in words]) < 0.1
    assert rating([(None, word.upper()) for word in words]) == 0
    # Words that were seen only once prove nothing.
    assert rating([(str(number), str(-number)) for number in range(200)]) == 0


def test_the_candidates_link_as_their_attention_does(files):
    translator = TextTranslator(tiny_model(), tiny_tokenizer())
    sources = files[0].read_text().split("\n")
    targets = files[1].read_text().split("\n")
    linked = {sentence.index: sentence for sentence in link_sentences(translator, sources, targets)}
    # The empty line has nothing to align.
    assert sorted(linked) == [*range(30)]
    names = [name for name, _ in linked[0].links]
    assert names == ["last two layers (default)", "layer 1, head 1", "layer 1, head 2"]
    assert len({json.dumps(list(sentence.links.values())) for sentence in linked.values()}) > 1
    rated = rate_heads(translator, sources, targets)
    assert [row.rating for row in rated] == sorted((row.rating for row in rated), reverse=True)
    assert {row.name for row in rated} == {*names}
    # The default links as the pipeline does.
    source, target = translator.tokenizer([sources[0], targets[0]])["input_ids"]
    [attention] = cross_attention(translator.model, torch.tensor([[0, *target]]), input_ids=torch.tensor([source]))
    sentence = translator.reader.prepare(sources[0]).sentences[0]
    decoded = Decoded(target[:-1], target[-1], forced=ForcedTarget(attention=attention))
    align = translator.align(sentence, decoded, None)
    places = [(2 * number, 2 * number + 1) for number in range(len(source) - 1)]
    weights = torch.tensor(align(places, places))
    assert linked[0].links["last two layers (default)", ((0, 0), (0, 1))] == weights.argmax(-1).tolist()


def test_the_stored_heads_align(checkpoint):
    source = {"input_ids": torch.tensor([[5, 6, 7, 2]])}
    words = torch.tensor([[0, 8, 9, 10, 2]])
    before = hf_capsule_mt.pipeline(checkpoint, device="cpu")
    settings = json.loads((checkpoint / "generation_config.json").read_text())
    store_heads(checkpoint, ((0, 1),))
    settings.pop("_from_model_config")
    assert json.loads((checkpoint / "generation_config.json").read_text()) == {**settings, "alignment_heads": [[0, 1]]}
    after = hf_capsule_mt.pipeline(checkpoint, device="cpu")
    output = attending(after.model)(**source, decoder_input_ids=words[:, :-1], output_attentions=True)
    expected = output.cross_attentions[0][:, 1]
    torch.testing.assert_close(cross_attention(after.model, words, **source), expected)
    assert not torch.allclose(cross_attention(before.model, words, **source), expected)
    # Translations are the same, and adequacy is measured with the same heads.
    assert before("a b c") == after("a b c")
    texts = [["a b c d e f"], [["g h i j k l m"]]]
    links = [align_by_attention(each.model, each.tokenizer, *texts)[0][0].links for each in (before, after)]
    assert links[0] != links[1]


def test_settings_of_the_configuration_are_kept(tmp_path):
    """A checkpoint without a generation config."""
    model, _ = tiny_multilingual.mbart()
    model.config.save_pretrained(tmp_path)
    before = GenerationConfig.from_model_config(model.config)
    store_heads(tmp_path, ((0, 0),))
    after = GenerationConfig.from_pretrained(tmp_path)
    assert after.alignment_heads == [[0, 0]]
    assert (after.eos_token_id, after.decoder_start_token_id) == (before.eos_token_id, before.decoder_start_token_id)


def test_heads_that_a_model_does_not_have():
    model = tiny_model()
    for head in ((0, 2), (1, 0), (0, -1)):
        model.generation_config.alignment_heads = [head]
        with pytest.raises(UserError, match="which the model does not have"):
            cross_attention(model, torch.tensor([[0, 5, 2]]), input_ids=torch.tensor([[5, 2]]))


def test_a_model_without_attention(files):
    config = preset_config("capsnmt", "tiny", d_model=16, vocab_size=29)
    model = CapsNMTForConditionalGeneration(config).eval()
    with pytest.raises(UserError, match="has no attention"):
        rate_heads(TextTranslator(model, tiny_tokenizer()), ["a b"], ["c d"])
