"""The engine: a snapshot of a model that decodes as the model's `generate()` does, faster."""

import ctypes
import math
import os
import sys
from collections.abc import Sequence
from functools import cached_property
from threading import Lock, RLock
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from .fingerprint import Fingerprint, UnsupportedModelError
from .precision import adapter_for, make_of
from .products.int8 import Int8Choice
from .products.shortlist import ShortlistVocabulary
from .products.vocabulary import Vocabulary
from .proof import UnprovenModelError, prove
from .search.search import BeamSearch, DecodedTokens, GreedySearch, Search, Settings
from .search.term_banks import TermBanks
from .search.term_search import TermSearch

_KEPT_SHORTLISTS = 4
"""Shortlists whose weights are kept. Each has a copy of them."""


class Engine:
    """A snapshot of a translation model, for decoding. [`engine_of`] makes one.

    Args:
        model: a [`MarianMTModel`], [`M2M100ForConditionalGeneration`] (also NLLB-200),
            [`MBartForConditionalGeneration`], [`T5ForConditionalGeneration`] (also MADLAD-400),
            [`MT5ForConditionalGeneration`], or a translation model of this package. It is in evaluation mode, on a CPU
            or a CUDA device. Models of Transformers may have weights in 16 bits.
        dtype: precision of the products, "float32", "bfloat16" or, on a CPU, "int8". All else is in float32. With
            weights in 16 bits "float32" means that the products have the precision of the weights.
        int8_choice: how products in int8 are computed. None: as they are fastest here.

    Raises:
        UnsupportedModelError: if the model is of another class or dtype, something in it has been replaced, or no test
            has seen this version of Transformers and the scores are not those of the model.
        UserError: if there is no such precision on the device, or no such products in int8.
    """

    def __init__(self, model: PreTrainedModel, dtype: str = "float32", int8_choice: Int8Choice | None = None) -> None:
        adapter = adapter_for(model)
        # Copies that are made in inference mode could not be written to outside of it.
        with torch.inference_mode(False), torch.no_grad(), torch.autocast(model.device.type, enabled=False):
            make = make_of(model, dtype, int8_choice)
            prove(model, adapter)
            # After the proof, which calls the model: Transformers may put hooks into it at its first call.
            self._fingerprint = Fingerprint(model)
            self._adapter = adapter(model, make)
        self._name = model.name_or_path
        self._dtype = dtype
        # Recurrent models have no positions.
        self.positions: float = getattr(model.config, "max_position_embeddings", None) or math.inf
        """The most tokens that a source, and a translation, can have."""
        if dtype == "int8":
            _return_freed_memory()
        self.vocabulary = self._adapter.vocabulary
        self._shortlists: dict[tuple[int, ...], ShortlistVocabulary] = {}
        self._making_shortlists = Lock()
        self.needs_cache = adapter.needs_cache
        """Whether `generate()` without a cache may write other tokens."""

    def is_of(self, model: PreTrainedModel) -> bool:
        """Whether this is a snapshot of `model` as it is now. See [`Fingerprint`]."""
        return self._fingerprint.is_of(model)

    @cached_property
    def _encoder(self) -> nn.Module:
        return self._adapter.fast_encoder()

    @torch.no_grad()
    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> ModelOutput:
        """Return the encoder's output in the engine's precision: autocast is off.

        Args:
            input_ids: token ids, `[sentences, source]`.
            attention_mask: 1 where there is a token, `[sentences, source]`. None means everywhere.
        """
        with torch.autocast(input_ids.device.type, enabled=False):
            return self._encoder(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)

    def translate(
        self,
        encoded: ModelOutput,
        attention_mask: Tensor | None,
        settings: Settings,
        limits: Sequence[int],
        banks: TermBanks | None = None,
    ) -> list[DecodedTokens]:
        """Return a translation of every sentence, on a CPU.

        Args:
            encoded: the encoder's output.
            attention_mask: 1 where the source has a token, `[sentences, source]`. None means everywhere.
            settings: those of the search.
            limits: the most new tokens of every sentence.
            banks: the terms that every translation must have. Then a sentence has several translations.

        Raises:
            UserError: if the model overflows.
        """
        vocabulary = self._vocabulary_for(settings).for_one_call()
        with torch.inference_mode(), torch.autocast(vocabulary.device.type, enabled=False):
            # A product in int8 turns NaN into finite values, so the decoder may not show that the encoder overflowed.
            for tensor in encoded.values():
                if isinstance(tensor, Tensor) and tensor.is_floating_point():
                    vocabulary.finite_sum.add(tensor)
            if banks is not None:
                settings = banks.settings(settings)
            decoding = self._adapter.decoding(self._adapter, encoded, attention_mask, settings.num_beams)
            search: Search
            if banks is not None:
                search = TermSearch(decoding, vocabulary, settings, limits, banks)
            elif settings.num_beams == 1:
                search = GreedySearch(decoding, vocabulary, settings, limits)
            else:
                search = BeamSearch(decoding, vocabulary, settings, limits)
            translations = search.finish()
        vocabulary.finite_sum.check(self._name, self._dtype)
        return translations

    def _vocabulary_for(self, settings: Settings) -> Vocabulary | ShortlistVocabulary:
        """Return the output projection of the tokens that a search may write. Those of the last shortlists are kept."""
        shortlist = settings.constraints.shortlist
        if shortlist is None:
            return self.vocabulary
        with self._making_shortlists:
            kept = self._shortlists
            # The last in a dictionary is the newest.
            vocabulary = kept.pop(shortlist.token_ids, None)
            if vocabulary is None:
                if len(kept) == _KEPT_SHORTLISTS:
                    del kept[next(iter(kept))]
                with torch.inference_mode(False), torch.no_grad():
                    vocabulary = self._adapter.vocabulary_of(shortlist.token_ids)
            kept[shortlist.token_ids] = vocabulary
            return vocabulary


