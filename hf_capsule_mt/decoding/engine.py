"""The engine: a snapshot of a model that decodes as the model's `generate()` does, sooner."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from ..translation.source_limits import positions
from .decoder_weights import Fingerprint, UnsupportedModelError, with_products
from .families import ADAPTERS
from .precisions import PRECISIONS, check_precision, precisions_on
from .search import Decoding, Search, Settings, Translation, begin_search, finish
from .stream import Arrivals, Source
from .vocabulary import Vocabulary


class Engine:
    """A snapshot of a translation model, for decoding.

    Weights and settings of modules that change later need a new engine: this one refuses to go on. What it cannot see
    is some rows of a large weight that are written through `.data`; see [`Fingerprint`].

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
        if type(model) not in ADAPTERS:
            known = ", ".join(kind.__name__ for kind in ADAPTERS)
            found = f"{type(model).__module__}.{type(model).__name__}"
            raise UnsupportedModelError(f"the model is a {found}; the engine knows {known}")
        there = precisions_on(model.device)
        if not there:
            raise UnsupportedModelError(f"the model is on {model.device}; the engine decodes on a CPU or a CUDA device")
        if dtype not in there:
            raise ValueError(f"dtype is {dtype!r}; for a model on {model.device} it must be one of {', '.join(there)}")
        kinds = {(parameter.dtype, parameter.device) for parameter in model.parameters()}
        if len(kinds) > 1 or model.dtype != torch.float32:
            found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
            raise UnsupportedModelError(
                f"the weights are {found}; the engine needs those of dtype=torch.float32, on one device"
            )
        self._fingerprint = Fingerprint(model)
        self._make = PRECISIONS[dtype]
        self._name, self._dtype = model.name_or_path, dtype
        self._num_source_words = model.get_input_embeddings().weight.shape[0]
        # Of sources: that of translations may be no word of the encoder's.
        self._padding = model.config.pad_token_id or 0
        self.positions: float = positions(model.config) or float("inf")
        """The most tokens that a source, and a translation, can have."""
        # Copies that are made in inference mode could not be written to outside of it.
        with torch.inference_mode(False), torch.no_grad(), torch.autocast(model.device.type, enabled=False):
            self._adapter = ADAPTERS[type(model)](model, self._make)

    @property
    def num_target_words(self) -> int:
        """The number of words that can be written."""
        return self._adapter.vocabulary.size

    @property
    def device(self) -> torch.device:
        """Where the engine decodes."""
        return self._adapter.vocabulary.device

    def is_of(self, model: PreTrainedModel) -> bool:
        """Whether this is a snapshot of `model` as it is."""
        return self._fingerprint.is_of(model)

    @cached_property
    def _encoder(self) -> nn.Module:
        return with_products(self._adapter.encoder, self._make)

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
            RuntimeError: if the weights or settings of the model have changed.
            ValueError: if the model is in training mode, or overflows.
        """
        self._check()
        vocabulary = self._adapter.vocabulary.for_one_call()
        with torch.inference_mode(), torch.autocast(self.device.type, enabled=False):
            decoding = self._begin(encoded, attention_mask, settings, vocabulary)
            translations = finish(begin_search(decoding, vocabulary, settings, limits))
        vocabulary.seen.check(self._name, self._dtype)
        return [_copied(translation) for translation in translations]

    def stream(self, sources: Iterable[Source], settings: Settings, room: int) -> Iterator[tuple[int, Translation]]:
        """Translate sentences as they come: those that are finished leave the batch, and others take their places.

        Sentences of similar length should follow each other. Autocast is off, as in [`Engine.translate`].

        Args:
            sources: sentences with the limits of their translations. They are read when there are places for them.
            settings: how to search.
            room: source tokens in the batch, padding included.

        Yields:
            The index of a sentence with its translation, on a CPU, as they finish.

        Raises:
            RuntimeError: if the weights or settings of the model have changed.
            ValueError: if the model is in training mode, or overflows; or where a sentence is read that it cannot.
        """
        arrivals, search = Arrivals(sources, room), None
        vocabulary = self._adapter.vocabulary.for_one_call()
        while True:
            index, taken = arrivals.take()
            if taken:
                search = self._admitted(search, taken, settings, index, vocabulary)
            if not search:
                return
            with torch.inference_mode(), torch.autocast(self.device.type, enabled=False):
                finished = search.advance()
            if finished:
                vocabulary.seen.check(self._name, self._dtype)
            for number, translation in finished:
                arrivals.leave(number)
                yield number, _copied(translation)
            if finished and search:
                # Whoever took the translations may have changed the weights.
                self._check()

    def _admitted(
        self, search: Search | None, sources: list[Source], settings: Settings, index: int, vocabulary: Vocabulary
    ) -> Search:
        """Return the search, or a new one if nothing is left of it, with sentences more."""
        limits = [source.limit for source in sources]
        rows = [torch.tensor(source.ids) for source in sources]
        for text, longest, remedy in (
            ("translation may have", max(limits), "lower the limit"),
            ("source has", max(map(len, rows)), "cut it"),
        ):
            if longest > self.positions:
                raise ValueError(
                    f"a {text} {longest} tokens, and {self._name or 'the model'} has {self.positions} positions; "
                    f"{remedy}"
                )
        unknown = [word for word in map(int, torch.cat(rows).aminmax()) if not 0 <= word < self._num_source_words]
        if unknown:
            raise ValueError(
                f"a source has a word {unknown[0]}, and {self._name or 'the model'} has {self._num_source_words}; make "
                "sources with its tokenizer"
            )
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        words = pad_sequence(rows, batch_first=True, padding_value=self._padding)
        mask = mask.to(self.device)
        encoded = self.encode(words.to(self.device), mask)
        with torch.inference_mode(), torch.autocast(self.device.type, enabled=False):
            decoding = self._begin(encoded, mask, settings, vocabulary)
            new = begin_search(decoding, vocabulary, settings, limits, index)
            if not search:
                return new
            search.admit(new)
        return search

    def _begin(self, encoded: ModelOutput, mask: Tensor | None, settings: Settings, vocabulary: Vocabulary) -> Decoding:
        for tensor in encoded.values():
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                vocabulary.seen.add(tensor)
        return self._adapter.begin(encoded, mask, settings.num_beams)

    def _check(self) -> None:
        if not self._fingerprint.is_unchanged():
            raise RuntimeError("the model's weights or settings changed since this engine was made; make a new one")
        if self._adapter.encoder.training:
            raise ValueError("the model is in training mode, in which it drops units; call eval() first")


def _copied(translation: Translation) -> Translation:
    """Return tensors that autograd takes as it does any other."""
    return Translation(*(part if part is None else part.clone() for part in translation))
