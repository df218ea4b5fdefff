"""COMET, CometKiwi and XCOMET: scores of translations by trained models, read from their published checkpoints.

The package unbabel-comet cannot be installed next to Transformers 5. A repository has `hparams.yaml` and
`checkpoints/model.ckpt`. The tokenizer and the encoder's configuration come from the model that these settings name.
Nothing is read that could run code.

Sources: Rei et al. 2020 and 2022 (COMET, CometKiwi), Guerreiro et al. 2024 (XCOMET).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub import snapshot_download
from torch import Tensor, nn
from tqdm import tqdm
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from hf_capsule_mt.errors import UserError

from .comet_networks import ENCODERS, JOINT, SEVERITIES, VECTORS, CometNetwork

KINDS = (*VECTORS, *JOINT)
"""The networks that are known, by COMET's `class_identifier`."""
MOST_PENALTIES = 25
"""A translation with as many penalties has the score 0."""
XCOMET_WEIGHTS = {"source": 0.12, "reference": 0.33, "both": 0.33}
"""How much the scores of XCOMET's three inputs count: the translation beside the source, the reference, and both."""
XCOMET_SPAN_WEIGHT = 0.22
"""How much the score of its error spans counts."""
XCOMET_TAG_WEIGHTS = (0.1667, 0.3333, 0.5)
"""How much the tags of the three inputs count."""
NOT_USED = ("position_ids", "dropout_mask", "dropout_fill", "pooler.dense.weight", "pooler.dense.bias")
"""How the names of tensors end that older checkpoints have, and that no score needs."""


@dataclass(frozen=True)
class ErrorSpan:
    """Words of a translation that XCOMET takes for an error."""

    text: str
    start: int
    """The first character of the span in the translation."""
    end: int
    """The character behind it."""
    severity: str
    """"minor", "major" or "critical"."""
    confidence: float
    """The mean probability of the tags, 0 to 1."""


@dataclass(frozen=True)
class CometScores:
    """Scores of translations, about 0 to 1. Higher is better."""

    scores: list[float]
    spans: list[list[ErrorSpan]] | None = None
    """The errors of each translation, from XCOMET only."""

    @property
    def mean(self) -> float:
        """The score of the corpus: the mean over its segments."""
        return sum(self.scores) / len(self.scores)


