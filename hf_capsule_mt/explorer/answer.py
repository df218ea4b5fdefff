"""Answers of the Explorer: the translation of a sentence by a checkpoint, and the routing on the way."""

from collections.abc import Callable
from dataclasses import dataclass

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.analysis.sentence import SentenceRouting, read_sentence
from hf_capsule_mt.checkpoints import count_parameters
from hf_capsule_mt.data.encoding import tokenize_lines
from hf_capsule_mt.hub.model_card import describe_architecture
from hf_capsule_mt.translation.language_codes import LanguageCodes
from hf_capsule_mt.translation.source_limits import source_limit

LONGEST_INPUT = 1000
"""In characters: models without positions have no limit of their own, and a page must answer some time."""

Load = Callable[[str], tuple[PreTrainedModel, PreTrainedTokenizerBase]]
"""From a checkpoint's folder or name to its model and tokenizer; raises ValueError or OSError if there is none."""


@dataclass(frozen=True)
class Answer:
    """Translation and routing of a sentence by one checkpoint.

    Attributes:
        routing: the translation too; None if there is none.
        architecture: description of the model.
        problem: what the visitor should change; empty if that is nothing.
    """

    routing: SentenceRouting | None = None
    architecture: str = ""
    problem: str = ""


def answer(load: Load, name: str | None, sentence: str | None) -> Answer:
    """Translate a sentence; a mistake of the visitor becomes the answer's problem."""
    try:
        text = _checked(sentence)
        if not name or not name.strip():
            raise ValueError("Choose a checkpoint: the path of its folder, or its name on the Hub.")
        model, tokenizer = load(name.strip())
        problem = _missing_code(text, tokenizer)
        _check_length(text, model, tokenizer)
        return Answer(read_sentence(model, tokenizer, text), _describe(model), problem)
    except (ValueError, OSError) as error:
        return Answer(problem=str(error))


def _checked(sentence: str | None) -> str:
    """The sentence in one line."""
    if sentence is None or not sentence.strip():
        raise ValueError("There is nothing to translate. Type a sentence.")
    if len(sentence) > LONGEST_INPUT:
        raise ValueError(
            f"The text has {len(sentence)} characters; this page takes {LONGEST_INPUT} at most. Shorten it."
        )
    if any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in sentence):
        raise ValueError("The text has a character that is none: half of a surrogate pair, or null. Type it anew.")
    return " ".join(sentence.split())


def _check_length(text: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    limit = source_limit(model.config, tokenizer)
    length = len(tokenize_lines(tokenizer, [text])[0])
    if length > limit:
        raise ValueError(f"The sentence has {length} tokens, and this model reads {limit} at most. Shorten it.")


def _describe(model: PreTrainedModel) -> str:
    return f"{describe_architecture(model.config)} {count_parameters(model):,} parameters."


def _missing_code(text: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """What to say of a text that does not tell a multilingual model which language to write, if it is one."""
    codes = LanguageCodes(tokenizer)
    return f"The model was not told which language to write: {codes.missing()}." if codes.are_missing([text]) else ""
