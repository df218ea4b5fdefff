"""What the demo answers, and the pictures that it draws of it, without a page."""

import json
import shutil
from functools import cache, partial

import pytest
from tiny_checkpoints import tiny_checkpoint
from tiny_marian import marian_tokenizer, save_tiny_marian, tiny_model, tiny_tokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
from translated_lines import translate_lines

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration
from hf_capsule_mt.analysis.routing_figures import follows_step, look_for, sentence_pictures
from hf_capsule_mt.loading import count_parameters

EVERYTHING = {"layer_aggregation": "em_routing", "head_aggregation": "simple_routing", "guided_routing": "gdr"}
EVERYTHING |= {"head_aggregation_decoder_layers": [0], "head_aggregation_cross_layers": [0], "guided_capsule_dim": 4}
ROUTED = {
    "everything": EVERYTHING,
    "source": {"layer_aggregation": "em_routing", "layer_aggregation_place": "source"},
}


@cache
def load(name):
    if name in ROUTED:
        model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(tiny_model(), **ROUTED[name])
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
        ("source", ["Encoder layers that decoder layers read"]),
        (
            "everything",
            ["Encoder layers", "Decoder layers", "Heads: encoder_self.0", "Heads: decoder_self.0", "Heads: cross.0"]
            + ["PAST and FUTURE", "PAST and FUTURE by iteration"],
        ),
    ],
)
def test_translation_and_pictures(name, titles):
    from hf_capsule_mt.analysis.demo_page import _respond, answer

    found = answer(load, f" {name} ", " a b\nc  d ")
    model, tokenizer = load(name)
    assert not found.problem
    assert [found.routing.translation] == translate_lines(model, tokenizer, ["a b c d"])
    assert found.architecture.endswith(f" {count_parameters(model):,} parameters.")
    assert _respond(partial(answer, load), name, "a b c d", None)[2]["choices"] == titles
    assert all(look_for(title) for title in titles)


def test_the_picture_that_was_chosen_stays():
    from hf_capsule_mt.analysis.demo_page import _respond, answer

    for chosen, shown in (("Heads: cross.0", "Heads: cross.0"), ("Sentence capsules", "Encoder layers")):
        assert _respond(partial(answer, load), "everything", "a b c d", chosen)[2]["value"] == shown


def test_a_picture_is_another_at_every_step_where_it_says_so():
    from hf_capsule_mt.analysis.demo_page import _draw, answer

    routing = answer(load, "everything", "a b c d").routing
    assert len(routing.target_words) > 1
    for title in ["Encoder layers", "PAST and FUTURE by iteration"]:
        assert title in sentence_pictures(routing, 0)
        pictures = [_draw(routing, title, step)[2]["value"] for step in (1, 2)]
        assert pictures[0].width > 300
        assert (pictures[0].tobytes() != pictures[1].tobytes()) == follows_step(title), title
    skipped = [_draw(*given) for given in ((None, None, 1), (routing, "none", 1))]
    assert skipped == [_draw(None, None, None)] * 2


@pytest.mark.parametrize(
    ("name", "sentence", "problem"),
    [
        ("marian", " \n ", "Type a sentence"),
        ("marian", "a " * 64, "65 tokens"),
        ("marian", "a" * 1001, "more than"),
        ("marian", "a \ud83d b", "U+D83D, which is only half of a character"),
        ("absent", "a", "absent is not a folder"),
        (" ", "a", "choose a checkpoint"),
    ],
)
def test_mistakes_are_told(name, sentence, problem):
    from hf_capsule_mt.analysis.demo_page import answer

    found = answer(load, name, sentence)
    assert problem in found.problem
    assert found.routing is None


@pytest.mark.parametrize("value", ["odd", 5, [], {}])
def test_odd_fields_of_a_checkpoint(value, tmp_path):
    from hf_capsule_mt.analysis.demo_page import answer
    from hf_capsule_mt.cli.demo import _loader

    loader = _loader("cpu")
    for number, (saved, problem) in enumerate([(save_tiny_marian, ""), (copy_routed, "guided_routing")]):
        folder = tmp_path / str(number)
        saved(folder)
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"guided_routing": value}))
        found = answer(loader, str(folder), "a b")
        assert problem in found.problem
        # To a Marian model the field says nothing.
        assert (found.routing is None) == bool(problem)
        assert "Guided" not in found.architecture


def copy_routed(folder):
    shutil.copytree(tiny_checkpoint("capsule_aggregated_marian"), folder)


def test_a_visitor_who_says_no_language(tmp_path, monkeypatch):
    from hf_capsule_mt.analysis import demo_page as page

    loaded = tiny_model(), marian_tokenizer(tmp_path, False)
    monkeypatch.setattr(page, "read_sentence", lambda model, tokenizer, text, direction: text)
    told = page.answer(lambda name: loaded, "multilingual", ">>de<< the house")
    assert (told.routing, told.problem) == (">>de<< the house", "")
    found = page.answer(lambda name: loaded, "multilingual", "the house")
    assert found.routing == "the house"
    assert found.problem.startswith("The model was not told which language to write")
    assert "no code >>fr<<" in page.answer(lambda name: loaded, "multilingual", ">>fr<< the house").problem
