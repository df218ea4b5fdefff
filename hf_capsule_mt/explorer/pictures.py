"""The pictures that the Explorer shows of a sentence's routing, one at a time, with how to read each."""

from io import BytesIO
from typing import TYPE_CHECKING

from hf_capsule_mt.analysis.sentence import SentenceRouting
from hf_capsule_mt.analysis.sentence_figures import sentence_pictures

if TYPE_CHECKING:
    from PIL.Image import Image

_ITERATIONS = "after every routing iteration"
_AT_STEP = f"{_ITERATIONS}, at the step that wrote the word."
_READING = {
    "Encoder layers": "How much of each encoder layer (1 is the lowest) goes to each output capsule, "
    f"{_ITERATIONS}; the mean over source words.",
    "Decoder layers": f"How much of each decoder layer (1 is the lowest) goes to each output capsule, {_AT_STEP}",
    "Heads": f"How much of each attention head goes to each output capsule, {_ITERATIONS}.",
    "PAST and FUTURE": "Which source words count as translated (PAST) and as still to be translated (FUTURE), while "
    "each target word is written.",
    "PAST and FUTURE by iteration": f"To which capsule each source word goes, {_AT_STEP}",
    "Sentence capsules": "The darker a source word, the more of it the capsule takes.",
    "Sentence capsules by iteration": f"How much of each source word goes to each capsule, {_ITERATIONS}.",
}


def picture_titles(routing: SentenceRouting) -> list[str]:
    """The titles of the pictures there are; none without routing, or if the model wrote nothing."""
    return list(sentence_pictures(routing, 0)) if routing.target_words else []


def how_to_read(title: str) -> str:
    """A sentence on the picture of this title."""
    return _READING[title.partition(":")[0]]


def draw_picture(routing: SentenceRouting, title: str, step: int) -> "Image":
    """Draw the picture of one of [`picture_titles`].

    Args:
        routing: of the sentence.
        title: of the picture.
        step: the target position that it shows, from 0 on, if it is another at every step.
    """
    from PIL import Image

    stream = BytesIO()
    sentence_pictures(routing, step)[title]().savefig(stream, format="png", dpi=150, bbox_inches="tight")
    return Image.open(stream)
