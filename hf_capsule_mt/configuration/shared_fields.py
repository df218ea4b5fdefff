"""Fields that several configurations have: those of guided routing, and those of the recurrent families."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig


def check_smallest(config: PreTrainedConfig, smallest: int, names: tuple[str, ...]) -> None:
    """Refuse numbers that would fail as a riddle once data is read, or train something else without a word.

    Args:
        config: a configuration.
        smallest: the smallest number that is allowed.
        names: the fields to check.

    Raises:
        ValueError: if a field is below `smallest`, infinite or not a number.
    """
    for name in names:
        value = getattr(config, name)
        if not smallest <= value < math.inf:
            raise ValueError(f"{name} is {value}. Give {smallest} or more.")


SOURCE_FIELDS = ("auto_map", "custom_pipelines")
"""The fields of config.json that name the Python files of a checkpoint."""


def without_repository(references: Any) -> Any:
    """Return references to Python files without the repository they came from.

    Args:
        references: a reference such as "owner/name--modeling_rnmt.RNMTModel", or a dict or list with such.
    """
    if isinstance(references, dict):
        return {name: without_repository(value) for name, value in references.items()}
    if isinstance(references, list):
        return [without_repository(value) for value in references]
    return references.rpartition("--")[2]


class CapsuleConfig:
    """A mixin for a [`PreTrainedConfig`] of this package, or of the Python files in a checkpoint.

    A checkpoint names its Python files in the fields `SOURCE_FIELDS`. A class in such a file needs them. An installed
    class does not, but `pipeline()` would ask for `trust_remote_code` if it had them. It keeps them as
    `source_references`, and writes them again where the files are.
    """

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build the configuration, as [`PreTrainedConfig.from_dict`] does.

        Raises:
            ValueError: if the dict names a repository with code for attention, which Transformers could run.
        """
        for name in ("attn_implementation", "_attn_implementation"):
            if "/" in str(config_dict.get(name)):
                raise ValueError(
                    f"The configuration has {name} {config_dict[name]!r:.80}, a repository with code. Remove it. Give "
                    "attn_implementation to from_pretrained() if you trust that code."
                )

        if cls.__module__.startswith("transformers_modules."):
            return super().from_dict(config_dict, **kwargs)

        fields = {name: value for name, value in config_dict.items() if name not in SOURCE_FIELDS}
        loaded = super().from_dict(fields, **kwargs)
        # With `return_unused_kwargs` there are two results.
        config = loaded[0] if isinstance(loaded, tuple) else loaded
        config.source_references = {name: config_dict[name] for name in SOURCE_FIELDS if name in config_dict}
        return loaded

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, as [`PreTrainedConfig.to_dict`] does."""
        fields = super().to_dict()
        fields.pop("source_references", None)
        return fields

    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> None:
        """Save the configuration, as [`PreTrainedConfig.save_pretrained`] does.

        If the folder has the Python files of the model, the configuration names them.
        """
        attributes = {name: getattr(self, name) for name in SOURCE_FIELDS if hasattr(self, name)}
        references = attributes or self._references_in(Path(save_directory))
        for name, value in references.items():
            setattr(self, name, without_repository(value))

        try:
            super().save_pretrained(save_directory, *args, **kwargs)
        finally:
            for name in SOURCE_FIELDS:
                if name in attributes:
                    setattr(self, name, attributes[name])
                elif hasattr(self, name):
                    delattr(self, name)

    def _references_in(self, folder: Path) -> dict[str, Any]:
        """Return the references, if the Python files that they name are in a folder."""
        references = getattr(self, "source_references", {})
        for reference in references.get("auto_map", {}).values():
            module = without_repository(reference).partition(".")[0]
            if not (folder / f"{module}.py").is_file():
                return {}
        return references

    def validate_label_smoothing(self) -> None:
        """Refuse a value outside of [0, 1), because the loss would be wrong."""
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing is {self.label_smoothing}. Set a number in [0, 1).")


@dataclass(kw_only=True, init=False, repr=False, eq=False)
class GuidedRoutingFields:
    r"""
    A mixin for a [`PreTrainedConfig`]: PAST and FUTURE capsules (Zheng et al. 2019) on top of the decoder. The states
    of the decoder guide how source tokens are assigned to them.

    Args:
        guided_routing (`str`, *optional*):
            How source tokens are divided: `None` (not at all), `"gdr"` (guided dynamic routing, Algorithm 1), or one of
            the baselines of Fig. 6: a `"classifier"` of every token, or an `"attention"` each to PAST and FUTURE.
        num_past_capsules (`int`, *optional*, defaults to 2):
            Capsules of what is already translated.
        num_future_capsules (`int`, *optional*, defaults to 2):
            Capsules of what is not yet translated.
        num_redundant_capsules (`int`, *optional*, defaults to 2):
            Redundant capsules take part in routing and are then dropped. If there are any, the classifier gets one
            extra class. Attention ignores them.
        guided_capsule_dim (`int`, *optional*, defaults to 256):
            Width of one capsule.
        guided_routing_iterations (`int`, *optional*, defaults to 3):
            Iterations of guided dynamic routing. The state of the decoder guides all but the first.
        bow_loss_weight (`float`, *optional*, defaults to 1.0):
            Weight of the bag-of-words loss. With 0 the model lacks the parameters that only this loss needs.
        bca_loss_weight (`float`, *optional*, defaults to 1.0):
            Weight of the bilingual content agreement loss. With 0 the same holds.
    """

    guided_routing: Literal["gdr", "classifier", "attention"] | None = None
    num_past_capsules: int = 2
    num_future_capsules: int = 2
    num_redundant_capsules: int = 2
    guided_capsule_dim: int = 256
    guided_routing_iterations: int = 3
    bow_loss_weight: float | int = 1.0
    bca_loss_weight: float | int = 1.0

    def validate_guided_routing(self) -> None:
        """Refuse capsules, widths and iterations below 1, and negative counts and weights."""
        sizes = ("num_past_capsules", "num_future_capsules", "guided_capsule_dim", "guided_routing_iterations")
        check_smallest(self, 1, sizes)
        check_smallest(self, 0, ("num_redundant_capsules", "bow_loss_weight", "bca_loss_weight"))


@strict
class RecurrentConfig(CapsuleConfig, PreTrainedConfig):
    r"""
    Fields of a recurrent encoder-decoder. Source and target share one vocabulary. [`CapsNMTConfig`] and [`RNMTConfig`]
    have other defaults for some of them.

    Args:
        vocab_size (`int`, *optional*, defaults to 32000):
            Number of tokens.
        d_model (`int`, *optional*, defaults to 512):
            Width of embeddings, states and capsules. It is even, because each direction of the encoder has half of it.
        encoder_layers (`int`, *optional*, defaults to 1):
            Bidirectional layers.
        dropout (`float`, *optional*, defaults to 0.3):
            Dropout probability, in [0, 1).
        sentence_aggregation (`str`, *optional*, defaults to `"capsule"`):
            How the states of the encoder become a fixed number of vectors: by `"capsule"` (dynamic routing, Wang et al.
            2019, Eq. 7-13) or by `"pooling"` (the largest, mean, first and last state, Eq. 2-4). The fields below
            belong to `"capsule"`.
        num_sentence_capsules (`int`, *optional*, defaults to 6):
            Output capsules M, each of width `d_model`.
        routing_iterations (`int`, *optional*, defaults to 3):
            Iterations of the routing.
        position_aware_routing (`bool`, *optional*, defaults to `True`):
            Whether sinusoidal positions are added to the states, and to the capsules when they are compared.
        share_routing_weights (`bool`, *optional*, defaults to `False`):
            Whether all iterations share one W_j (Eq. 8).
        separable_scoring (`bool`, *optional*, defaults to `True`):
            Whether a network g compares states and capsules (Eq. 14), instead of the message (Eq. 12).
        label_smoothing (`float`, *optional*, defaults to 0.0):
            Label smoothing of the model's own loss, in [0, 1).
        tie_word_embeddings (`bool`, *optional*, defaults to `True`):
            Whether encoder, decoder and output projection share one embedding.
        use_cache (`bool`, *optional*, defaults to `True`):
            Whether the model returns the states from which decoding continues.
    """

    keys_to_ignore_at_inference = [  # noqa: RUF012 (a class attribute of PreTrainedConfig, not a field)
        "cache",
        "past_key_values",
        "lm_loss",
        "sentence_routing",
    ]
    attribute_map = {"hidden_size": "d_model", "num_hidden_layers": "encoder_layers"}  # noqa: RUF012 (as above)

    vocab_size: int = 32000
    d_model: int = 512
    encoder_layers: int = 1
    dropout: float | int = 0.3
    sentence_aggregation: Literal["capsule", "pooling"] | None = "capsule"
    num_sentence_capsules: int = 6
    routing_iterations: int = 3
    position_aware_routing: bool = True
    share_routing_weights: bool = False
    separable_scoring: bool = True
    label_smoothing: float | int = 0.0
    tie_word_embeddings: bool = True
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = 2
    forced_eos_token_id: int | list[int] | None = None
    decoder_start_token_id: int | None = 0

    def validate_sizes(self) -> None:
        """Refuse layers, capsules and iterations below 1, an odd width, and a dropout outside of [0, 1)."""
        check_smallest(self, 1, ("vocab_size", "encoder_layers", "num_sentence_capsules", "routing_iterations"))
        if self.d_model < 2 or self.d_model % 2:
            raise ValueError(f"d_model is {self.d_model}. Give an even number, because each direction has half of it.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}. Give a number in [0, 1).")
