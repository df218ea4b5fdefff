"""The engine: a snapshot of a model that decodes as the model's `generate()` does, faster."""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from .adapter import Adapter
from .decoder_weights import Fingerprint, UnsupportedModelError, check_plain, with_products
from .marian_adapter import MarianAdapter
from .precisions import PRECISIONS, check_precision, precisions_on
from .recurrent_adapters import CapsNMTAdapter, RNMTAdapter
from .search import BeamSearch, GreedySearch, Settings, Translation

ADAPTERS: dict[str, type[Adapter]] = {
    "marian": MarianAdapter,
    "capsule_aggregated_marian": MarianAdapter,
    "rnmt": RNMTAdapter,
    "caps_nmt": CapsNMTAdapter,
}
"""The adapters that decode models, by `model_type`."""


def adapter_for(model: nn.Module) -> type[Adapter]:
    """Return the adapter that decodes a model.

    Raises:
        UnsupportedModelError: if none does, or not where the weights are or in their precision.
    """
    adapter = ADAPTERS.get(getattr(getattr(model, "config", None), "model_type", None))
    if adapter is None or type(model) not in adapter.models:
        raise UnsupportedModelError(f"the engine does not know the model {type(model).__name__}")
    if any(map(is_traceable_wrapper_subclass, model.parameters())):
        raise UnsupportedModelError("the model has a weight that is made of other tensors, as quantized ones are")
    kinds = {(parameter.dtype, parameter.device) for parameter in model.parameters()}
    if len(kinds) > 1 or model.dtype != torch.float32 or not precisions_on(model.device):
        found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise UnsupportedModelError(f"the weights are {found}; the engine needs float32, on a CPU or one CUDA device")
    return adapter


class Engine:
    """A snapshot of a translation model, for decoding. It refuses to go on after weights have changed.

    Args:
        model: a [`MarianMTModel`], or a translation model of this package, in float32, in evaluation mode, on a CPU or
            a CUDA device.
        dtype: precision of the products, "float32", "bfloat16" or, on a CPU, "int8"; all else is float32.

    Raises:
        UnsupportedModelError: if the model is of another class or dtype, or something in it has been replaced.
        ValueError: if there is no such precision, or not on the device.
    """

    def __init__(self, model: PreTrainedModel, dtype: str = "float32") -> None:
        check_precision(dtype)
        adapter = adapter_for(model)
        if dtype not in precisions_on(model.device):
            raise ValueError(f"dtype {dtype} does not exist on {model.device}.")
        self._fingerprint = Fingerprint(model)
        self._make = PRECISIONS[dtype]
        self._name, self._dtype = model.name_or_path, dtype
        self.positions: float = getattr(model.config, "max_position_embeddings", None) or float("inf")
        """The most tokens that a source, and a translation, can have."""
        # Copies that are made in inference mode could not be written to outside of it.
        with torch.inference_mode(False), torch.no_grad(), torch.autocast(model.device.type, enabled=False):
            self._adapter = adapter(model, self._make)

    @property
    def num_target_words(self) -> int:
        """The number of tokens that can be written."""
        return self._adapter.vocabulary.size

    @property
    def device(self) -> torch.device:
        """Where the engine decodes."""
        return self._adapter.vocabulary.device

    def is_of(self, model: PreTrainedModel) -> bool:
        """Whether this is a snapshot of `model` as it is; see [`Fingerprint`]."""
        return self._fingerprint.is_of(model)

    @cached_property
    def _encoder(self) -> nn.Module:
        encoder = self._adapter.encoder
        try:
            check_plain(*encoder.modules())
        except UnsupportedModelError:
            # With hooks or LoRA adapters, whose settings may change.
            return encoder
        return with_products(encoder, self._make)

    @torch.no_grad()
    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> ModelOutput:
        """Return the encoder's output for sources `[sentences, source]`, in the engine's precision: autocast is off."""
        self._check()
        with torch.autocast(self.device.type, enabled=False):
            return self._encoder(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)

    def translate(
        self, encoded: ModelOutput, attention_mask: Tensor | None, settings: Settings, limits: Sequence[int]
    ) -> list[Translation]:
        """Translate sentences, in the engine's precision: autocast is off.

        Args:
            encoded: output of the encoder.
            attention_mask: of the sources, `[sentences, source]`.
            settings: how to search.
            limits: of the new tokens of every sentence.

        Returns:
            The translations, on a CPU.

        Raises:
            RuntimeError: if the weights of the model have changed.
            ValueError: if the model is in training mode, or overflows.
        """
        self._check()
        vocabulary = self._adapter.vocabulary.for_one_call()
        with torch.inference_mode(), torch.autocast(self.device.type, enabled=False):
            for tensor in encoded.values():
                if isinstance(tensor, Tensor) and tensor.is_floating_point():
                    vocabulary.seen.add(tensor)
            decoding = self._adapter.begin(encoded, attention_mask, settings.num_beams)
            search = GreedySearch if settings.num_beams == 1 else BeamSearch
            translations = search(decoding, vocabulary, settings, limits).finish()
        vocabulary.seen.check(self._name, self._dtype)
        # Copies, which autograd takes as any other tensor.
        return [Translation(*(part if part is None else part.clone() for part in each)) for each in translations]

    def _check(self) -> None:
        if not self._fingerprint.is_unchanged():
            raise RuntimeError("The model's weights changed after this engine was made. Make a new one.")
        if self._adapter.encoder.training:
            raise ValueError("The model is in training mode. Call eval() first.")
