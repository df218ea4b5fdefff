"""What all families share: the forward pass of an encoder-decoder, and the language model head with its loss."""

from collections import OrderedDict
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple, logging

from .losses import label_smoothed_cross_entropy, linear_cross_entropy, rdrop_cross_entropy
from .outputs import OutputRouting, RoutedSeq2SeqLMOutput, RoutedSeq2SeqModelOutput
from .transformers_versions import CACHE, under_both_names


class UntiedEmbeddings:
    """A mixin that also resizes the decoder's embedding. Transformers resizes one embedding and the output layer."""

    def _resize_token_embeddings(self, new_num_tokens: int | None, *args: Any, **kwargs: Any) -> nn.Module:
        # Private methods of Transformers: the public `resize_token_embeddings` calls them, and cannot be told of a
        # second embedding.
        embeddings = super()._resize_token_embeddings(new_num_tokens, *args, **kwargs)
        config = self.config
        decoder = self.get_decoder()
        if not getattr(config, "share_encoder_decoder_embeddings", True):
            # A target with its own vocabulary is resized separately.
            return embeddings
        if not config.tie_word_embeddings:
            decoder.embed_tokens = self._get_resized_embeddings(decoder.embed_tokens, new_num_tokens, *args, **kwargs)
        if hasattr(config, "decoder_vocab_size"):
            config.decoder_vocab_size = embeddings.weight.shape[0]
        return embeddings


