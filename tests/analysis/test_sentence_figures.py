"""Pictures show what was read: their images, the names on their axes, what they leave out."""

import pytest
import torch
from routed_models import read_pair, routed

from hf_capsule_mt.analysis.heat_maps import draw_heat_maps
from hf_capsule_mt.analysis.routing_figures import MOST_WORDS, sentence_pictures
from hf_capsule_mt.analysis.sentence import SentenceRouting
from hf_capsule_mt.evaluation.drawing import draw_lengths, save_figure

CROSS, OWN = "Heads: cross.0", "Heads: encoder_self.0"


def draw_sentence(routing, step=None):
    return {title: draw() for title, draw in sentence_pictures(routing, step).items()}


@pytest.fixture(scope="module")
def routing():
    return read_pair(routed("everything"), "a b c", "d e f")


@pytest.fixture(scope="module")
def figures(routing):
    """Its pictures, which no test changes."""
    return draw_sentence(routing)


@pytest.fixture(scope="module")
def figures_at_step(routing):
    return draw_sentence(routing, step=1)


def panels(figure):
    """The panels that hold an image, without those of colour bars."""
    return [axes for axes in figure.axes if axes.get_images()]


def images(figure):
    return [torch.tensor(axes.get_images()[0].get_array().data) for axes in panels(figure)]


def labels(ticks):
    return tuple(tick.get_text() for tick in ticks)


def assert_images(figure, expected):
    found = images(figure)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other.double())


def test_layers_and_heads_by_iteration(routing, figures):
    assert_images(figures["Encoder layers"], routing.encoder_layers.mean(0))
    assert_images(figures["Decoder layers"], routing.decoder_layers.mean(0))
    assert_images(figures[CROSS], routing.heads["cross.0"].mean(0))
    assert [axes.get_title() for axes in panels(figures[OWN])] == [f"iteration {n}" for n in (1, 2, 3)]
    last = panels(figures[OWN])[-1]
    assert labels(last.get_yticklabels()) == ("1", "2", "3", "4")
    assert (last.get_xlabel(), last.get_ylabel()) == ("output capsule", "head")


def test_at_a_step(routing, figures_at_step):
    figures = figures_at_step
    assert_images(figures["Decoder layers"], routing.decoder_layers[1])
    assert_images(figures[CROSS], routing.heads["cross.0"][1])
    assert figures[CROSS].get_suptitle() == "Heads: cross.0 at step 2, which wrote “e”"
    # The encoder has no steps.
    assert_images(figures[OWN], routing.heads["encoder_self.0"].mean(0))
    assert_images(figures["PAST and FUTURE by iteration"], routing.guided[1])
    named = panels(figures["PAST and FUTURE by iteration"])[0]
    assert labels(named.get_yticklabels()) == routing.source_words
    assert labels(named.get_xticklabels()) == tuple(
        f"{group} {number}" for group in ("PAST", "FUTURE", "redundant") for number in (1, 2)
    )


def test_past_and_future(routing, figures):
    figure = figures["PAST and FUTURE"]
    last = routing.guided[:, -1]
    assert_images(figure, [last[..., :2].sum(-1).t(), last[..., 2:4].sum(-1).t()])
    past, future = panels(figure)
    assert (past.get_title(), future.get_title()) == ("PAST", "FUTURE")
    assert labels(past.get_yticklabels()) == routing.source_words
    assert labels(past.get_xticklabels()) == labels(future.get_xticklabels()) == routing.target_words
    # One scale for both.
    assert len({axes.get_images()[0].get_clim() for axes in (past, future)}) == 1


def test_sentence_capsules():
    routing = read_pair(routed("capsule"), "a b c", "d")
    [(title, figure)] = draw_sentence(routing).items()
    assert title == "Sentence capsules"
    assert_images(figure, routing.sentence.transpose(1, 2))


def long_routing(words=100):
    generator = torch.Generator().manual_seed(0)
    source = tuple(f"▁word{number}" for number in range(words))
    guided = torch.rand(words, 3, words, 6, generator=generator).softmax(-1)
    sentence = torch.rand(3, words, 4, generator=generator).softmax(-1)
    return SentenceRouting(source, source, "", guided=guided, sentence=sentence, num_past=2, num_future=2)


def test_long_sentences_are_cut_with_a_note():
    figures = draw_sentence(long_routing(), step=99)
    past = panels(figures["PAST and FUTURE"])[0]
    assert len(past.get_xticklabels()) == len(past.get_yticklabels()) == MOST_WORDS
    assert images(figures["PAST and FUTURE"])[0].shape == (MOST_WORDS, MOST_WORDS)
    assert figures["PAST and FUTURE"].get_suptitle().endswith("(the first 40 of 100 and 100 pieces)")
    for title in ("PAST and FUTURE by iteration", "Sentence capsules"):
        assert figures[title].get_suptitle().endswith("(the first 40 of 100 pieces)")


@pytest.mark.parametrize("kind", ["guided_classifier", "capsule"])
@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_files(kind, ending, tmp_path):
    # A word with dollars is no formula.
    routing = read_pair(routed(kind), "a b", "c")
    routing = SentenceRouting(**{**vars(routing), "source_words": ("$a$", "x_$", "</s>")})
    figures = draw_sentence(routing)
    for number, figure in enumerate(figures.values()):
        save_figure(figure, tmp_path / f"{number}{ending}")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(f"{n}{ending}" for n in range(len(figures)))


def record(systems=2):
    def found(bucket):
        return {
            f"system {one}": {"bleu": 30 + one + bucket, "ratio": 1 - 0.1 * one + 0.01 * bucket}
            for one in range(systems)
        }

    buckets = [{"name": name, "sentences": 10, "systems": found(i)} for i, name in enumerate(["≤ 10", "11–20", "> 20"])]
    return {"buckets": [*buckets[:2], {"name": "none", "sentences": 0, "systems": {}}, buckets[2]]}


def test_what_is_drawn():
    bleu, ratio = draw_lengths(record()).axes
    assert [label.get_text() for label in bleu.get_xticklabels()] == ["≤ 10\n(10)", "11–20\n(10)", "> 20\n(10)"]
    lines = {line.get_label(): list(line.get_ydata()) for line in bleu.get_lines()}
    assert lines == {"system 0": [30, 31, 32], "system 1": [31, 32, 33]}
    lines = {line.get_label(): list(line.get_ydata()) for line in ratio.get_lines()[:2]}
    assert lines == {"system 0": pytest.approx([1, 1.01, 1.02]), "system 1": pytest.approx([0.9, 0.91, 0.92])}


@pytest.mark.parametrize(("columns", "darkest"), [(64, 50.0), (200, 1.0)])
def test_a_few_large_values_do_not_hide_all_others(columns, darkest):
    values = torch.ones(2, columns)
    values[0, 0] = 50.0
    figure = draw_heat_maps({"one": values}, "title", ("layer", ["1", "2"]), ("output capsule", None))
    [panel] = panels(figure)
    assert panel.get_images()[0].get_clim() == (0.0, darkest)
