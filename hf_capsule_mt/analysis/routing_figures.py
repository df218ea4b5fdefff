"""Pictures of routing, of one sentence and over a corpus."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hf_capsule_mt.evaluation.drawing import COLOURS, line_style, new_panels

from .heat_maps import draw_heat_maps
from .layer_shares import READERS, READING_TITLES
from .routed_parts import guided_names
from .sentence import SentenceRouting
from .statistics import RoutingStatistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_AROUND = "PAST and FUTURE around a word's translation"
"""The title of a figure."""
MOST_WORDS = 40
"""Pieces of a sentence that fit into a picture. Its title says how many it leaves out."""
TEXTS = yaml.safe_load(Path(__file__).with_name("report.yaml").read_text(encoding="utf-8"))
"""What is said about `pictures` and `tables`."""


def sentence_pictures(routing: SentenceRouting, step: int | None = None) -> "dict[str, Callable[[], Figure]]":
    """Return functions that draw every routing that the model has, by title.

    At a `step`, a target position from 0 on, they show the routing as it was when the model wrote this word, instead of
    the mean over all words.

    * "Encoder layers", "Decoder layers", "Heads: cross.1" and so on: layers or heads to output capsules, by iteration
      (Dou et al. 2019, Fig. 4).
    * "PAST and FUTURE": source words to PAST and to FUTURE while every target word is written (Zheng et al. 2019, Fig.
      4). At a step also "PAST and FUTURE by iteration", with every capsule.
    * "Sentence capsules": source words to sentence capsules, by iteration (Wang et al. 2019, Table 4).
    * "Encoder layers that decoder layers read" and so on: shares in what a layer reads, if it has its own aggregate.
    """
    assignments = {
        "Encoder layers": routing.encoder_layers,
        "Decoder layers": routing.decoder_layers,
    }
    for place, assignment in routing.heads.items():
        assignments[f"Heads: {place}"] = assignment

    pictures = {}
    for title, assignment in assignments.items():
        if assignment is not None:
            pictures[title] = partial(_draw_inputs, routing, title, assignment, step)

    if routing.guided is not None:
        pictures["PAST and FUTURE"] = partial(_draw_past_and_future, routing)
        if step is not None:
            pictures["PAST and FUTURE by iteration"] = partial(_draw_guided_step, routing, step)
    if routing.sentence is not None:
        pictures["Sentence capsules"] = partial(_draw_sentence_capsules, routing)
    for what, shares in routing.layers_read.items():
        pictures[READING_TITLES[what]] = partial(_draw_layers_read, what, shares)
    return pictures


def look_for(title: str) -> str:
    """Return a sentence that says what to look for in the picture of this title."""
    hints = TEXTS["pictures"]
    return next(hint for beginning, hint in hints.items() if title.startswith(beginning))


def follows_step(title: str) -> bool:
    """Return whether the picture of this title in [`sentence_pictures`] is another at every step."""
    if title.startswith("Heads: "):
        return not title.startswith("Heads: encoder")
    return title in ("Decoder layers", "PAST and FUTURE by iteration")


def draw_iterations(assignment: Tensor, kind: str, title: str) -> "Figure":
    """Draw an assignment by iteration, `[iterations, inputs, N]`, a panel each. `kind` is "layer" or "head"."""
    num_inputs = assignment.shape[1]
    rows = (kind, _numbers(num_inputs))
    columns = ("output capsule", None)
    return draw_heat_maps(_by_iteration(assignment), title, rows, columns)


def _kind(name: str) -> str:
    return "head" if name.lower().startswith("heads") else "layer"


def _by_iteration(assignment: Tensor) -> dict[str, Tensor]:
    """Return each iteration by its title."""
    maps = {}
    for number, values in enumerate(assignment, start=1):
        maps[f"iteration {number}"] = values
    return maps


def _numbers(count: int) -> list[str]:
    """Return the numbers from 1 to `count`."""
    return [str(number) for number in range(1, count + 1)]


def _at(routing: SentenceRouting, step: int) -> str:
    word = routing.target_words[step]
    return f"at step {step + 1}, which wrote “{word}”"


def _draw_inputs(routing: SentenceRouting, title: str, assignment: Tensor, step: int | None) -> "Figure":
    """Draw the assignment of layers or heads, `[positions, iterations, inputs, N]`, at a step or its mean."""
    if not follows_step(title):
        where = ", mean over the source"
        values = assignment.mean(0)
    elif step is None:
        where = ", mean over the translation"
        values = assignment.mean(0)
    else:
        where = f" {_at(routing, step)}"
        values = assignment[step]
    return draw_iterations(values, _kind(title), title + where)


def _draw_sentence_capsules(routing: SentenceRouting) -> "Figure":
    words = routing.source_words
    num_capsules = routing.sentence.shape[-1]
    rows = ("capsule", _numbers(num_capsules))
    columns = ("source", words[:MOST_WORDS])
    capsules_first = routing.sentence[:, :MOST_WORDS].transpose(1, 2)
    maps = _by_iteration(capsules_first)
    title = "Source words in sentence capsules" + _what_is_cut(words)
    return draw_heat_maps(maps, title, rows, columns)


def _draw_past_and_future(routing: SentenceRouting) -> "Figure":
    end_of_past = routing.num_past
    end_of_future = routing.num_past + routing.num_future

    # The last iteration, `[target, source, J]`.
    last = routing.guided[:MOST_WORDS, -1, :MOST_WORDS]
    past = last[..., :end_of_past].sum(-1)
    future = last[..., end_of_past:end_of_future].sum(-1)
    maps = {"PAST": past.t(), "FUTURE": future.t()}

    source = routing.source_words
    target = routing.target_words
    rows = ("source", source[:MOST_WORDS])
    columns = ("while it writes", target[:MOST_WORDS])
    title = "Source words in PAST and FUTURE" + _what_is_cut(source, target)
    return draw_heat_maps(maps, title, rows, columns, colours=("Blues", "Oranges"), side_by_side=True)


def _draw_guided_step(routing: SentenceRouting, step: int) -> "Figure":
    source = routing.source_words
    rows = ("source", source[:MOST_WORDS])
    num_capsules = routing.guided.shape[-1]
    columns = ("", guided_names(routing.num_past, routing.num_future, num_capsules))
    maps = _by_iteration(routing.guided[step, :, :MOST_WORDS])
    title = f"Guided routing {_at(routing, step)}" + _what_is_cut(source)
    return draw_heat_maps(maps, title, rows, columns, side_by_side=True)


def _what_is_cut(*sides: tuple[str, ...]) -> str:
    """Return a note for the title, if the picture does not have all words."""
    lengths = [len(words) for words in sides]
    cut_lengths = [str(length) for length in lengths if length > MOST_WORDS]
    if not cut_lengths:
        return ""
    numbers = " and ".join(cut_lengths)
    return f" (the first {MOST_WORDS} of {numbers} pieces)"


def draw_routing(statistics: RoutingStatistics, record: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Draw what was measured, and what [`record_routing`] makes of it. Return figures by title.

    They are shares in what a layer reads, as in [`sentence_pictures`], the mean assignment by iteration of every kind
    of routing (Dou et al. 2019, Fig. 4), "Entropy and diversity", and "PAST and FUTURE around a word's translation".
    """
    figures = {}
    for what, shares in statistics.layers_read.items():
        figures[READING_TITLES[what]] = _draw_layers_read(what, shares)

    for name, sums in statistics.sums.items():
        title = f"Mean assignment: {name}"
        means = sums.mean_assignment
        if sums.keep_inputs:
            figures[title] = draw_iterations(means, _kind(name), title)
        elif name == "guided capsules":
            figures[title] = _draw_word_means(means, title, statistics.guided_names)
        else:
            num_capsules = means.shape[-1]
            figures[title] = _draw_word_means(means, title, _numbers(num_capsules))

    if record["routing"]:
        figures["Entropy and diversity"] = _draw_curves(record["routing"])
    past_and_future = record["past_and_future"]
    # There are no steps if no word is aligned.
    if past_and_future is not None and past_and_future["around"]:
        figures[_AROUND] = _draw_around(past_and_future["around"])
    return figures


