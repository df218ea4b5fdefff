"""A classifier of sentences on the encoder of the Marian family, as in the probing of Li et al. 2019 (section 5.1)."""

from dataclasses import dataclass

from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.bart.modeling_bart import BartClassificationHead
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple

from ..configuration.configuration_capsule_aggregated_marian import CapsuleAggregatedMarianConfig
from .modeling_capsule_aggregated_marian import CapsuleAggregatedMarianEncoder, CapsuleAggregatedMarianPreTrainedModel
from .outputs import OutputRouting, RoutedEncoderOutput
from .word_masks import mean_over_words, word_mask


@dataclass
class RoutedSequenceClassifierOutput(SequenceClassifierOutput):
    """[`SequenceClassifierOutput`] with the encoder's routing, as in [`RoutedSeq2SeqModelOutput`]."""

    encoder_layer_routing: Tensor | None = None
    head_routing: dict[str, Tensor] | None = None


class CapsuleAggregatedMarianEncoderModel(CapsuleAggregatedMarianPreTrainedModel):
    """The encoder without a decoder: it loads the encoder of a translation model."""

    _keys_to_ignore_on_load_unexpected = (
        r"^(model\.)?decoder\.",
        r"^(model\.)?shared\.",
        r"^lm_head\.",
        r"^final_logits_bias$",
        r"^(model\.)?guided_routing\.",
        r"^(model\.)?encoder\.guided_votes\.",
        r"^(model\.)?encoder\.source_aggregation\.",
        r"^guided_losses\.",
    )

    def __init__(self, config: CapsuleAggregatedMarianConfig) -> None:
        # Fields may have changed since the configuration was made.
        config.validate()
        super().__init__(config)
        # Translation checkpoints with one embedding store it only under this name.
        self._one_embedding = config.share_encoder_decoder_embeddings and config.tie_word_embeddings
        if self._one_embedding:
            self.shared = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
            self._tied_weights_keys = {"encoder.embed_tokens.weight": "shared.weight"}
        self.encoder = CapsuleAggregatedMarianEncoder(config)
        # Only a decoder reads these.
        self.encoder.guided_votes = None
        self.encoder.source_aggregation = None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding."""
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embedding."""
        self.encoder.embed_tokens = value
        if self._one_embedding:
            self.shared = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_routing: OutputRouting = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> RoutedEncoderOutput:
        """Encode a batch.

        Args:
            input_ids: token ids `[batch, source]`.
            attention_mask: `[batch, source]`, 1 for tokens and 0 for padding. By default there is no padding.
            inputs_embeds: embeddings `[batch, source, d_model]` instead of `input_ids`.
            output_routing: True returns the assignment of the last routing iteration, "all" those of every iteration.
            **kwargs: `output_hidden_states`, `output_attentions`, and arguments of attention backends.
        """
        return self.encoder(input_ids, attention_mask, inputs_embeds, output_routing=output_routing, **kwargs)


class CapsuleAggregatedMarianForSequenceClassification(CapsuleAggregatedMarianPreTrainedModel):
    """The encoder, the mean of its output over the tokens, and a classifier with one hidden layer.

    The paper uses `encoder_layers=3`. `num_labels` and `problem_type` are as in every Transformers classifier.
    """

    # The loss is the mean over a batch, even if the Trainer accumulates gradients.
    accepts_loss_kwargs = False

    def __init__(self, config: CapsuleAggregatedMarianConfig) -> None:
        super().__init__(config)
        self.model = CapsuleAggregatedMarianEncoderModel(config)
        self.classification_head = BartClassificationHead(
            config.d_model, config.d_model, config.num_labels, config.dropout
        )
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_routing: OutputRouting = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> RoutedSequenceClassifierOutput:
        """Classify a batch of sentences. With labels, also compute the loss.

        Args:
            input_ids: token ids `[batch, length]`.
            attention_mask: `[batch, length]`, 1 for tokens and 0 for padding.
            inputs_embeds: embeddings `[batch, length, d_model]` instead of `input_ids`.
            labels: classes `[batch]`.
            output_routing: True returns the assignment of the last routing iteration, "all" those of every iteration.
            **kwargs: `output_hidden_states`, `output_attentions`, and arguments of attention backends.
        """
        outputs = self.model(input_ids, attention_mask, inputs_embeds, output_routing, **kwargs)
        states = outputs.last_hidden_state
        # With several devices the states are on that of the last layer.
        mask = word_mask(None if attention_mask is None else attention_mask.to(states.device), states)
        logits = self.classification_head(mean_over_words(states, mask))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return RoutedSequenceClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            encoder_layer_routing=outputs.layer_routing,
            head_routing=outputs.head_routing,
        )
