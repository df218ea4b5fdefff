"""The engine: a snapshot of a model that decodes as the model's `generate()` does, sooner."""

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from .families import ADAPTERS
from .search import Settings, Translation, in_order, search
from .weights import Fingerprint, UnsupportedModelError


class Engine:
    """A snapshot of a translation model, for decoding.

    Weights that change later need a new engine: this one refuses to go on.

    Args:
        model: a [`MarianMTModel`], or a translation model of this package, in float32, on a CPU and in evaluation mode.

    Raises:
        UnsupportedModelError: if the model is of another class or dtype, or something in it has been replaced.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        if type(model) not in ADAPTERS:
            known = ", ".join(kind.__name__ for kind in ADAPTERS)
            raise UnsupportedModelError(f"the model is a {type(model).__name__}; the engine knows {known}")
        if model.device.type != "cpu":
            raise UnsupportedModelError(f"the model is on {model.device}; the engine decodes on a CPU")
        kinds = {(parameter.dtype, parameter.device) for parameter in model.parameters()}
        if len(kinds) > 1 or model.dtype != torch.float32:
            found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
            raise UnsupportedModelError(f"the weights are {found}; the engine needs float32 on one device")
        self._fingerprint = Fingerprint(model)
        with torch.no_grad():
            self._adapter = ADAPTERS[type(model)](model)

    @property
    def vocabulary(self) -> int:
        """The number of words that can be written."""
        return self._adapter.vocabulary.size

    def is_of(self, model: PreTrainedModel) -> bool:
        """Whether this is a snapshot of `model` as it is."""
        return self._fingerprint.is_of(model)

    @torch.no_grad()
    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> ModelOutput:
        """Return the encoder's output for sources `[sentences, source]`."""
        self._check()
        return self._adapter.encoder(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)

    def translate(
        self, encoded: ModelOutput, attention_mask: Tensor | None, settings: Settings, limits: Tensor
    ) -> list[Translation]:
        """Translate sentences.

        Args:
            encoded: output of the encoder.
            attention_mask: of the sources, `[sentences, source]`.
            settings: how to search.
            limits: of the new tokens of every sentence, `[sentences]`.

        Raises:
            RuntimeError: if the weights of the model have changed.
            ValueError: if the model is in training mode.
        """
        self._check()
        with torch.inference_mode():
            decoding = self._adapter.begin(encoded, attention_mask, settings.num_beams)
            translations = in_order(search(decoding, self._adapter.vocabulary, settings, limits))
        # Copies, which autograd takes as it does any tensor.
        return [Translation(*(part if part is None else part.clone() for part in each)) for each in translations]

    def _check(self) -> None:
        if not self._fingerprint.is_unchanged():
            raise RuntimeError("the model's weights have changed since this engine was made; make a new one")
        if self._adapter.encoder.training:
            raise ValueError("the model is in training mode, in which it drops units; call eval() first")