class EncoderDecoder(UntiedEmbeddings):
    """The forward pass of a model with an `encoder` and a `decoder`.

    Each family defines `_run_decoder`, and `_encoder_outputs`, which names the elements of a tuple.
    """

    def __init__(self, config: Any) -> None:
        # Fields may have changed since the configuration was made.
        config.validate()
        super().__init__(config)

    @can_return_tuple
    @under_both_names
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: ModelOutput | tuple[Tensor, ...] | None = None,
        cache: Any = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_routing: OutputRouting = False,
        output_guided_capsules: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> RoutedSeq2SeqModelOutput:
        """Run encoder and decoder.

        Args:
            input_ids: source token ids `[batch, source]`.
            attention_mask: `[batch, source]`, 1 for tokens and 0 for padding.
            decoder_input_ids: target token ids so far, `[batch, target]`.
            decoder_attention_mask: `[batch, target]`.
            encoder_outputs: the result of an earlier call of the encoder, instead of the source.
            cache: the decoder's cache. `past_key_values` is another name.
            inputs_embeds: embeddings `[batch, source, d_model]` instead of `input_ids`. With `scale_embedding`, the
                encoder of the Marian family expects them times sqrt(d_model).
            decoder_inputs_embeds: embeddings `[batch, target, d_model]` instead of `decoder_input_ids`.
            use_cache: whether to return the cache.
            output_routing: True returns the assignment of the last routing iteration, "all" those of every iteration.
            output_guided_capsules: whether to return `guided_states` and `guided_capsules`.
            **kwargs: `output_hidden_states`, `output_attentions`, and arguments of attention backends.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask, inputs_embeds, output_routing=output_routing, **kwargs
            )
        if not isinstance(encoder_outputs, ModelOutput):
            encoder_outputs = self._encoder_outputs(encoder_outputs)
        decoder_outputs = self._run_decoder(
            encoder_outputs,
            attention_mask,
            output_routing,
            output_guided_capsules,
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        encoder_heads = getattr(encoder_outputs, "head_routing", None) or {}
        decoder_heads = getattr(decoder_outputs, "head_routing", None) or {}
        return RoutedSeq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            **{CACHE: getattr(decoder_outputs, CACHE)},
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=getattr(encoder_outputs, "attentions", None),
            encoder_layer_routing=getattr(encoder_outputs, "layer_routing", None),
            decoder_layer_routing=decoder_outputs.layer_routing,
            source_layer_routing=getattr(encoder_outputs, "source_layer_routing", None),
            head_routing={**encoder_heads, **decoder_heads} or None,
            guided_routing=decoder_outputs.guided_routing,
            sentence_routing=getattr(encoder_outputs, "sentence_routing", None),
            guided_states=decoder_outputs.guided_states,
            guided_capsules=decoder_outputs.guided_capsules,
        )


class TranslationHead:
    """A mixin for a model with an encoder-decoder `model`, a projection `lm_head`, and `guided_losses` or None.

    Marian also has `final_logits_bias`, a bias of the logits, `[1, vocabulary]`.
    """

    @can_return_tuple
    @under_both_names
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: ModelOutput | tuple[Tensor, ...] | None = None,
        cache: Any = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_routing: OutputRouting = False,
        num_items_in_batch: Tensor | int | None = None,
        return_logits: bool = False,
        rdrop_alpha: float = 0.0,
        **kwargs: Unpack[TransformersKwargs],
    ) -> RoutedSeq2SeqLMOutput:
        """Run the model. With labels, also compute the loss.

        In training with labels there are no logits by default: the loss comes straight from the decoder's states, a few
        positions at a time.

        Args:
            labels: target token ids `[batch, target]`, -100 for padding. Shifted right, they are the default for
                `decoder_input_ids`.
            num_items_in_batch: the number of labels to divide the loss by, that of this call by default.
            return_logits: whether to return logits in training with labels too.
            rdrop_alpha: weight of the divergence in [`rdrop_cross_entropy`], for a batch that repeats its first half.

        The other arguments are those of [`EncoderDecoder.forward`], except for `output_guided_capsules`.
        """
        if labels is None and self.training and torch.is_grad_enabled():
            self._warn_of_a_bypassed_loss()
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
            if self.guided_losses is not None:
                kwargs["output_guided_capsules"] = True
        outputs: RoutedSeq2SeqModelOutput = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            encoder_outputs,
            cache,
            inputs_embeds,
            decoder_inputs_embeds,
            use_cache,
            output_routing,
            **kwargs,
        )
        logits = None
        if labels is None or not self.training or return_logits or not _is_bare(self.lm_head):
            logits = self._logits(outputs.last_hidden_state)
        losses = {}
        if labels is not None:
            losses = self._losses(logits, outputs, labels, num_items_in_batch, rdrop_alpha)
        # What only the losses and the head read is not returned.
        internal = ("last_hidden_state", "guided_states", "guided_capsules")
        others = {name: value for name, value in outputs.items() if name not in internal}
        return RoutedSeq2SeqLMOutput(**losses, logits=logits, **others)

    def _logits(self, states: Tensor) -> Tensor:
        """Return the scores of all tokens, `[batch, target, vocabulary]`."""
        logits = self.lm_head(states)
        if hasattr(self, "final_logits_bias"):
            logits = logits + self.final_logits_bias
        return logits

    def _warn_of_a_bypassed_loss(self) -> None:
        """Warn that the model's own losses are not trained, as with the `label_smoothing_factor` of a Trainer."""
        has_losses = self.config.label_smoothing or (self.guided_losses is not None and self.guided_losses.names)
        if has_losses and not torch.compiler.is_compiling():
            logging.get_logger(__name__).warning_once(
                f"{type(self).__name__} is trained without labels, so label_smoothing and the losses of capsules have "
                "no effect. Give it labels, and do not set label_smoothing_factor or compute_loss_func."
            )

    def _losses(
        self,
        logits: Tensor | None,
        outputs: RoutedSeq2SeqModelOutput,
        labels: Tensor,
        num_items_in_batch: Tensor | int | None,
        rdrop_alpha: float,
    ) -> dict[str, Tensor]:
        """Return the loss and its parts by name. The losses of capsules have weights in the configuration."""
        smoothing = self.config.label_smoothing
        is_bare = _is_bare(self.lm_head)
        bias = self.final_logits_bias.flatten() if hasattr(self, "final_logits_bias") else None
        states = outputs.last_hidden_state
        if rdrop_alpha:
            if not is_bare:
                raise ValueError("rdrop_alpha cannot be combined with an adapter or a hook on the output projection.")
            loss, divergence = rdrop_cross_entropy(
                states, self.lm_head.weight, labels, rdrop_alpha, bias, smoothing, num_items_in_batch
            )
            losses = {"lm_loss": (loss - rdrop_alpha * divergence).detach(), "rdrop_loss": divergence}
        elif logits is None:
            loss = linear_cross_entropy(states, self.lm_head.weight, labels, bias, smoothing, num_items_in_batch)
            losses = {"lm_loss": loss}
        else:
            loss = label_smoothed_cross_entropy(logits, labels, smoothing, num_items_in_batch)
            losses = {"lm_loss": loss}
        if self.guided_losses is not None:
            # A function, because hooks of accelerate would move a module among the arguments.
            projection = self.lm_head.weight if is_bare else lambda states: self.lm_head(states)
            guided_losses = self.guided_losses(
                outputs.guided_states, outputs.guided_capsules, labels, projection, num_items_in_batch
            )
            for name, guided_loss in guided_losses.items():
                losses[name] = guided_loss
                weight = getattr(self.config, f"{name}_weight")
                # The losses may be on different devices.
                loss = loss + weight * guided_loss.to(loss.device)
        return {"loss": loss, **losses}

    @torch.no_grad()
    def force_decode(self, sequences: Tensor, output_routing: OutputRouting = True, **source: Tensor) -> Any:
        """Run the model over translations that `generate()` returned.

        Args:
            sequences: `[batch * n, length]`, with n translations of each source.
            output_routing: True returns the assignment of the last routing iteration, "all" those of every iteration.
            **source: `input_ids` and `attention_mask` or other arguments of the encoder, `[batch, ...]` each.

        Returns:
            The model's output. Logits and assignments at target position t belong to the step that wrote
            `sequences[:, t + 1]`.

        Raises:
            ValueError: if the model has no such argument.
        """
        if unknown := source.keys() - signature(self.forward).parameters.keys():
            raise ValueError(f"{type(self).__name__} takes no {', '.join(sorted(unknown))}.")
        source = {name: value for name, value in source.items() if value is not None}
        num_sources = next(iter(source.values())).shape[0]
        translations_of_each = sequences.shape[0] // num_sources
        repeated = {name: value.repeat_interleave(translations_of_each, dim=0) for name, value in source.items()}
        # The last token predicts nothing.
        decoder_input_ids = sequences[:, :-1]
        return self(**repeated, decoder_input_ids=decoder_input_ids, use_cache=False, output_routing=output_routing)


# PyTorch has no public names for hooks. It keeps those of each kind in an ordered mapping, and nothing else there.
# torch.compile of old versions cannot read `vars` of a module, so the names are found before.
_HOOKS = tuple(name for name, value in vars(nn.Module()).items() if isinstance(value, OrderedDict))


def _is_bare(projection: nn.Module) -> bool:
    """Return whether a projection is only its weight, without adapter, bias or hook.

    Then the loss may read the weight and leave the module out.
    """
    if type(projection) is not nn.Linear or projection.bias is not None:
        return False
    has_hooks = any(getattr(projection, name) for name in _HOOKS)
    # accelerate replaces the method of the object.
    is_replaced = "forward" in projection.__dict__
    return not (has_hooks or is_replaced)
