"""Translations do not depend on the batch, keep their order, and respect the limits of the model."""

import copy
import random

import pytest
import torch
from tiny_marian import WORDS, marian_tokenizer, tiny_model, tiny_tokenizer
from transformers import (
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    StoppingCriteria,
    StoppingCriteriaList,
    pipeline,
)
from translated_lines import decoded_batches, translate_lines

from hf_capsule_mt.data.encoding import encode_lines, tokenize_lines
from hf_capsule_mt.data.tokenizer import train_joint_bpe
from hf_capsule_mt.decoding import Engine
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.alignment.forced import attending
from hf_capsule_mt.translation.generation.decoder import Decoded, before_end, evaluating
from hf_capsule_mt.translation.generation.settings import engine_takes, settings_of
from hf_capsule_mt.translation.text_translator import TextTranslator

BEAM = {"num_beams": 3, "length_penalty": 0.6}


def make_lines(count=12, longest=12, seed=0):
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, longest))) for _ in range(count)]


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


def alone(model, tokenizer, line, **options):
    """One line without a batch: `generate()` with the line's own limit as its only one."""
    inputs = tokenizer(line, return_tensors="pt")
    limit = 2 * inputs["input_ids"].shape[1] + 20
    # Without forced_eos_token_id the last token is the model's own choice.
    generated = model.generate(**inputs, max_new_tokens=limit, forced_eos_token_id=None, **options)
    return tokenizer.decode(generated[0], skip_special_tokens=True)


@pytest.mark.parametrize("options", [{}, BEAM], ids=["greedy", "beam"])
def test_a_batch_translates_as_its_lines_alone(model, tokenizer, options):
    lines = make_lines()
    expected = [alone(model, tokenizer, line, **options) for line in lines]
    lengths = [len(text.split()) for text in expected]
    limits = [2 * (len(line.split()) + 1) + 20 for line in lines]
    assert any(length < limit for length, limit in zip(lengths, limits))
    assert any(length == limit for length, limit in zip(lengths, limits))
    assert len(set(expected)) > len(lines) // 2
    for budget in (13, 30, 4096):
        assert translate_lines(model, tokenizer, lines, max_tokens_per_batch=budget, **options) == expected


def test_a_batch_that_does_not_fit_in_memory_is_halved(model, tokenizer, monkeypatch):
    lines, translate = make_lines(), Engine.translate
    expected = translate_lines(model, tokenizer, lines, **BEAM)
    sizes = []

    def small(self, encoded, mask, settings, limits, banks=None):
        sizes.append(len(limits))
        if len(limits) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return translate(self, encoded, mask, settings, limits, banks)

    monkeypatch.setattr(Engine, "translate", small)
    most = 3
    assert translate_lines(model, tokenizer, lines, **BEAM) == expected
    assert sizes == [12, 6, 3, 3, 6, 3, 3]
    most = 0
    with pytest.raises(torch.OutOfMemoryError):
        translate_lines(model, tokenizer, lines, **BEAM)


def test_lines_that_nobody_sees_are_not_translated(tmp_path):
    """SentencePiece leaves nothing of them, and of nothing a model makes something."""
    tokenizer = marian_tokenizer(tmp_path, separate_vocabs=False)
    lines = ["", "\u200b", "\ufeff\u200b", "the dog"]
    assert tokenizer("\u200b")["input_ids"] == tokenizer("")["input_ids"]
    encoded = tokenize_lines(tokenizer, lines)
    assert encoded[:3] == [[], [], []]
    assert encoded[3] == tokenizer("the dog")["input_ids"]


@pytest.mark.parametrize(
    ("sequence", "words", "end"),
    [
        ([0, 5, 6, 2, 0, 0], [5, 6], 2),
        ([0, 5, 9, 2], [5], 9),
        ([0, 5, 0, 2], [5, 0], 2),
        ([0, 2, 2], [], 2),
        ([0, 5, 6, 0, 0], [5, 6], None),
        ([0, 0, 5, 0, -1], [0, 5], None),
        ([0], [], None),
    ],
)
def test_what_was_written(sequence, words, end):
    settings = GenerationConfig(eos_token_id=[2, 9], pad_token_id=0)
    assert before_end(sequence, settings, len(sequence)) == Decoded(words, end)
    assert Decoded(words, end).ids == sequence[1 : len(words) + 1 + (end is not None)]


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("engine", ["fast", "transformers"])
def test_a_translation_at_its_limit_has_no_padding_and_no_end(model, tokenizer, engine, num_beams):
    """Beside a longer one, it is filled up, by beams with ends."""
    encoded = encode_lines(tokenizer, make_lines(), 64)
    batches = decoded_batches(model, encoded, [range(len(encoded))], engine=engine, num_beams=num_beams)
    [(_, written)] = batches
    limits = [2 * len(ids) + 20 for ids in encoded]
    cut = [len(each.token_ids) == limit for each, limit in zip(written, limits) if each.end is None]
    assert cut
    assert all(cut)
    assert len(set(limits)) > 1


