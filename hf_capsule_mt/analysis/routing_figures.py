"""Pictures of routing, of one sentence and over a corpus."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from torch import Tensor

from hf_capsule_mt.evaluation.drawing import COLOURS, line_style, new_panels

from .heat_maps import draw_heat_maps
from .routed_parts import guided_names
from .sentence import SentenceRouting
from .statistics import RoutingStatistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """
    assignments = {"Encoder layers": routing.encoder_layers, "Decoder layers": routing.decoder_layers}
    assignments |= {f"Heads: {place}": assignment for place, assignment in routing.heads.items()}
    pictures = {}
    for title, assignment in assignments.items():
        if assignment is not None:
            if step is not None and follows_step(title):
                values, where = assignment[step], f" {_at(routing, step)}"
            else:
                side = "translation" if follows_step(title) else "source"
                values, where = assignment.mean(0), f", mean over the {side}"
            pictures[title] = partial(draw_iterations, values, "head" if "Heads" in title else "layer", title + where)
    if routing.guided is not None:
        pictures["PAST and FUTURE"] = partial(_draw_past_and_future, routing)
        if step is not None:
            pictures["PAST and FUTURE by iteration"] = partial(_draw_guided_step, routing, step)
    if routing.sentence is not None:
        words = routing.source_words
        title = "Source words in sentence capsules" + _what_is_cut(words)
        axes = ("capsule", _numbers(routing.sentence.shape[-1])), ("source", words[:MOST_WORDS])
        maps = _by_iteration(routing.sentence[:, :MOST_WORDS].transpose(1, 2))
        pictures["Sentence capsules"] = partial(draw_heat_maps, maps, title, *axes)
    return pictures


def look_for(title: str) -> str:
    """Return a sentence that says what to look for in the picture of this title."""
    return next(text for begin, text in TEXTS["pictures"].items() if title.startswith(begin))


def follows_step(title: str) -> bool:
    """Return whether the picture of this title in [`sentence_pictures`] is another at every step."""
    is_head = title.startswith("Heads: ") and not title.startswith("Heads: encoder")
    return is_head or title in ("Decoder layers", "PAST and FUTURE by iteration")


def draw_iterations(assignment: Tensor, kind: str, title: str) -> "Figure":
    """Draw an assignment by iteration, `[iterations, inputs, N]`, a panel each. `kind` is "layer" or "head"."""
    rows = kind, _numbers(assignment.shape[1])
    return draw_heat_maps(_by_iteration(assignment), title, rows, ("output capsule", None))


def _by_iteration(assignment: Tensor) -> dict[str, Tensor]:
    return {f"iteration {number}": values for number, values in enumerate(assignment, start=1)}


def _numbers(count: int) -> list[str]:
    return [str(number + 1) for number in range(count)]


def _at(routing: SentenceRouting, step: int) -> str:
    return f"at step {step + 1}, which wrote “{routing.target_words[step]}”"


def _draw_past_and_future(routing: SentenceRouting) -> "Figure":
    starts = [routing.num_past, routing.num_past + routing.num_future]
    past, future, _ = routing.guided[:MOST_WORDS, -1, :MOST_WORDS].tensor_split(starts, -1)
    maps = {"PAST": past.sum(-1).t(), "FUTURE": future.sum(-1).t()}
    source, target = routing.source_words, routing.target_words
    axes = ("source", source[:MOST_WORDS]), ("while it writes", target[:MOST_WORDS])
    title = "Source words in PAST and FUTURE" + _what_is_cut(source, target)
    return draw_heat_maps(maps, title, *axes, colours=("Blues", "Oranges"), side_by_side=True)


def _draw_guided_step(routing: SentenceRouting, step: int) -> "Figure":
    columns = guided_names(routing.num_past, routing.num_future, routing.guided.shape[-1])
    axes = ("source", routing.source_words[:MOST_WORDS]), ("", columns)
    title = f"Guided routing {_at(routing, step)}" + _what_is_cut(routing.source_words)
    return draw_heat_maps(_by_iteration(routing.guided[step, :, :MOST_WORDS]), title, *axes, side_by_side=True)


def _what_is_cut(*sides: tuple[str, ...]) -> str:
    """A note for the title, if the picture does not have all words."""
    lengths = [str(len(words)) for words in sides if len(words) > MOST_WORDS]
    return f" (the first {MOST_WORDS} of {' and '.join(lengths)} pieces)" if lengths else ""


def draw_routing(statistics: RoutingStatistics, record: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Draw what was measured, and what [`record_routing`] makes of it. Return figures by title.

    They are the mean assignment by iteration of every kind of routing (Dou et al. 2019, Fig. 4), "Entropy and
    diversity", and "PAST and FUTURE around a word's translation".
    """
    figures = {}
    for name, sums in statistics.sums.items():
        title, means = f"Mean assignment: {name}", sums.mean_assignment
        if sums.keep_inputs:
            figures[title] = draw_iterations(means, "head" if "heads" in name else "layer", title)
        else:
            columns = statistics.guided_names if name == "guided capsules" else _numbers(means.shape[-1])
            axes = ("iteration", _numbers(len(means))), ("capsule", columns)
            figures[title] = draw_heat_maps({"mean over source words": means.squeeze(1)}, title, *axes)
    if record["routing"]:
        figures["Entropy and diversity"] = _draw_curves(record["routing"])
    if record["past_and_future"] is not None and record["past_and_future"]["around"]:
        figures["PAST and FUTURE around a word's translation"] = _draw_around(record["past_and_future"]["around"])
    return figures


def _draw_curves(routing: Mapping[str, Any]) -> "Figure":
    """A row of panels for each kind of routing: entropy, and diversity, against iterations."""
    from matplotlib.figure import Figure

    kinds: dict[str, list[str]] = {}
    for name in routing:
        kinds.setdefault(name.rpartition(".")[0] or ("layers" if "layers" in name else name), []).append(name)
    figure = Figure(figsize=(9, 2.6 * len(kinds) + 0.4), layout="constrained")
    figure.suptitle("Entropy and diversity")
    for (kind, names), panels in zip(kinds.items(), figure.subplots(len(kinds), 2, squeeze=False)):
        for panel, measure in zip(panels, ("entropy", "diversity")):
            for number, name in enumerate(names):
                values = routing[name][measure]
                panel.plot(range(1, len(values) + 1), values, label=name, **line_style(number))
            panel.set(title=f"{kind}: {measure}", xlabel="iteration", ylabel="nats" if measure == "entropy" else "")
            panel.set_xticks(range(1, max(len(routing[name][measure]) for name in names) + 1))
            panel.grid(alpha=0.3)
        if len(names) > 1:
            panels[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    return figure


def _draw_around(around: Sequence[Mapping[str, Any]]) -> "Figure":
    steps = [one["step"] for one in around]
    figure, [axes] = new_panels(1, 6)
    for side, colour, marker in (("past", COLOURS[0], "o"), ("future", COLOURS[1], "s")):
        axes.plot(steps, [one[side] for one in around], color=colour, marker=marker, label=side.upper())
    axes.axvline(0.5, color="black", linewidth=0.8, linestyle="--")
    axes.set(title="PAST and FUTURE around a word's translation", ylim=(0, None))
    axes.set(xlabel="steps since its translation was written", ylabel="mean assignment")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()
    return figure