class CometScorer:
    """A COMET model that scores translations. [`CometScorer.from_pretrained`] makes one.

    Args:
        name: the repository or folder.
        network: the network.
        tokenizer: the encoder's tokenizer.
        kind: COMET's `class_identifier`.
        segments: which of "mt", "src" and "ref" a joint text has.
    """

    def __init__(
        self,
        name: str,
        network: CometNetwork,
        tokenizer: PreTrainedTokenizerBase,
        kind: str,
        segments: Sequence[str],
    ) -> None:
        self.name = name
        self._network = network.eval()
        self._tokenizer = tokenizer
        self._kind = kind
        self._segments = tuple(segments)
        # XLM-R counts positions from the token id of its padding on.
        self._longest = network.encoder.model.config.max_position_embeddings - 2

    @classmethod
    def from_pretrained(cls, name: str | Path, device: str | torch.device = "cpu") -> "CometScorer":
        """Load a model of a repository of the Hub, such as "Unbabel/wmt22-comet-da", or from a folder.

        Args:
            name: the repository or folder.
            device: where it computes, in float32.

        Raises:
            UserError: if it is no COMET model, is damaged, has weights that only a pickle with code could read, or has
                a network or encoder that is not known here.
        """
        folder = Path(name)
        if not folder.is_dir():
            files = ["hparams.yaml", "checkpoints/model.ckpt"]
            folder = Path(snapshot_download(str(name), allow_patterns=files))

        kind, settings, weights = _read_checkpoint(folder)
        encoder = settings["pretrained_model"]
        config = AutoConfig.from_pretrained(encoder, trust_remote_code=False)
        network = CometNetwork(kind, settings, config)
        _load_weights(network, weights, folder)

        tokenizer = AutoTokenizer.from_pretrained(encoder, trust_remote_code=False)
        segments = settings.get("input_segments", ("mt", "src", "ref"))
        return cls(str(name), network.to(device), tokenizer, kind, segments)

    @property
    def needs_references(self) -> bool:
        """Whether it cannot score without references."""
        return self._kind == "regression_metric" or self._segments == ("mt", "ref")

    @torch.inference_mode()
    def score(
        self,
        sources: Sequence[str],
        translations: Sequence[str],
        references: Sequence[str] | None = None,
        *,
        batch_size: int = 16,
        progress: bool = False,
    ) -> CometScores:
        """Score translations. Texts that are too long are cut, as COMET does.

        Args:
            sources: the source of each translation.
            translations: the translations.
            references: a reference for each. Models that need none ignore them, but XCOMET reads them if it has them.
            batch_size: translations that are scored at a time.
            progress: whether a bar is shown.

        Raises:
            UserError: if there are no translations, the numbers of segments differ, or references are missing.
        """
        check_segments(sources, translations, references)
        if references is None and self.needs_references:
            raise UserError(f"{self.name} compares with references. Give them, or name a model such as CometKiwi.")

        columns = {"mt": translations, "src": sources}
        if references is not None:
            columns["ref"] = references

        lengths = [len(translation) + len(source) for translation, source in zip(translations, sources, strict=True)]
        scores = [0.0] * len(translations)
        spans: list[list[ErrorSpan]] = [[] for _ in translations]

        with tqdm(total=len(translations), unit=" segments", disable=not progress) as bar:
            for batch in batches_of_like_length(lengths, batch_size):
                texts = {}
                for side, column in columns.items():
                    texts[side] = [column[index] for index in batch]
                batch_scores, batch_spans = self._score_batch(texts)
                for place, index in enumerate(batch):
                    scores[index] = batch_scores[place]
                    spans[index] = batch_spans[place]
                bar.update(len(batch))
        return CometScores(scores, spans if self._kind == "xcomet_metric" else None)

    def _score_batch(self, texts: Mapping[str, list[str]]) -> tuple[list[float], list[list[ErrorSpan]]]:
        """Return the score of each text of a batch, and its error spans."""
        encoded = {side: self._encode(lines) for side, lines in texts.items()}
        if self._kind == "xcomet_metric":
            return self._explain(texts["mt"], encoded)

        if self._kind == "unified_metric":
            of_inputs = [scores for scores, _ in self._joint(encoded)]
            scores = torch.stack(of_inputs).mean(0)
        else:
            sides = ["src", "mt"]
            if self._kind == "regression_metric":
                sides.append("ref")
            vectors = [self._sentence(encoded[side]) for side in sides]
            scores = self._network.compare(*vectors)
        return scores.tolist(), [[] for _ in texts["mt"]]

    def _encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the token ids of lines, each as `<s> ... </s>`, cut two tokens before the model's end."""
        encoding = self._tokenizer(list(lines), truncation=True, max_length=self._longest - 2)
        return encoding["input_ids"]

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return token ids `[rows, tokens]` and the mask of tokens that are none of the padding."""
        token_ids = {"input_ids": [list(row) for row in rows]}
        padded = self._tokenizer.pad(token_ids, return_tensors="pt").to(self._network.device)
        return padded["input_ids"], padded["attention_mask"]

    def _sentence(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return one vector for each sentence, `[rows, width]`."""
        ids, mask = self._padded(rows)
        return self._network.sentence(ids, mask, self._tokenizer.pad_token_id)

    def _joint(self, encoded: Mapping[str, list[list[int]]]) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield scores `[rows]` and tags `[rows, tokens, tags]` of each joint input.

        With sources and references there are three: beside the source, beside the reference, and beside both.
        """
        others = [side for side in ("src", "ref") if side in encoded and side in self._segments]
        inputs = [[side] for side in others]
        if len(others) == 2:
            inputs.append(others)
        for sides in inputs:
            rows = list(encoded["mt"])
            for side in sides:
                rows = [self._joined(row, other) for row, other in zip(rows, encoded[side], strict=True)]
            ids, mask = self._padded([row[: self._longest] for row in rows])
            yield self._network.joint(ids, mask)

    def _joined(self, first: list[int], second: list[int]) -> list[int]:
        """Return `<s> first </s></s> second </s>`."""
        end = self._tokenizer.eos_token_id
        return [*first[:-1], end, end, *second[1:-1], end]

    def _explain(
        self, translations: Sequence[str], encoded: Mapping[str, list[list[int]]]
    ) -> tuple[list[float], list[list[ErrorSpan]]]:
        """Return XCOMET's scores, which count its error spans, and these spans."""
        results = list(self._joint(encoded))
        scores = [of_input.clamp(max=1.0) for of_input, _ in results]
        tags = [of_input.softmax(-1) for _, of_input in results]

        if len(results) == 3:
            regression = _weighted_sum(scores, list(XCOMET_WEIGHTS.values()))
            # The inputs have other lengths, but all begin with the translation.
            shortest = min(of_input.shape[1] for of_input in tags)
            beginnings = [of_input[:, :shortest] for of_input in tags]
            probabilities = _weighted_sum(beginnings, XCOMET_TAG_WEIGHTS)
        else:
            regression = scores[0] * sum(XCOMET_WEIGHTS.values())
            probabilities = tags[0]

        totals = []
        spans = []
        for row, translation in enumerate(translations):
            token_ids = encoded["mt"][row]
            of_row = self._spans(translation, token_ids, probabilities[row, : len(token_ids)])
            spans.append(of_row)
            totals.append(regression[row].item() + XCOMET_SPAN_WEIGHT * span_score(of_row))
        return totals, spans

    def _spans(self, translation: str, token_ids: Sequence[int], probabilities: Tensor) -> list[ErrorSpan]:
        """Return the runs of tokens that are tagged as errors, by the probabilities `[tokens, tags]`.

        A run has the severity of its first token. A run that reaches the last token is no span, as in COMET.
        """
        encoding = self._tokenizer(
            translation, truncation=True, max_length=self._longest - 2, return_offsets_mapping=True
        )
        places = encoding["offset_mapping"]
        best = probabilities.max(-1)
        severities = list(SEVERITIES)

        spans: list[ErrorSpan] = []
        begin = None
        for index, tag in enumerate(best.indices.tolist()):
            if tag and begin is None:
                begin = index
                severity = severities[tag - 1]
            elif not tag and begin is not None:
                start, _ = places[begin]
                _, end = places[index - 1]
                text = self._tokenizer.decode(token_ids[begin:index])
                confidence = best.values[begin:index].mean().item()
                spans.append(ErrorSpan(text, start, end, severity, confidence))
                begin = None
        return spans