def _draw_layers_read(what: str, shares: Sequence[Tensor]) -> "Figure":
    """Draw what [`LayerShares.means`] has. Layers that a layer cannot read have the share 0."""
    side = "encoder" if what == "source" else what
    values = pad_sequence(list(shares), batch_first=True)
    columns = (f"{side} layer, 0 for the embeddings", ["0", *_numbers(values.shape[1] - 1)])
    rows = (READERS[what], _numbers(len(shares)))
    return draw_heat_maps({"mean over words": values}, READING_TITLES[what], rows, columns, scale="share")


def _draw_word_means(means: Tensor, title: str, capsules: Sequence[str]) -> "Figure":
    """Draw the mean assignment of all words, `[iterations, 1, N]`."""
    rows = ("iteration", _numbers(len(means)))
    columns = ("capsule", capsules)
    maps = {"mean over source words": means.squeeze(1)}
    return draw_heat_maps(maps, title, rows, columns)


def _draw_curves(routing: Mapping[str, Any]) -> "Figure":
    """Draw a row of panels for each kind of routing: entropy, and diversity, against iterations."""
    from matplotlib.figure import Figure

    names_of_kinds: dict[str, list[str]] = {}
    for name in routing:
        kind = _kind_of_curve(name)
        names_of_kinds.setdefault(kind, []).append(name)

    height = 2.6 * len(names_of_kinds) + 0.4
    figure = Figure(figsize=(9, height), layout="constrained")
    figure.suptitle("Entropy and diversity")
    rows = figure.subplots(len(names_of_kinds), 2, squeeze=False)

    for panels, (kind, names) in zip(rows, names_of_kinds.items(), strict=True):
        entropy_panel, diversity_panel = panels
        _draw_measure(entropy_panel, {name: routing[name]["entropy"] for name in names})
        entropy_panel.set_title(f"{kind}: entropy")
        entropy_panel.set_ylabel("nats")
        _draw_measure(diversity_panel, {name: routing[name]["diversity"] for name in names})
        diversity_panel.set_title(f"{kind}: diversity")
        # One line is named by the title.
        if len(names) > 1:
            diversity_panel.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    return figure


