"""The networks of COMET, CometKiwi and XCOMET, on Transformers' XLM-RoBERTa. Their weights have COMET's names."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, XLMRobertaModel, XLMRobertaXLModel

ENCODERS = {"XLM-RoBERTa": XLMRobertaModel, "XLM-RoBERTa-XL": XLMRobertaXLModel}
"""Transformers' models by the name of COMET's `encoder_model`."""
SEVERITIES = {"minor": 1, "major": 5, "critical": 10}
"""Penalties of an error span, as in MQM. XCOMET's tags have this order, after "no error"."""
VECTORS = {"regression_metric": 6, "referenceless_regression_metric": 4}
"""How many vectors a network compares, by COMET's `class_identifier`. The others read one."""
JOINT = ("unified_metric", "xcomet_metric")
"""Networks that read translation, source and reference as one text."""
_TINY = 1e-12
"""Is added to variances."""


class CometNetwork(nn.Module):
    """An encoder, the mix of its layers, and the networks that judge.

    Args:
        kind: COMET's `class_identifier`.
        settings: COMET's `hyper_parameters`.
        config: the configuration of the encoder.
    """

    def __init__(self, kind: str, settings: Mapping[str, Any], config: PreTrainedConfig) -> None:
        super().__init__()
        encoder = ENCODERS[settings["encoder_model"]]
        self.encoder = _Encoder(encoder(config, add_pooling_layer=False))
        self._layer = settings["sent_layer"] if kind in JOINT else settings["layer"]
        self._pool = settings.get("pool", "avg")
        self._word_layer = settings.get("word_layer")

        if self._layer == "mix":
            self.layerwise_attention = LayerMix(
                # The embeddings are a layer too.
                num_layers=config.num_hidden_layers + 1,
                is_sparse=settings["layer_transformation"] == "sparsemax",
                normalizes=settings["layer_norm"],
            )

        num_vectors = VECTORS.get(kind, 1)
        self.estimator = _Estimator(num_vectors * config.hidden_size, settings)

        self._has_tags = kind == "xcomet_metric" or bool(settings.get("word_level_training"))
        if self._has_tags:
            labels = settings.get("error_labels", tuple(SEVERITIES))
            self.hidden2tag = nn.Linear(config.hidden_size, len(labels) + 1)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.estimator.parameters()).device

    def sentence(self, ids: Tensor, mask: Tensor, padding: int) -> Tensor:
        """Return one vector for each text, `[rows, width]`.

        Args:
            ids: token ids, `[rows, tokens]`.
            mask: 1 where there is a token, `[rows, tokens]`.
            padding: the token id of the padding.
        """
        layers = self._layers(ids, mask)
        tokens = self._mixed(layers, mask)
        if self._pool == "default":
            return layers[-1][:, 0]
        if self._pool == "cls":
            return tokens[:, 0]

        is_padding = ids.eq(padding).unsqueeze(-1)
        if self._pool == "max":
            return tokens.masked_fill(is_padding, -torch.inf).amax(1)
        total = tokens.masked_fill(is_padding, 0.0).sum(1)
        return total / mask.sum(1, keepdim=True)

    def compare(self, source: Tensor, translation: Tensor, reference: Tensor | None = None) -> Tensor:
        """Return scores `[rows]` by the vectors `[rows, width]`, their products and their distances."""
        product = translation * source
        distance = (translation - source).abs()
        if reference is None:
            return self.estimator(torch.cat([translation, source, product, distance], dim=1))
        product_with_reference = translation * reference
        distance_from_reference = (translation - reference).abs()
        vectors = [translation, reference, product_with_reference, distance_from_reference, product, distance]
        return self.estimator(torch.cat(vectors, dim=1))

    def joint(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Read joint texts.

        Args:
            ids: token ids, `[rows, tokens]`.
            mask: 1 where there is a token, `[rows, tokens]`.

        Returns:
            Scores `[rows]` by the first token, and logits of tags `[rows, tokens, tags]`, or None without tags.
        """
        layers = self._layers(ids, mask)
        first_token = self._mixed(layers, mask)[:, 0]
        tags = None
        if self._has_tags:
            tags = self.hidden2tag(layers[self._word_layer])
        return self.estimator(first_token), tags

    def _layers(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        output = self.encoder.model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        return output.hidden_states

    def _mixed(self, layers: Sequence[Tensor], mask: Tensor) -> Tensor:
        if self._layer == "mix":
            return self.layerwise_attention(layers, mask)
        return layers[self._layer]


class LayerMix(nn.Module):
    """A weighted mean of the encoder's layers (Rei et al. 2020, Section 2.2).

    With weights s_l from scores, layers h_l and a factor gamma it is gamma * sum over l of s_l h_l.

    Args:
        num_layers: the number of layers.
        is_sparse: whether the weights are the sparsemax of the scores. Otherwise it is their softmax.
        normalizes: whether each layer is normalized over its sentence first.
    """

    def __init__(self, num_layers: int, is_sparse: bool, normalizes: bool) -> None:
        super().__init__()
        scores = [nn.Parameter(torch.zeros(1)) for _ in range(num_layers)]
        self.scalar_parameters = nn.ParameterList(scores)
        self.gamma = nn.Parameter(torch.ones(1))
        self._is_sparse = is_sparse
        self._normalizes = normalizes

    def forward(self, layers: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Return the mix `[rows, tokens, width]` of as many layers, by the mask `[rows, tokens]`."""
        scores = torch.cat(list(self.scalar_parameters))
        weights = sparsemax(scores) if self._is_sparse else scores.softmax(0)
        mix = torch.zeros_like(layers[0])
        for weight, layer in zip(weights, layers, strict=True):
            if self._normalizes:
                layer = normalized(layer, mask)
            mix = mix + weight * layer
        return self.gamma * mix


class _Encoder(nn.Module):
    """Holds the encoder under the name that checkpoints have."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


class _Estimator(nn.Module):
    """A feed-forward network for scores.

    In checkpoints its linear layers are 0, 3, 6 and so on, because a dropout follows each activation.
    """

    def __init__(self, width: int, settings: Mapping[str, Any]) -> None:
        super().__init__()
        activation = getattr(nn, settings["activations"].title())

        layers: list[nn.Module] = []
        for hidden in settings["hidden_sizes"]:
            layers.append(nn.Linear(width, hidden))
            layers.append(activation())
            layers.append(nn.Dropout(0.0))
            width = hidden
        layers.append(nn.Linear(width, 1))

        final_activation = settings.get("final_activation")
        if final_activation:
            layers.append(getattr(nn, final_activation.title())())
        self.ff = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores `[rows]` of inputs `[rows, width]`."""
        return self.ff(inputs).view(-1)


def sparsemax(scores: Tensor) -> Tensor:
    """Return the probabilities nearest to scores `[n]`. Many are 0 (Martins and Astudillo 2016, Algorithm 1)."""
    ordered = scores.sort(descending=True).values
    ranks = torch.arange(1, len(scores) + 1, device=scores.device)
    sums = ordered.cumsum(0)
    is_kept = 1 + ranks * ordered > sums
    num_kept = int(is_kept.sum())
    threshold = (sums[num_kept - 1] - 1) / num_kept
    return (scores - threshold).clamp(min=0)


def normalized(layer: Tensor, mask: Tensor) -> Tensor:
    """Normalize a layer by the mean and the variance of all numbers of a sentence.

    Args:
        layer: `[rows, tokens, width]`.
        mask: 1 where there is a token, `[rows, tokens]`.
    """
    is_token = mask.unsqueeze(-1).to(layer.dtype)
    width = layer.shape[-1]
    count = is_token.sum((1, 2), keepdim=True) * width
    mean = (layer * is_token).sum((1, 2), keepdim=True) / count
    differences = (layer - mean) * is_token
    variance = (differences**2).sum((1, 2), keepdim=True) / count
    return (layer - mean) / torch.sqrt(variance + _TINY)
