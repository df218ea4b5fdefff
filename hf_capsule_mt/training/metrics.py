"""Scores of the translations that a Trainer makes in evaluation."""

from collections.abc import Callable

import numpy as np
from transformers import EvalPrediction, PreTrainedTokenizerBase

from hf_capsule_mt.evaluation.scores import score_translations


def bleu_metric(tokenizer: PreTrainedTokenizerBase) -> Callable[[EvalPrediction], dict[str, float]]:
    """Return a `compute_metrics`: {"bleu": ...} of the decoded text, with sacreBLEU's default tokenizer."""

    def decode(ids: np.ndarray) -> list[str]:
        return tokenizer.batch_decode(np.where(ids == -100, tokenizer.pad_token_id, ids), skip_special_tokens=True)

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        scores = score_translations(decode(prediction.predictions), [decode(prediction.label_ids)], metrics=("bleu",))
        return {"bleu": scores["bleu"]["score"]}

    return compute