def _kind_of_curve(name: str) -> str:
    """Return the title of the panels that show a routing: those of layers share one, and those of heads of a site."""
    site, _, _ = name.rpartition(".")
    if site:
        return site
    return "layers" if "layers" in name else name


def _draw_measure(axes: "Axes", curves: Mapping[str, Sequence[float]]) -> None:
    """Draw a line for each name: its values by iteration."""
    most = max(len(values) for values in curves.values())
    iterations = range(1, most + 1)
    for number, (name, values) in enumerate(curves.items()):
        style = line_style(number)
        axes.plot(iterations[: len(values)], values, label=name, **style)
    axes.set_xticks(iterations)
    axes.set_xlabel("iteration")
    axes.grid(alpha=0.3)


def _draw_around(around: Sequence[Mapping[str, Any]]) -> "Figure":
    steps = [means["step"] for means in around]
    figure, [axes] = new_panels(1, 6)
    past = [means["past"] for means in around]
    future = [means["future"] for means in around]
    axes.plot(steps, past, color=COLOURS[0], marker="o", label="PAST")
    axes.plot(steps, future, color=COLOURS[1], marker="s", label="FUTURE")

    # Between the step that writes the translation and the one after it.
    axes.axvline(0.5, color="black", linewidth=0.8, linestyle="--")
    axes.set(title=_AROUND, ylim=(0, None))
    axes.set(xlabel="steps since its translation was written", ylabel="mean assignment")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()
    return figure
