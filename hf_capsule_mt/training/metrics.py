"""Scores of the translations that a Trainer makes in evaluation."""

from collections.abc import Callable

import numpy as np
from transformers import EvalPrediction, PreTrainedTokenizerBase

from hf_capsule_mt.evaluation.scores import make_metrics, score_translations

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def bleu_metric(
    tokenizer: PreTrainedTokenizerBase, bleu_tokenize: str = "13a"
) -> Callable[[EvalPrediction], dict[str, float]]:
    """Return a `compute_metrics`: {"bleu": ...} of the decoded text, cut into words by sacreBLEU's `bleu_tokenize`.

    What a reference has of unknown words stays in it, as words that no translation has.

    Raises:
        ValueError: if sacreBLEU has no such tokenizer, or it needs a package that is not there.
    """
    make_metrics(["bleu"], bleu_tokenize)
    unknown = _unknown_ids(tokenizer)
    special = set(tokenizer.all_special_ids) - set(unknown)

    def decode(ids: np.ndarray) -> list[str]:
        return tokenizer.batch_decode(np.where(ids == -100, tokenizer.pad_token_id, ids), skip_special_tokens=True)

    def references(ids: np.ndarray) -> list[str]:
        texts = decode(ids)
        for number in np.flatnonzero(np.isin(ids, unknown).any(axis=1)):
            words = [word for word in ids[number].tolist() if word >= 0 and word not in special]
            texts[number] = tokenizer.decode(words).replace(tokenizer.unk_token, _UNKNOWN)
        return texts

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        streams = [references(prediction.label_ids)]
        scores = score_translations(decode(prediction.predictions), streams, metrics=("bleu",), tokenize=bleu_tokenize)
        return {"bleu": scores["bleu"]["score"]}

    return compute


def _unknown_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the id of unknown words; none if a tokenizer has none, or another use for it."""
    others = [token for name, token in tokenizer.special_tokens_map.items() if name != "unk_token"]
    return [] if tokenizer.unk_token in (None, *others) else [tokenizer.unk_token_id]
