"""Fields that several configurations have: those of guided routing, and those of the recurrent families."""

from dataclasses import dataclass
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig


class CapsuleConfig:
    """For a [`PreTrainedConfig`] whose class is in this package, or in the Python files of a checkpoint."""

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build the configuration, as [`PreTrainedConfig.from_dict`] does.

        An installed class needs no remote code. With `custom_pipelines`, `pipeline()` would ask for it all the same.
        """
        if not cls.__module__.startswith("transformers_modules."):
            remote = ("auto_map", "custom_pipelines")
            config_dict = {name: value for name, value in config_dict.items() if name not in remote}
        return super().from_dict(config_dict, **kwargs)

    def validate_label_smoothing(self) -> None:
        """Refuse a share outside of [0, 1), whose loss would be wrong."""
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing is {self.label_smoothing}. Set a number in [0, 1).")


@dataclass(kw_only=True, init=False, repr=False, eq=False)
class GuidedRoutingFields:
    r"""
    For a [`PreTrainedConfig`]: PAST and FUTURE capsules (Zheng et al. 2019). They are on top of the decoder, whose
    states guide how the source words are assigned to them.

    Args:
        guided_routing (`str`, *optional*):
            How source words are told apart: `None` (not at all), `"gdr"` (guided dynamic routing, Algorithm 1), or one
            of the baselines of Fig. 6: a `"classifier"` of every word, or an `"attention"` each to PAST and FUTURE.
        num_past_capsules (`int`, *optional*, defaults to 2):
            Capsules of what is translated already.
        num_future_capsules (`int`, *optional*, defaults to 2):
            Capsules of what is not.
        num_redundant_capsules (`int`, *optional*, defaults to 2):
            Capsules of what is neither, which are routed to and then dropped; 0 for none. The classifier has one class
            for them, if there are any, and attention no use.
        guided_capsule_dim (`int`, *optional*, defaults to 256):
            Width of one capsule.
        guided_routing_iterations (`int`, *optional*, defaults to 3):
            Iterations of guided dynamic routing; in the first the decoder's state guides nothing.
        bow_loss_weight (`float`, *optional*, defaults to 1.0):
            Weight of the bag-of-words loss; with 0 the model is made without what only that loss needs.
        bca_loss_weight (`float`, *optional*, defaults to 1.0):
            Weight of the loss of bilingual content agreement; with 0 as above.
    """

    guided_routing: Literal["gdr", "classifier", "attention"] | None = None
    num_past_capsules: int = 2
    num_future_capsules: int = 2
    num_redundant_capsules: int = 2
    guided_capsule_dim: int = 256
    guided_routing_iterations: int = 3
    bow_loss_weight: float | int = 1.0
    bca_loss_weight: float | int = 1.0


@strict
class RecurrentConfig(CapsuleConfig, PreTrainedConfig):
    """Fields of a recurrent encoder-decoder with one width and one vocabulary. Each family describes its own."""

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

    @property
    def num_sentence_vectors(self) -> int:
        """The vectors that a source sentence is aggregated to."""
        return {"capsule": self.num_sentence_capsules, "pooling": 4, None: 0}[self.sentence_aggregation]
