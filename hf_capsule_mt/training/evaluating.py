"""How a `TranslationTrainer` evaluates: with the decoder engine, and by the BLEU of the token ids that it collects."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt import decoding
from hf_capsule_mt.evaluation.scores import make_metrics, score_translations

from .arguments import TranslationTrainingArguments

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_IGNORED = -100


def decode(model: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
    """Decode with the engine, not by the forward that accelerate puts in for autocast.

    Args:
        model: the model, as the Trainer has it.
        *args: other arguments of [`hf_capsule_mt.decoding.generate`].
        **kwargs: the same.

    Returns:
        The token ids, `[sentences, length]`, or the output that the options ask for.
    """
    attributes = vars(model)
    # accelerate has no public way to leave it for a while, only one to remove it for good.
    is_wrapped = "forward" in attributes and "_original_forward" in attributes
    if not is_wrapped:
        return decoding.generate(model, *args, **kwargs)
    autocasting_forward = attributes.pop("forward")
    try:
        return decoding.generate(model, *args, **kwargs)
    finally:
        model.forward = autocasting_forward


@contextmanager
def settings_left_alone(model: PreTrainedModel) -> Iterator[None]:
    """Let the Trainer fill in a copy of the generation settings. Checkpoints would have every default."""
    settings = model.generation_config
    filled = copy.deepcopy(settings)
    if filled.max_length is None and filled.max_new_tokens is not None:
        # The Trainer limits by `max_length`, which has no effect next to `max_new_tokens`.
        filled.max_length = filled.max_new_tokens + 1
        filled.max_new_tokens = None

    model.generation_config = filled
    try:
        yield
    finally:
        model.generation_config = settings


def bleu_metric(
    tokenizer: PreTrainedTokenizerBase, bleu_tokenize: str = "13a"
) -> Callable[[EvalPrediction], dict[str, float]]:
    """Return a `compute_metrics`: {"bleu": ...} of the decoded text, cut into words by sacreBLEU's `bleu_tokenize`.

    Unknown words of a reference stay in it, as words that no translation has.
    """
    # An unknown tokenizer of sacreBLEU is an error now, and not after the first epoch.
    make_metrics(["bleu"], bleu_tokenize)
    decoder = _Decoder(tokenizer)

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        translations = decoder.texts(prediction.predictions)
        references = decoder.references(prediction.label_ids)
        scores = score_translations(translations, [references], metrics=("bleu",), tokenize=bleu_tokenize)
        return {"bleu": scores["bleu"]["score"]}

    return compute


def default_metrics(args: TranslationTrainingArguments, tokenizer: Any) -> Callable | None:
    """Return the metrics of evaluation: BLEU if there are translations and a tokenizer."""
    if tokenizer is None or not args.predict_with_generate:
        return None
    return bleu_metric(tokenizer, args.bleu_tokenize)


class _Decoder:
    """Turns token ids, `[sentences, length]` with -100 or padding at the end, into texts."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        # A tokenizer may use another special token for unknown words, such as its end, or none.
        others = [token for name, token in tokenizer.special_tokens_map.items() if name != "unk_token"]
        self._unknown_ids: list[int] = []
        if tokenizer.unk_token not in (None, *others):
            self._unknown_ids.append(tokenizer.unk_token_id)
        self._special_ids = set(tokenizer.all_special_ids) - set(self._unknown_ids)

    def texts(self, token_ids: np.ndarray) -> list[str]:
        """Return the texts without special tokens."""
        padded = np.where(token_ids == _IGNORED, self._tokenizer.pad_token_id, token_ids)
        return self._tokenizer.batch_decode(padded, skip_special_tokens=True)

    def references(self, token_ids: np.ndarray) -> list[str]:
        """Return the texts with a replacement character for each unknown word."""
        texts = self.texts(token_ids)
        has_unknown = np.isin(token_ids, self._unknown_ids).any(axis=1)
        for number in np.flatnonzero(has_unknown):
            kept = []
            for token in token_ids[number].tolist():
                if token >= 0 and token not in self._special_ids:
                    kept.append(token)
            text = self._tokenizer.decode(kept)
            texts[number] = text.replace(self._tokenizer.unk_token, _UNKNOWN)
        return texts
