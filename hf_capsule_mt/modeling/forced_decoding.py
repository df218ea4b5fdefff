"""A model's view of translations that there are already: its own, or a reference."""

from typing import Any

import torch
from torch import Tensor

from .outputs import OutputRouting


class ForcedDecoding:
    """For an encoder-decoder with a language model head, whose forward takes `output_routing`."""

    @torch.no_grad()
    def force_decode(self, sequences: Tensor, output_routing: OutputRouting = True, **source: Tensor) -> Any:
        """Run the model over translations, as `generate()` returns them.

        Args:
            sequences: `[batch * n, length]`, n translations of every source one after the other; each begins with what
                decoding starts from, and is filled up at its end.
            output_routing: True for the assignment of the last routing iteration, "all" for that of every iteration.
            **source: `input_ids` and `attention_mask`, or what else the encoder takes, `[batch, ...]` each.

        Returns:
            The model's output: what it has at target position t, logits and assignments, is of the step that wrote
            `sequences[:, t + 1]`.

        Raises:
            ValueError: if the number of translations is no multiple of that of sources, or the model is in training
                mode, whose dropout no step had.
        """
        if self.training:
            raise ValueError("the model is in training mode, in which dropout changes what it finds; call eval() first")
        sources = next(iter(source.values())).shape[0]
        if sequences.shape[0] % sources:
            raise ValueError(
                f"sequences has {sequences.shape[0]} rows for {sources} sources; give as many translations of each"
            )
        each = sequences.shape[0] // sources
        source = {name: value.repeat_interleave(each, dim=0) for name, value in source.items()}
        return self(**source, decoder_input_ids=sequences[:, :-1], use_cache=False, output_routing=output_routing)

    def _validate_model_kwargs(self, model_kwargs: dict[str, Any]) -> None:
        """Check what `generate()` hands to the model, and refuse what its output would leave out."""
        if routing := model_kwargs.get("output_routing"):
            raise ValueError(
                f"output_routing is {routing!r}, and generate() returns no routing; leave it out, and "
                "give what is generated to force_decode(sequences, input_ids=..., attention_mask=...)"
            )
        super()._validate_model_kwargs(model_kwargs)