def test_samples_need_no_beams(model):
    options = {"do_sample": True, "num_return_sequences": 2, "max_new_tokens": 3}
    [(_, written)] = decoded_batches(model, [[5, 6, 2], [7, 2]], [range(2)], **options)
    assert len(written) == 4


def test_lines_without_letters_are_copied(model, tokenizer):
    lines = ["a b", "1984", "- 5 -", "c"]
    translations = translate_lines(model, tokenizer, lines)
    assert translations[1:3] == lines[1:3]
    assert translations[0] == translate_lines(model, tokenizer, ["a b"])[0]


def test_each_translation_of_a_sentence_has_the_limit_of_the_sentence():
    model = tiny_model()
    # It never ends by itself.
    model.generation_config.suppress_tokens = [model.config.eos_token_id]
    model.generation_config.forced_eos_token_id = None
    encoded = [[5] * length for length in (7, 1, 4)]
    limits = [2 * len(ids) + 20 for ids in encoded]
    options = {"num_beams": 3, "num_return_sequences": 2}
    [(_, written)] = decoded_batches(model, encoded, [range(3)], **options)
    lengths = [len(each.token_ids) for each in written]
    assert lengths == [limit for limit in limits for _ in range(2)]
    # Shorter ones are filled up with ends, which the model has not written.
    assert {each.end for each in written} == {None}


@pytest.mark.parametrize("options", [{}, BEAM], ids=["greedy", "beam"])
def test_max_new_tokens(model, tokenizer, options):
    lines = make_lines()
    lengths = [len(text.split()) for text in translate_lines(model, tokenizer, lines, max_new_tokens=7, **options)]
    assert max(lengths) == 7
    for number in (64, 0):
        with pytest.raises(ValueError, match=f"max_new_tokens is {number}. It must be from 1 to 63"):
            translate_lines(model, tokenizer, lines, max_new_tokens=number)


@pytest.mark.parametrize("engine", ["fast", "transformers"])
def test_max_length_counts_the_start_too(model, tokenizer, engine):
    lines = make_lines()
    shorter = translate_lines(model, tokenizer, lines, max_new_tokens=7, engine=engine)
    assert translate_lines(model, tokenizer, lines, max_length=8, engine=engine) == shorter
    assert translate_lines(model, tokenizer, lines, max_length=4, max_new_tokens=7, engine=engine) == shorter
    with pytest.raises(UserError, match="allows no token: max_length is 1"):
        translate_lines(model, tokenizer, lines, max_length=1)


class _Stop(StoppingCriteria):
    """Stops all sentences after so many tokens."""

    def __init__(self, tokens):
        self.tokens = tokens

    def __call__(self, input_ids, scores, **kwargs):
        return torch.full((len(input_ids),), input_ids.shape[1] > self.tokens)


def test_stopping_criteria_of_the_caller(model, tokenizer):
    lines = make_lines()
    found = translate_lines(model, tokenizer, lines, stopping_criteria=StoppingCriteriaList([_Stop(5)]))
    assert found == translate_lines(model, tokenizer, lines, max_new_tokens=5)


def test_settings_that_allow_no_token(tokenizer):
    """All translations would be empty."""
    model = tiny_model()
    model.generation_config.max_length = 1
    with pytest.raises(UserError, match=r"allows no token: max_length is 1"):
        translate_lines(model, tokenizer, ["a b"])


def test_one_token_more_than_embeddings(model):
    """PyTorch's own error names no token."""
    size = model.get_input_embeddings().weight.shape[0]
    for largest in (size, size + 7):
        with pytest.raises(UserError, match=f"token id {largest}, but .* has only {size} embeddings"):
            list(decoded_batches(model, [[5, largest, 2]], [[0]]))
    assert list(decoded_batches(model, [[5, size - 1, 2]], [[0]]))


@pytest.mark.parametrize(
    ("positions", "settings", "expected"),
    [
        (16, {}, 15),
        (16, {"max_length": 40}, 15),
        (16, {"max_new_tokens": 40}, 15),
        (64, {"max_length": 12}, 11),
        (64, {"max_new_tokens": 9}, 9),
        (64, {"max_new_tokens": 9, "max_length": 12}, 9),
    ],
)
def test_default_length_stays_within_the_models(tokenizer, positions, settings, expected):
    model = tiny_model(max_position_embeddings=positions)
    model.final_logits_bias[:, 2] = -100
    model.generation_config.update(**settings)
    (text,) = translate_lines(model, tokenizer, ["a b c"])
    assert len(text.split()) == expected
    given = {"generation_config": copy.deepcopy(model.generation_config)}
    model.generation_config.update(max_length=4, max_new_tokens=None)
    # One without a limit is filled up from the model's, as in `generate()`.
    (text,) = translate_lines(model, tokenizer, ["a b c"], **given)
    assert len(text.split()) == (expected if settings else 3)


def test_a_line_has_one_translation(model, tokenizer):
    lines = make_lines(3)
    several = translate_lines(model, tokenizer, lines, num_beams=2, num_return_sequences=2)
    assert several == translate_lines(model, tokenizer, lines, num_beams=2)


