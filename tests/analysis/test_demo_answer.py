"""What the demo answers, and the pictures that it draws of it, without a page."""

from functools import cache
from importlib.util import find_spec

import pytest
from tiny_checkpoints import tiny_checkpoint
from tiny_marian import tiny_model, tiny_tokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration
from hf_capsule_mt.analysis.demo_answer import LONGEST_INPUT, answer, draw_picture, picture_titles
from hf_capsule_mt.analysis.routing_figures import follows_step, look_for
from hf_capsule_mt.translation.loading import count_parameters
from hf_capsule_mt.translation.translator import translate_lines

pytestmark = pytest.mark.skipif(find_spec("matplotlib") is None, reason="the pictures need matplotlib")
EVERYTHING = {
    "layer_aggregation": "em_routing",
    "head_aggregation": "simple_routing",
    "head_aggregation_decoder_layers": [0],
    "head_aggregation_cross_layers": [0],
    "guided_routing": "gdr",
    "guided_capsule_dim": 4,
}


@cache
def load(name):
    if name == "everything":
        model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(tiny_model(), **EVERYTHING)
        return model.eval(), tiny_tokenizer()
    if name == "marian":
        return tiny_model(), tiny_tokenizer(model_max_length=1000)
    if name == "absent":
        raise FileNotFoundError("absent is not a folder")
    folder = tiny_checkpoint(name)
    return AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("marian", []),
        ("caps_nmt", ["Sentence capsules"]),
        (
            "everything",
            ["Encoder layers", "Decoder layers", "Heads: encoder_self.0", "Heads: decoder_self.0", "Heads: cross.0"]
            + ["PAST and FUTURE", "PAST and FUTURE by iteration"],
        ),
    ],
)
def test_translation_and_pictures(name, titles):
    found = answer(load, f" {name} ", " a b\nc  d ")
    model, tokenizer = load(name)
    assert not found.problem
    assert [found.routing.translation] == translate_lines(model, tokenizer, ["a b c d"])
    assert found.architecture.endswith(f" {count_parameters(model):,} parameters.")
    assert picture_titles(found.routing) == titles
    assert all(look_for(title) for title in titles)


def test_a_picture_is_another_at_every_step_where_it_says_so():
    routing = answer(load, "everything", "a b c d").routing
    assert len(routing.target_words) > 1
    titles = picture_titles(routing)
    for title in ["Encoder layers", "Heads: cross.0", "PAST and FUTURE by iteration"]:
        assert title in titles
        pictures = [draw_picture(routing, title, step) for step in (0, 1)]
        assert pictures[0].width > 300
        assert (pictures[0].tobytes() != pictures[1].tobytes()) == follows_step(title), title


@pytest.mark.parametrize(
    ("name", "sentence", "problem"),
    [
        ("marian", " \n ", "Type a sentence"),
        ("marian", "a " * 64, "65 tokens"),
        ("marian", "a" * (LONGEST_INPUT + 1), "more than"),
        ("absent", "a", "absent is not a folder"),
        (" ", "a", "choose a checkpoint"),
    ],
)
def test_mistakes_are_told(name, sentence, problem):
    found = answer(load, name, sentence)
    assert problem in found.problem
    assert found.routing is None
