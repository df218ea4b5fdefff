"""Pictures of how one sentence was routed."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from .figures import COLOURS, HeatMap, HeatMapNames, draw_heat_maps, draw_shaded_words
from .routing_kinds import guided_names
from .sentence import SentenceRouting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_WORDS = 40
"""Pieces of a sentence that a picture has room for; it tells how many it leaves out."""
PAST_COLOUR, FUTURE_COLOUR = COLOURS[0], COLOURS[1]


def draw_sentence(routing: SentenceRouting, step: int | None = None) -> dict[str, "Figure"]:
    """Draw every routing that the model has: the pictures of [`sentence_pictures`], by title."""
    return {title: draw() for title, draw in sentence_pictures(routing, step).items()}


def sentence_pictures(routing: SentenceRouting, step: int | None = None) -> dict[str, Callable[[], "Figure"]]:
    """Return the pictures of [`draw_sentence`] as functions that draw them.

    Args:
        routing: of [`read_sentence`].
        step: a target position, from 0 on: what is routed at every target position is shown as it was when the model
            wrote this word. By default it is the mean over all.

    Returns:
        Pictures by title; none for a model without routing.

        * "Encoder layers", "Decoder layers": layers to output capsules, by iteration (Dou et al. 2019, Fig. 4); for the
          encoder, the mean over source words.
        * "Heads: cross.1" and so on: attention heads to output capsules, likewise.
        * "PAST and FUTURE": source words to PAST and to FUTURE while every target word is written (Zheng et al. 2019,
          Fig. 4); and, at a step, "PAST and FUTURE by iteration": source words to every capsule.
        * "Sentence capsules": source words shaded by the share that each capsule takes (Wang et al. 2019, Table 4); and
          "Sentence capsules by iteration".

    Raises:
        ValueError: if there is no such target position.
    """
    if step is not None and not 0 <= step < len(routing.target_words):
        raise ValueError(f"step is {step}; the {len(routing.target_words)} target words have steps from 0 on")
    pictures = {}
    if routing.encoder_layers is not None:
        title = "Encoder layers"
        pictures[title] = partial(_draw_source, routing.encoder_layers, "layer", title)
    if routing.decoder_layers is not None:
        title = "Decoder layers"
        pictures[title] = partial(_draw_target, routing, routing.decoder_layers, "layer", title, step)
    for place, assignment in routing.heads.items():
        title = f"Heads: {place}"
        if place.startswith("encoder"):
            pictures[title] = partial(_draw_source, assignment, "head", title)
        else:
            pictures[title] = partial(_draw_target, routing, assignment, "head", title, step)
    if routing.guided is not None:
        pictures["PAST and FUTURE"] = partial(_draw_past_and_future, routing)
        if step is not None:
            pictures["PAST and FUTURE by iteration"] = partial(_draw_guided_step, routing, step)
    if routing.sentence is not None:
        pictures["Sentence capsules"] = partial(_draw_shaded, routing)
        pictures["Sentence capsules by iteration"] = partial(_draw_sentence_capsules, routing)
    return pictures


def follows_step(title: str) -> bool:
    """Return whether the picture of this title in [`sentence_pictures`] is another at every step."""
    if title.startswith("Heads: "):
        return not title.startswith("Heads: encoder")
    return title in ("Decoder layers", "PAST and FUTURE by iteration")


def draw_iterations(assignment: Tensor, kind: str, title: str) -> "Figure":
    """Draw an assignment by iteration, `[iterations, inputs, N]`, a panel each; an input is a "layer" or a "head"."""
    maps = [HeatMap(f"iteration {number}", values) for number, values in enumerate(assignment, start=1)]
    rows = [str(number) for number in range(1, assignment.shape[1] + 1)]
    return draw_heat_maps(maps, HeatMapNames(kind, rows, "output capsule"), title)


def _draw_source(assignment: Tensor, kind: str, title: str) -> "Figure":
    return draw_iterations(assignment.mean(0), kind, f"{title}, mean over the source")


def _draw_target(routing: SentenceRouting, assignment: Tensor, kind: str, title: str, step: int | None) -> "Figure":
    if step is None:
        return draw_iterations(assignment.mean(0), kind, f"{title}, mean over the translation")
    return draw_iterations(assignment[step], kind, f"{title} {_at(routing, step)}")


def _at(routing: SentenceRouting, step: int) -> str:
    return f"at step {step + 1}, which wrote “{routing.target_words[step]}”"


def _draw_past_and_future(routing: SentenceRouting) -> "Figure":
    past, future = past_and_future(routing)
    maps = [
        HeatMap(name, _cut_values(_cut_values(values.t(), 0), 1), colour)
        for name, values, colour in (("PAST", past, PAST_COLOUR), ("FUTURE", future, FUTURE_COLOUR))
    ]
    names = HeatMapNames("source", _cut(routing.source_words), "while it writes", _cut(routing.target_words))
    title = "Source words in PAST and FUTURE" + _what_is_cut(routing.source_words, routing.target_words)
    return draw_heat_maps(maps, names, title, side_by_side=True)


def past_and_future(routing: SentenceRouting) -> tuple[Tensor, Tensor]:
    """Return the assignment of every source word to PAST and to FUTURE at the last iteration, `[T, S]` each."""
    past, future, _ = routing.guided[:, -1].tensor_split([routing.num_past, routing.num_past + routing.num_future], -1)
    return past.sum(-1), future.sum(-1)


def _draw_guided_step(routing: SentenceRouting, step: int) -> "Figure":
    maps = [
        HeatMap(f"iteration {number}", _cut_values(values, 0))
        for number, values in enumerate(routing.guided[step], start=1)
    ]
    columns = guided_names(routing.num_past, routing.num_future, routing.guided.shape[-1])
    names = HeatMapNames("source", _cut(routing.source_words), "", columns)
    title = f"Guided routing {_at(routing, step)}" + _what_is_cut(routing.source_words)
    return draw_heat_maps(maps, names, title, side_by_side=True)


def _draw_shaded(routing: SentenceRouting) -> "Figure":
    title = "Source words in sentence capsules" + _what_is_cut(routing.source_words)
    return draw_shaded_words(_cut(routing.source_words), _cut_values(routing.sentence[-1], 0), title)


def _draw_sentence_capsules(routing: SentenceRouting) -> "Figure":
    maps = [
        HeatMap(f"iteration {number}", _cut_values(values, 0).t())
        for number, values in enumerate(routing.sentence, start=1)
    ]
    rows = [str(number) for number in range(1, routing.sentence.shape[-1] + 1)]
    names = HeatMapNames("capsule", rows, "source", _cut(routing.source_words))
    return draw_heat_maps(maps, names, "Source words in sentence capsules" + _what_is_cut(routing.source_words))


def _cut(words: tuple[str, ...]) -> tuple[str, ...]:
    return words[:MOST_WORDS]


def _cut_values(values: Tensor, dim: int) -> Tensor:
    return values.narrow(dim, 0, min(MOST_WORDS, values.shape[dim]))


def _what_is_cut(*sides: tuple[str, ...]) -> str:
    """A note for the title, if the picture does not have all words."""
    lengths = [str(len(words)) for words in sides if len(words) > MOST_WORDS]
    return f" (the first {MOST_WORDS} of {' and '.join(lengths)} pieces)" if lengths else ""