def test_what_a_generation_config_leaves_out_is_that_of_the_model(model):
    settings = settings_of(model, {"generation_config": GenerationConfig(num_beams=2), "length_penalty": None})
    assert (settings.num_beams, settings.length_penalty) == (2, None)
    assert (settings.eos_token_id, settings.bad_words_ids) == (2, [[0]])


@pytest.mark.parametrize(
    "name",
    ["custom_generate", "streamer", "tokenizer", "assistant_model", "assistant_tokenizer", "synced_gpus"],
)
def test_arguments_that_only_transformers_reads(model, name):
    """The engine would silently ignore them."""
    settings = settings_of(model, {"num_beams": 2})
    assert engine_takes(settings, {name: None})
    assert not engine_takes(settings, {name: False})


@pytest.mark.parametrize("engine", ["fast", "transformers"])
def test_another_end_than_that_of_the_model(model, tokenizer, engine):
    end = model.generate(**tokenizer("a b", return_tensors="pt"), max_new_tokens=6)[0, 3].item()
    for options in ({"eos_token_id": end}, {"generation_config": GenerationConfig(eos_token_id=end)}):
        [batch] = decoded_batches(model, encode_lines(tokenizer, ["a b"], 64), [[0]], engine=engine, **options)
        [written] = batch[1]
        assert written.end == end
        assert end not in written.token_ids


@pytest.mark.parametrize("engine", ["fast", "transformers"])
def test_an_option_replaces_what_a_generation_config_says(model, tokenizer, engine):
    """The end that is searched for is the end that is cut off."""
    end = model.generate(**tokenizer("a b", return_tensors="pt"), max_new_tokens=6)[0, 3].item()
    options = {"eos_token_id": end, "generation_config": GenerationConfig(eos_token_id=model.config.eos_token_id)}
    [batch] = decoded_batches(model, encode_lines(tokenizer, ["a b"], 64), [[0]], engine=engine, **options)
    [written] = batch[1]
    assert written.end == end
    assert end not in written.token_ids


def test_a_model_in_training_translates_without_dropout_and_goes_on_training(tokenizer):
    model = tiny_model()
    lines = make_lines()
    expected = translate_lines(model, tokenizer, lines)
    model.train()
    assert translate_lines(model, tokenizer, lines) == expected
    assert model.training


def test_saved_settings_that_the_engine_cannot_do(tokenizer):
    model, lines = tiny_model(), make_lines(5)
    expected = translate_lines(model, tokenizer, lines)
    # Which writes the same words, of one sentence at a time.
    model.generation_config.prompt_lookup_num_tokens = 2
    assert translate_lines(model, tokenizer, lines) == expected
    assert translate_lines(model, tokenizer, lines, engine="transformers") == expected
    assert translate_lines(model, tokenizer, lines[:1], prompt_lookup_num_tokens=3) == expected[:1]


@pytest.mark.parametrize("saved", [False, True])
def test_stop_strings(saved):
    tokenizer = train_joint_bpe(["a b c", "d", "e f g h i j", "k l"], 300)
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(**{**tiny_model().config.to_dict(), "vocab_size": len(tokenizer)})).eval()
    [free] = translate_lines(model, tokenizer, ["a b c"], max_new_tokens=8)
    options = {} if saved else {"stop_strings": [free[1]]}
    model.generation_config.stop_strings = [free[1]] if saved else None
    [found] = translate_lines(model, tokenizer, ["a b c"], max_new_tokens=8, **options)
    assert found
    assert len(found) < len(free)
    assert free.startswith(found)
    translator = pipeline("translation", model=model, tokenizer=tokenizer, device="cpu")
    assert translator("a b c", max_new_tokens=8, **options) == [{"translation_text": found}]
    texts = TextTranslator(model, tokenizer)
    [translation] = texts.decode(texts.reader.prepare("a b c").sentences, max_new_tokens=8, **options)
    assert translation[0].text == found


def test_who_gets_another_precision_than_asked_for_is_warned(model, tokenizer, caplog):
    for _ in range(2):
        translate_lines(model, tokenizer, ["a b"], dtype="bfloat16", do_sample=True, max_new_tokens=4)
    assert len([message for message in caplog.messages if "Transformers decodes" in message]) == 1


def test_frozen_parts_stay_frozen():
    model = tiny_model().train()
    model.get_encoder().eval()
    before = [module.training for module in model.modules()]
    with evaluating(model), evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before


def test_the_copy_that_tells_its_attention_is_made_once():
    model = tiny_model().eval()
    model.set_attn_implementation("sdpa")
    found = attending(model)
    assert attending(model) is found
    source = torch.tensor([[5, 6, 2]])
    with torch.no_grad():
        model.lm_head.weight += 1
        outputs = attending(model)(input_ids=source, decoder_input_ids=source, output_attentions=True)
        torch.testing.assert_close(outputs.logits, model(input_ids=source, decoder_input_ids=source).logits)
    assert outputs.cross_attentions
    model.train()
    assert attending(model).training
    model.set_attn_implementation("eager")
    assert attending(model) is model
