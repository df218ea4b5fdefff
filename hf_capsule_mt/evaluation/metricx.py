"""MetricX-23 and MetricX-24: scores of translations by mT5 with one number as its output (Juraska et al. 2023, 2024).

MetricX's own code needs Transformers 4. Its network is mT5 as Transformers has it: the score is the logit of one token
after one step of the decoder.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import AutoTokenizer, MT5ForConditionalGeneration, PreTrainedTokenizerBase

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.loading import readable_weights

from .comet import batches_of_like_length, check_segments

SCORE_TOKEN = 250089
"""The token `<extra_id_10>` of mT5, whose logit is the score."""
WORST = 25.0
"""The score of the worst translation. The best one has 0."""
MOST_TOKENS = {23: 1024, 24: 1536}
"""Longer inputs are cut, by the version of MetricX."""
TOKENIZER = "google/mt5-xl"
"""All published models use its tokenizer, and carry none."""


class MetricXScorer:
    """A MetricX model that scores translations from 0, the best, to 25. [`MetricXScorer.from_pretrained`] makes one."""

    def __init__(self, model: MT5ForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, version: int) -> None:
        self.name = model.name_or_path
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._version = version

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        version: int | None = None,
        tokenizer: str | Path = TOKENIZER,
        device: str | torch.device = "cpu",
    ) -> "MetricXScorer":
        """Load a model of a repository of the Hub, such as "google/metricx-24-hybrid-large-v2p6", or from a folder.

        Args:
            name: the repository or folder.
            version: 23 or 24. By default the name says it.
            tokenizer: the repository or folder of mT5's tokenizer.
            device: where it computes, in float32.

        Raises:
            UserError: if the name does not say the version, or the weights are no MetricX model.
        """
        if version is None:
            version = next((known for known in MOST_TOKENS if f"metricx-{known}" in str(name).lower()), None)
        if version not in MOST_TOKENS:
            raise UserError(f"{name} does not say which MetricX it is. Give the version, 23 or 24.")

        with readable_weights(name):
            model, report = MT5ForConditionalGeneration.from_pretrained(
                name, dtype=torch.float32, trust_remote_code=False, output_loading_info=True
            )

        # Transformers would tie a missing output to the embeddings, and every score would be wrong.
        is_tied = model.lm_head.weight is model.shared.weight
        if report["missing_keys"] or report["mismatched_keys"] or is_tied or model.config.vocab_size <= SCORE_TOKEN:
            raise UserError(f"{name} is no MetricX model, or it is incomplete: it lacks mT5's weights or an output.")

        read_by = AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=False)
        return cls(model.to(device), read_by, version)

    @torch.inference_mode()
    def score(
        self,
        sources: Sequence[str],
        translations: Sequence[str],
        references: Sequence[str] | None = None,
        *,
        batch_size: int = 8,
        progress: bool = False,
    ) -> list[float]:
        """Return the score of each translation, 0 to 25. Lower is better.

        Args:
            sources: the source of each translation.
            translations: the translations.
            references: a reference for each, or None for a score without references. A model of MetricX-23 is made for
                one of both: those with "qe" in their names need no references.
            batch_size: translations that are scored at a time.
            progress: whether a bar is shown.

        Raises:
            UserError: if there are no translations, or the numbers of segments differ.
        """
        check_segments(sources, translations, references)
        inputs = []
        for index, translation in enumerate(translations):
            reference = None if references is None else references[index]
            inputs.append(self._input(sources[index], translation, reference))

        encoding = self._tokenizer(inputs, truncation=True, max_length=MOST_TOKENS[self._version])
        # MetricX was trained without the token for the end of a text.
        rows = [row[:-1] for row in encoding["input_ids"]]

        scores = [0.0] * len(rows)
        with tqdm(total=len(rows), unit=" segments", disable=not progress) as bar:
            for batch in batches_of_like_length([len(row) for row in rows], batch_size):
                scores_of_batch = self._score_rows([rows[index] for index in batch])
                for index, score in zip(batch, scores_of_batch, strict=True):
                    scores[index] = score
                bar.update(len(batch))
        return scores

    def _input(self, source: str, translation: str, reference: str | None) -> str:
        """Return the text that the model reads."""
        if self._version == 24:
            text = f"source: {source} candidate: {translation}"
            return text if reference is None else f"{text} reference: {reference}"
        other = f"source: {source}" if reference is None else f"reference: {reference}"
        return f"candidate: {translation} {other}"

    def _score_rows(self, rows: Sequence[Sequence[int]]) -> list[float]:
        padded = self._tokenizer.pad({"input_ids": [list(row) for row in rows]}, return_tensors="pt")
        padded = padded.to(self._model.device)
        first = torch.zeros(len(rows), 1, dtype=torch.long, device=self._model.device)
        logits = self._model(**padded, decoder_input_ids=first).logits
        return logits[:, 0, SCORE_TOKEN].clamp(0, WORST).tolist()
