"""Answers of the demo: a sentence's translation by a checkpoint, and the pictures of its routing."""

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import source_limit, tokenize_lines
from hf_capsule_mt.hub.model_card import describe_architecture
from hf_capsule_mt.translation.language_codes import LanguageCodes
from hf_capsule_mt.translation.loading import count_parameters

from .routing_figures import sentence_pictures
from .sentence import SentenceRouting, read_sentence

if TYPE_CHECKING:
    from PIL.Image import Image

LONGEST_INPUT = 1000
"""Characters. Some models have no limit of their own, and a page must answer in time."""
Load = Callable[[str], tuple[PreTrainedModel, PreTrainedTokenizerBase]]
"""From a checkpoint's folder or name to its model and tokenizer."""


class Answer(NamedTuple):
    """The routing and translation of a sentence, a description of the model, and what the visitor should change."""

    routing: SentenceRouting | None = None
    architecture: str = ""
    problem: str = ""


def answer(load: Load, name: str | None, sentence: str | None) -> Answer:
    """Translate a sentence. A mistake of the visitor becomes the answer's problem."""
    try:
        text = " ".join((sentence or "").split())
        if not text or not (name or "").strip():
            raise ValueError("Type a sentence, and choose a checkpoint: its folder, or its name on the Hub.")
        if len(text) > LONGEST_INPUT:
            raise ValueError(f"The text has more than {LONGEST_INPUT} characters. Shorten it.")
        model, tokenizer = load(name.strip())
        limit, length = source_limit(model.config, tokenizer), len(tokenize_lines(tokenizer, [text])[0])
        if length > limit:
            raise ValueError(f"The sentence has {length} tokens, and this model reads at most {limit}. Shorten it.")
        codes = LanguageCodes(tokenizer)
        missing = codes.are_missing([text])
        problem = f"The model was not told which language to write: {codes.missing()}." if missing else ""
        architecture = f"{describe_architecture(model.config)} {count_parameters(model):,} parameters."
        return Answer(read_sentence(model, tokenizer, text), architecture, problem)
    except (ValueError, OSError) as error:
        return Answer(problem=str(error))


def picture_titles(routing: SentenceRouting) -> list[str]:
    """Return the titles of the pictures. There are none without routing, or if the model wrote nothing."""
    return list(sentence_pictures(routing, 0)) if routing.target_words else []


def draw_picture(routing: SentenceRouting, title: str, step: int) -> "Image":
    """Draw the picture of one of [`picture_titles`], at target position `step` if it has steps."""
    from PIL import Image

    stream = BytesIO()
    sentence_pictures(routing, step)[title]().savefig(stream, format="png", dpi=150, bbox_inches="tight")
    return Image.open(stream)
