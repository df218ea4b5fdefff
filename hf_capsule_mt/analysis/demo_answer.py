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

_ITERATIONS = "after every routing iteration"
_READING = {
    "Encoder layers": "How much of each encoder layer (1 is the lowest) goes to each output capsule, "
    f"{_ITERATIONS}. This is the mean over source words.",
    "Decoder layers": "How much of each decoder layer (1 is the lowest) goes to each output capsule, "
    f"{_ITERATIONS}, at the step that wrote the word.",
    "Heads": f"How much of each attention head goes to each output capsule, {_ITERATIONS}.",
    "PAST and FUTURE": "Which source words count as translated (PAST) and as not yet translated (FUTURE), while each "
    "target word is written.",
    "PAST and FUTURE by iteration": f"To which capsule each source word goes, {_ITERATIONS}, at the step that wrote "
    "the word.",
    "Sentence capsules": "The darker a source word, the more of it the capsule takes.",
    "Sentence capsules by iteration": f"How much of each source word goes to each capsule, {_ITERATIONS}.",
}


class Answer(NamedTuple):
    """The routing and translation of a sentence, a description of the model, and what the visitor should change."""

    routing: SentenceRouting | None = None
    architecture: str = ""
    problem: str = ""


def answer(load: Load, name: str | None, sentence: str | None) -> Answer:
    """Translate a sentence; a mistake of the visitor becomes the answer's problem."""
    try:
        text = " ".join((sentence or "").split())
        if not text:
            raise ValueError("There is nothing to translate. Type a sentence.")
        if len(text) > LONGEST_INPUT:
            raise ValueError(f"The text has more than {LONGEST_INPUT} characters. Shorten it.")
        if any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in text):
            raise ValueError("The text has a broken character. Type it again.")
        if not name or not name.strip():
            raise ValueError("Choose a checkpoint: the path of its folder, or its name on the Hub.")
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
    """Return the titles of the pictures; none without routing, or if the model wrote nothing."""
    return list(sentence_pictures(routing, 0)) if routing.target_words else []


def how_to_read(title: str) -> str:
    """Return a sentence on the picture of this title."""
    return _READING[title.partition(":")[0]]


def draw_picture(routing: SentenceRouting, title: str, step: int) -> "Image":
    """Draw the picture of one of [`picture_titles`], at target position `step` if it is another at every step."""
    from PIL import Image

    stream = BytesIO()
    sentence_pictures(routing, step)[title]().savefig(stream, format="png", dpi=150, bbox_inches="tight")
    return Image.open(stream)