def span_score(spans: Sequence[ErrorSpan]) -> float:
    """Return 1 for a translation without errors, and 0 for one with [`MOST_PENALTIES`] or more."""
    penalties = sum(SEVERITIES[span.severity] for span in spans)
    return 1 - min(penalties, MOST_PENALTIES) / MOST_PENALTIES


def _weighted_sum(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    total = torch.zeros_like(tensors[0])
    for tensor, weight in zip(tensors, weights, strict=True):
        total = total + weight * tensor
    return total


def _read_checkpoint(folder: Path) -> tuple[str, dict[str, Any], dict[str, Tensor]]:
    """Return the kind of the network, its settings, and its weights."""
    settings_file = folder / "hparams.yaml"
    weights_file = folder / "checkpoints" / "model.ckpt"
    for file in (settings_file, weights_file):
        if not file.is_file():
            raise UserError(f"{folder} is no COMET model: it has no {file.relative_to(folder)}.")

    try:
        written = yaml.safe_load(settings_file.read_text())
        # `weights_only` refuses everything that could run code.
        checkpoint = torch.load(weights_file, map_location="cpu", weights_only=True, mmap=True)
        settings = dict(checkpoint["hyper_parameters"])
        weights = checkpoint["state_dict"]
    except Exception as error:
        reason, _, _ = str(error).partition("\n")
        raise UserError(f"{folder} cannot be read as a COMET model: {reason}") from error

    kind = written.get("class_identifier")
    if kind not in KINDS:
        raise UserError(f"{folder} is a {kind}. Known are {', '.join(KINDS)}.")
    encoder = settings.get("encoder_model")
    if encoder not in ENCODERS:
        raise UserError(f"{folder} reads texts with {encoder}. Known are {', '.join(ENCODERS)}.")

    if written.get("layer_transformation") == "sparsemax_patch":
        # These models say sparsemax, and were always run with softmax. Their authors mark them like this.
        settings["layer_transformation"] = "softmax"
    return kind, settings, weights


def _load_weights(network: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Load weights, all of them, and none that the network lacks."""
    try:
        missing, unexpected = network.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise UserError(f"The weights of {folder} do not fit its settings: {error}") from error
    unexpected = [name for name in unexpected if not name.endswith(NOT_USED)]
    if missing or unexpected:
        shown = ", ".join([*missing, *unexpected][:5])
        raise UserError(f"{folder} has other weights than its settings say: {shown}. It is incomplete or damaged.")


def check_segments(sources: Sequence[str], translations: Sequence[str], references: Sequence[str] | None) -> None:
    """Raise a UserError unless there are translations, and as many sources and references, if there are any."""
    if not translations:
        raise UserError("Nothing to score: there are no translations.")
    for name, texts in (("sources", sources), ("references", references)):
        if texts is not None and len(texts) != len(translations):
            raise UserError(f"There are {len(translations)} translations, but {len(texts)} {name}.")


def batches_of_like_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield the indices of each batch. Texts of like length make one, so that little is padded."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for begin in range(0, len(order), batch_size):
        yield order[begin : begin + batch_size]
