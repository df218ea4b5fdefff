"""Fields that several configurations have: those of guided routing, and those of the recurrent families."""

from dataclasses import dataclass, fields
from typing import ClassVar

from transformers import PreTrainedConfig

from .checks import MOST, MOST_STEPS, check_choice, check_fraction, check_not_negative, check_positive_integer
from .portable import PortableConfig

GUIDED_ROUTINGS = ("gdr", "classifier", "attention")


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

    guided_routing: str | None = None
    num_past_capsules: int = 2
    num_future_capsules: int = 2
    num_redundant_capsules: int = 2
    guided_capsule_dim: int = 256
    guided_routing_iterations: int = 3
    bow_loss_weight: float | int = 1.0
    bca_loss_weight: float | int = 1.0

    def _unread_guided_fields(self) -> set[str]:
        if self.guided_routing is None:
            return {field.name for field in fields(GuidedRoutingFields)} - {"guided_routing"}
        unread = set() if self.guided_routing == "gdr" else {"guided_routing_iterations"}
        return unread | ({"num_redundant_capsules"} if self.guided_routing == "attention" else set())

    def _validate_guided_routing(self) -> None:
        check_choice("guided_routing", self.guided_routing, (None, *GUIDED_ROUTINGS))
        for name in ("num_past_capsules", "num_future_capsules", "guided_capsule_dim"):
            check_positive_integer(name, getattr(self, name))
        check_positive_integer("guided_routing_iterations", self.guided_routing_iterations, MOST_STEPS)
        redundant = self.num_redundant_capsules
        if not isinstance(redundant, int) or isinstance(redundant, bool) or not 0 <= redundant <= MOST:
            raise ValueError(f"num_redundant_capsules is {redundant!r:.80}; allowed are integers of at least 0")
        for name in ("bow_loss_weight", "bca_loss_weight"):
            check_not_negative(name, getattr(self, name))


_OF_CAPSULES = (
    *("num_sentence_capsules", "routing_iterations", "position_aware_routing", "share_routing_weights"),
    "separable_scoring",
)
# What follows the last iteration has no effect: one compares nothing, and has one map.
_OF_SEVERAL_ITERATIONS = ("share_routing_weights", "separable_scoring")


class RecurrentConfig(PortableConfig, PreTrainedConfig):
    """Fields of a recurrent encoder-decoder with one width and one vocabulary; each family describes its own.

    Raises:
        ValueError: if a value is not allowed; the message names the field, the value and what is allowed.
    """

    sentence_aggregations: ClassVar[tuple[str | None, ...]] = ("capsule", "pooling")
    """Allowed values of `sentence_aggregation`."""
    positive_integers: ClassVar[tuple[str, ...]] = (
        "vocab_size",
        "d_model",
        "encoder_layers",
        "num_sentence_capsules",
        "routing_iterations",
    )
    """Fields that are integers of at least 1."""
    switches: ClassVar[tuple[str, ...]] = (
        "position_aware_routing",
        "share_routing_weights",
        "separable_scoring",
        "tie_word_embeddings",
        "use_cache",
    )
    """Fields that are True or False."""
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
    sentence_aggregation: str | None = "capsule"
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

    def check_fields(self) -> None:
        """Check the fields, as [`PortableConfig.check_fields`] does."""
        for name in self.positive_integers:
            most = MOST_STEPS if name.endswith(("_layers", "_iterations")) else MOST
            check_positive_integer(name, getattr(self, name), most)
        if self.d_model % 2:
            raise ValueError(f"d_model is {self.d_model}; allowed are even integers, half for each direction")
        check_choice("sentence_aggregation", self.sentence_aggregation, self.sentence_aggregations)
        for name in self.switches:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r:.80}; allowed are True and False")
        check_fraction("dropout", self.dropout)
        check_fraction("label_smoothing", self.label_smoothing)

    def unread_fields(self) -> set[str]:
        """Name the fields that no part of the model reads, as [`PortableConfig.unread_fields`] does."""
        if self.sentence_aggregation != "capsule":
            return set(_OF_CAPSULES)
        return set(_OF_SEVERAL_ITERATIONS) if self.routing_iterations == 1 else set()

    @property
    def num_sentence_vectors(self) -> int:
        """The vectors that a source sentence is aggregated to."""
        return {"capsule": self.num_sentence_capsules, "pooling": 4, None: 0}[self.sentence_aggregation]
