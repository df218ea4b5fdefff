"""COMET, CometKiwi and XCOMET: scores of translations by trained models, read from their published checkpoints.

The package unbabel-comet cannot be installed next to Transformers 5. So its networks are built here, on Transformers'
XLM-RoBERTa. A repository has `hparams.yaml` and `checkpoints/model.ckpt`. The tokenizer and the encoder's configuration
come from the model that these settings name. Nothing is read that could run code.

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
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, XLMRobertaModel, XLMRobertaXLModel

from hf_capsule_mt.errors import UserError

ENCODERS = {"XLM-RoBERTa": XLMRobertaModel, "XLM-RoBERTa-XL": XLMRobertaXLModel}
"""Transformers' models by the name of COMET's `encoder_model`."""
KINDS = ("regression_metric", "referenceless_regression_metric", "unified_metric", "xcomet_metric")
"""The networks that are known, by COMET's `class_identifier`."""
SEVERITIES = {"minor": 1, "major": 5, "critical": 10}
"""Penalties of an error span, as in MQM. XCOMET's tags have this order, after "no error"."""
MOST_PENALTIES = 25
"""A translation with as many penalties has the score 0."""
XCOMET_WEIGHTS = {"source": 0.12, "reference": 0.33, "both": 0.33, "spans": 0.22}
"""How much each score counts in XCOMET's: those beside the source, the reference and both, and that of the spans."""
XCOMET_TAG_WEIGHTS = (0.1667, 0.3333, 0.5)
"""How much the tags of these three inputs count."""
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
    """A COMET model that scores translations. [`CometScorer.from_pretrained`] makes one."""

    def __init__(self, name: str, network: "_Network", tokenizer: Any, kind: str, segments: Sequence[str]) -> None:
        self.name = name
        self._network = network.eval()
        self._tokenizer = tokenizer
        self._kind = kind
        self._segments = tuple(segments)
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
            folder = Path(snapshot_download(str(name), allow_patterns=["hparams.yaml", "checkpoints/model.ckpt"]))
        kind, settings, weights = _read_checkpoint(folder)
        config = AutoConfig.from_pretrained(settings["pretrained_model"], trust_remote_code=False)
        network = _Network(kind, settings, config)
        _load_weights(network, weights, folder)
        tokenizer = AutoTokenizer.from_pretrained(settings["pretrained_model"], trust_remote_code=False)
        return cls(str(name), network.to(device), tokenizer, kind, settings.get("input_segments", ("mt", "src", "ref")))

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
        _check_segments(sources, translations, references)
        if references is None and self.needs_references:
            raise UserError(f"{self.name} compares with references. Give them, or name a model such as CometKiwi.")
        # Texts of like length make a batch, so that little is padded.
        lengths = [len(translation) + len(source) for translation, source in zip(translations, sources, strict=True)]
        order = sorted(range(len(translations)), key=lengths.__getitem__)
        scores = [0.0] * len(order)
        spans: list[list[ErrorSpan]] = [[] for _ in order]
        with tqdm(total=len(order), unit=" segments", disable=not progress) as bar:
            for begin in range(0, len(order), batch_size):
                batch = order[begin : begin + batch_size]
                texts = {
                    "mt": [translations[index] for index in batch],
                    "src": [sources[index] for index in batch],
                }
                if references is not None:
                    texts["ref"] = [references[index] for index in batch]
                batch_scores, batch_spans = self._score_batch(texts)
                for index, score, error_spans in zip(batch, batch_scores, batch_spans, strict=True):
                    scores[index] = score
                    spans[index] = error_spans
                bar.update(len(batch))
        return CometScores(scores, spans if self._kind == "xcomet_metric" else None)

    def _score_batch(self, texts: Mapping[str, list[str]]) -> tuple[list[float], list[list[ErrorSpan]]]:
        """Return the score of each text of a batch, and its error spans."""
        encoded = {side: self._encode(lines) for side, lines in texts.items()}
        if self._kind == "regression_metric":
            scores = self._network.compare(*(self._sentence(encoded[side]) for side in ("src", "mt", "ref")))
        elif self._kind == "referenceless_regression_metric":
            scores = self._network.compare(self._sentence(encoded["src"]), self._sentence(encoded["mt"]))
        elif self._kind == "unified_metric":
            scores = torch.stack([score for score, _ in self._joint(encoded)]).mean(0)
        else:
            return self._explain(texts["mt"], encoded)
        return scores.tolist(), [[] for _ in texts["mt"]]

    def _encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the token ids of lines, each as `<s> ... </s>`, cut two tokens before the model's end."""
        return self._tokenizer(list(lines), truncation=True, max_length=self._longest - 2)["input_ids"]

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return token ids `[rows, tokens]` and the mask of tokens that are none of the padding."""
        padded = self._tokenizer.pad({"input_ids": [list(row) for row in rows]}, return_tensors="pt")
        device = self._network.device
        return padded["input_ids"].to(device), padded["attention_mask"].to(device)

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
        scores = [score.clamp(max=1.0) for score, _ in results]
        tags = [tag.softmax(-1) for _, tag in results]
        weights = [XCOMET_WEIGHTS[name] for name in ("source", "reference", "both")]
        if len(results) == 3:
            # The inputs have other lengths, but all begin with the translation.
            shortest = min(tag.shape[1] for tag in tags)
            probabilities = sum(
                weight * tag[:, :shortest] for weight, tag in zip(XCOMET_TAG_WEIGHTS, tags, strict=True)
            )
            regression = sum(weight * score for weight, score in zip(weights, scores, strict=True))
        else:
            probabilities = tags[0]
            regression = sum(weights) * scores[0]
        spans = [
            self._spans(translation, row, probabilities[number, : len(row)])
            for number, (translation, row) in enumerate(zip(translations, encoded["mt"], strict=True))
        ]
        totals = [
            score + XCOMET_WEIGHTS["spans"] * _span_score(error_spans)
            for score, error_spans in zip(regression.tolist(), spans, strict=True)
        ]
        return totals, spans

    def _spans(self, translation: str, ids: Sequence[int], probabilities: Tensor) -> list[ErrorSpan]:
        """Return the runs of tokens that are tagged as errors, by the probabilities `[tokens, tags]`.

        A run has the severity of its first token. A run that reaches the last token is no span, as in COMET.
        """
        offsets = self._tokenizer(
            translation, truncation=True, max_length=self._longest - 2, return_offsets_mapping=True
        )
        places = offsets["offset_mapping"]
        best, tags = probabilities.max(-1)
        spans: list[ErrorSpan] = []
        begin = None
        for index, tag in enumerate(tags.tolist()):
            if tag and begin is None:
                begin = index
            elif not tag and begin is not None:
                severity = list(SEVERITIES)[int(tags[begin]) - 1]
                text = self._tokenizer.decode(ids[begin:index])
                confidence = best[begin:index].mean().item()
                spans.append(ErrorSpan(text, places[begin][0], places[index - 1][1], severity, confidence))
                begin = None
        return spans


class _LayerMix(nn.Module):
    """A weighted mean of the encoder's layers: gamma * sum over l of s_l h_l (Rei et al. 2020, Section 2.2)."""

    def __init__(self, num_layers: int, is_sparse: bool, normalizes: bool) -> None:
        super().__init__()
        self.scalar_parameters = nn.ParameterList(nn.Parameter(torch.zeros(1)) for _ in range(num_layers))
        self.gamma = nn.Parameter(torch.ones(1))
        self._is_sparse = is_sparse
        self._normalizes = normalizes

    def forward(self, layers: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Return the mix `[rows, tokens, width]` of as many layers, by the mask `[rows, tokens]`."""
        scores = torch.cat(list(self.scalar_parameters))
        weights = sparsemax(scores) if self._is_sparse else scores.softmax(0)
        mix = torch.zeros_like(layers[0])
        for weight, layer in zip(weights, layers, strict=True):
            mix = mix + weight * (_normalized(layer, mask) if self._normalizes else layer)
        return self.gamma * mix


class _Estimator(nn.Module):
    """A feed-forward network. Its linear layers are 0, 3, 6 and so on, for a dropout stands behind each activation."""

    def __init__(self, width: int, settings: Mapping[str, Any]) -> None:
        super().__init__()
        activation = getattr(nn, settings["activations"].title())
        layers: list[nn.Module] = []
        for hidden in settings["hidden_sizes"]:
            layers += [nn.Linear(width, hidden), activation(), nn.Dropout(0.0)]
            width = hidden
        layers.append(nn.Linear(width, 1))
        if settings.get("final_activation"):
            layers.append(getattr(nn, settings["final_activation"].title())())
        self.ff = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores `[rows]` of inputs `[rows, width]`."""
        return self.ff(inputs).view(-1)


class _Encoder(nn.Module):
    """Holds the encoder under the name that checkpoints have."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


class _Network(nn.Module):
    """An encoder, the mix of its layers, and the networks that judge. The names of its weights are COMET's."""

    def __init__(self, kind: str, settings: Mapping[str, Any], config: PreTrainedConfig) -> None:
        super().__init__()
        self.encoder = _Encoder(ENCODERS[settings["encoder_model"]](config, add_pooling_layer=False))
        self._layer = settings["sent_layer" if kind in ("unified_metric", "xcomet_metric") else "layer"]
        self._pool = settings.get("pool", "avg")
        if self._layer == "mix":
            is_sparse = settings["layer_transformation"] == "sparsemax"
            self.layerwise_attention = _LayerMix(config.num_hidden_layers + 1, is_sparse, settings["layer_norm"])
        vectors = {"regression_metric": 6, "referenceless_regression_metric": 4}.get(kind, 1)
        self.estimator = _Estimator(vectors * config.hidden_size, settings)
        self._word_layer = settings.get("word_layer")
        self._has_tags = kind == "xcomet_metric" or bool(settings.get("word_level_training"))
        if self._has_tags:
            labels = settings.get("error_labels", tuple(SEVERITIES))
            self.hidden2tag = nn.Linear(config.hidden_size, len(labels) + 1)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.estimator.ff[0].weight.device

    def sentence(self, ids: Tensor, mask: Tensor, padding: int) -> Tensor:
        """Return one vector for each row of token ids `[rows, tokens]`, `[rows, width]`."""
        layers = self._layers(ids, mask)
        tokens = self._mixed(layers, mask)
        if self._pool == "default":
            return layers[-1][:, 0]
        if self._pool == "cls":
            return tokens[:, 0]
        is_padding = ids.eq(padding).unsqueeze(-1)
        if self._pool == "max":
            return tokens.masked_fill(is_padding, -torch.inf).amax(1)
        return tokens.masked_fill(is_padding, 0.0).sum(1) / mask.sum(1, keepdim=True)

    def compare(self, source: Tensor, translation: Tensor, reference: Tensor | None = None) -> Tensor:
        """Return scores `[rows]` by the sentences' vectors `[rows, width]`, their products and differences."""
        by_source = [translation * source, (translation - source).abs()]
        if reference is None:
            return self.estimator(torch.cat([translation, source, *by_source], dim=1))
        by_reference = [translation * reference, (translation - reference).abs()]
        return self.estimator(torch.cat([translation, reference, *by_reference, *by_source], dim=1))

    def joint(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return scores `[rows]` by the first token, and logits of tags `[rows, tokens, tags]` if it has tags."""
        layers = self._layers(ids, mask)
        scores = self.estimator(self._mixed(layers, mask)[:, 0])
        return scores, self.hidden2tag(layers[self._word_layer]) if self._has_tags else None

    def _layers(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        return self.encoder.model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states

    def _mixed(self, layers: Sequence[Tensor], mask: Tensor) -> Tensor:
        return self.layerwise_attention(layers, mask) if self._layer == "mix" else layers[self._layer]


def sparsemax(scores: Tensor) -> Tensor:
    """Return the probabilities nearest to scores `[n]`. Many are 0 (Martins and Astudillo 2016, Algorithm 1)."""
    ordered = scores.sort(descending=True).values
    ranks = torch.arange(1, len(scores) + 1, device=scores.device)
    sums = ordered.cumsum(0)
    num_kept = int((1 + ranks * ordered > sums).sum())
    threshold = (sums[num_kept - 1] - 1) / num_kept
    return (scores - threshold).clamp(min=0)


def _normalized(layer: Tensor, mask: Tensor) -> Tensor:
    """Normalize a layer `[rows, tokens, width]` by the mean and variance over all numbers of a sentence."""
    real = mask.unsqueeze(-1).to(layer.dtype)
    count = real.sum((1, 2), keepdim=True) * layer.shape[-1]
    mean = (layer * real).sum((1, 2), keepdim=True) / count
    variance = (((layer * real - mean) * real) ** 2).sum((1, 2), keepdim=True) / count
    return (layer - mean) / torch.sqrt(variance + 1e-12)


def _span_score(spans: Sequence[ErrorSpan]) -> float:
    """Return 1 for a translation without errors, and 0 for one with [`MOST_PENALTIES`] or more."""
    penalties = sum(SEVERITIES[span.severity] for span in spans)
    return 1 - min(penalties, MOST_PENALTIES) / MOST_PENALTIES


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
        raise UserError(f"{folder} cannot be read as a COMET model: {str(error).partition(chr(10))[0]}") from error
    kind = written.get("class_identifier")
    if kind not in KINDS:
        raise UserError(f"{folder} is a {kind}. Known are {', '.join(KINDS)}.")
    if settings.get("encoder_model") not in ENCODERS:
        raise UserError(f"{folder} reads texts with {settings.get('encoder_model')}. Known are {', '.join(ENCODERS)}.")
    if written.get("layer_transformation") == "sparsemax_patch":
        # These models were trained to say sparsemax, and were always run with softmax. Their authors say so this way.
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


def _check_segments(sources: Sequence[str], translations: Sequence[str], references: Sequence[str] | None) -> None:
    if not translations:
        raise UserError("Nothing to score: there are no translations.")
    for name, texts in (("sources", sources), ("references", references)):
        if texts is not None and len(texts) != len(translations):
            raise UserError(f"There are {len(translations)} translations, but {len(texts)} {name}.")