_MAKING = RLock()
"""Held while an engine is looked up or made."""


def _renew_lock() -> None:
    global _MAKING
    _MAKING = RLock()


# The thread that holds the lock does not exist in a forked process, so nobody would ever release it there.
# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)

_engines: WeakKeyDictionary[PreTrainedModel, dict[tuple[str, Int8Choice | None], Engine]] = WeakKeyDictionary()
"""Engines of each model, by their precision and choice for int8."""
_unproven: WeakKeyDictionary[PreTrainedModel, tuple[Fingerprint, str]] = WeakKeyDictionary()
"""Models that have no engine in this version of Transformers, and why. It is not tried again for every batch."""


def engine_of(model: PreTrainedModel, dtype: str = "float32", int8_choice: Int8Choice | None = None) -> Engine:
    """Return an engine for a model: the one made before with these arguments, unless the model has changed.

    The arguments are those of [`Engine`].

    Raises:
        UnsupportedModelError: if the engine cannot decode this model.
        UserError: if there is no such precision on its device, or no such products in int8.
    """
    with _MAKING:
        known = known_engine(model, dtype, int8_choice)
        if known is not None:
            return known
        if any(module.training for module in model.modules()):
            # Whoever trains it may write to weights in a way that leaves no trace.
            release(model)
            raise UnsupportedModelError("the model, or a part of it, is in training mode")
        if not all(engine.is_of(model) for engine in _engines.get(model, {}).values()):
            release(model)
        unproven = _unproven.get(model)
        if unproven is not None and unproven[0].is_of(model):
            raise UnprovenModelError(unproven[1])
        try:
            engine = Engine(model, dtype, int8_choice)
        except UnprovenModelError as error:
            _unproven[model] = (Fingerprint(model), str(error))
            raise
        _engines.setdefault(model, {})[dtype, int8_choice] = engine
        return engine


def known_engine(
    model: PreTrainedModel, dtype: str = "float32", int8_choice: Int8Choice | None = None
) -> Engine | None:
    """Return the engine that was made before with these arguments, unless the model has changed.

    They are those of [`Engine`]. If there is one, the model is in evaluation mode, as it was when the engine was made.
    """
    with _MAKING:
        known = _engines.get(model, {}).get((dtype, int8_choice))
        # One sentence notices how long it takes to compare. So no other engine is compared.
        if known is not None and known.is_of(model):
            return known
    return None


def release(model: PreTrainedModel) -> None:
    """Free the engines of a model. The next call of [`engine_of`] makes another.

    Call it after writing to a weight through `.data`, which is not noticed.
    """
    with _MAKING:
        _engines.pop(model, None)
        _unproven.pop(model, None)


def _return_freed_memory() -> None:
    """Give freed memory back to the system. The C library of Linux may keep a gigabyte of weights that became int8."""
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        # Other C libraries than GNU's have no such function.
        if hasattr(library, "malloc_trim"):
            library.malloc_trim(0)
