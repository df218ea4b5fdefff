"""Which model translates and how it decodes, as the commands and the server are told."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_capsule_mt.data.shortlists import read_shortlist
from hf_capsule_mt.decoding import ShortlistLogitsProcessor, UnsupportedModelError, adapter_for
from hf_capsule_mt.decoding.products.int8 import Int8Choice, int8_choice
from hf_capsule_mt.decoding.products.products import multiplies_as_they_are, precisions_on
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_file
from hf_capsule_mt.loading import check_decodes, commit_of, in_usable_precision, load_config, load_model, load_tokenizer

_MODEL_FILES = (".safetensors", ".bin", ".json", ".spm", ".model", ".txt")
_OF_GENERATE = ("num_beams", "length_penalty", "max_new_tokens")
ENGINE_DTYPES = ("bfloat16", "int8")


@dataclass(frozen=True)
class DecodingOptions:
    """Which model translates, and how it decodes.

    Args:
        model: folder of a checkpoint, or name on the Hub.
        revision: branch, tag or commit of a model on the Hub.
        num_beams: beam size. None is the model's own, here and below.
        length_penalty: above 0 translations are longer.
        max_new_tokens: longest translation, in tokens.
        max_tokens_per_batch: source tokens of a batch, with padding.
        dtype: "auto", "float32", "bfloat16", "float16" or "int8".
        engine: "fast" or "transformers".
        vocabulary: file of the words that translations may have, by the command `shortlist`. None: all of the model.
        int8_choice: how products in int8 are computed. None leaves it to each process, see [`pinned`].
    """

    model: str
    revision: str | None = None
    num_beams: int | None = None
    length_penalty: float | None = None
    max_new_tokens: int | None = None
    max_tokens_per_batch: int = 4096
    dtype: str = "auto"
    engine: str | None = None
    vocabulary: Path | None = None
    int8_choice: Int8Choice | None = None

    def pinned(self) -> "DecodingOptions":
        """Return these options with the commit of a model on the Hub as its revision, and with a choice for int8.

        Every process then reads configuration, tokenizer and weights of the same commit, and computes int8 alike. Each
        would time the products by itself, and two could choose differently.
        """
        choice = self.int8_choice
        if choice is None and self.dtype == "int8" and self._is_of_engine():
            choice = int8_choice()
        pinned = replace(self, revision=commit_of(self.model, self.revision), int8_choice=choice)
        # These know the hashes of the model's files already.
        if pinned == self:
            return self
        return pinned

    def config(self) -> PreTrainedConfig:
        """Load the model's configuration.

        Raises:
            UserError: if it is no encoder-decoder.
        """
        config = load_config(self.model, self.revision)
        if not config.is_encoder_decoder:
            raise UserError(f"{self.model} is of type {config.model_type}, which is not an encoder-decoder.")
        return config

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer."""
        return load_tokenizer(self.model, self.revision)

    def generation_config(self) -> GenerationConfig:
        """Load the settings of the model's generate(), or the defaults of Transformers if it has none."""
        try:
            return GenerationConfig.from_pretrained(self.model, revision=self.revision or "main")
        except OSError:
            return GenerationConfig()

    @cached_property
    def _model_hashes(self) -> dict[str, str]:
        """The hash of each file in the folder of a model. They are read once, for they may be large."""
        # Another file may have the same size and time.
        files = sorted(Path(self.model).glob("*"))
        return {file.name: hash_file(file) for file in files if file.suffix in _MODEL_FILES}

    def settings(self) -> dict[str, Any]:
        """Return all that translations depend on, except the text. Batch size and device only change rounding."""
        folder = Path(self.model)
        settings = {
            "model": str(folder.resolve()) if folder.is_dir() else self.model,
            "revision": self.revision,
            "model files": self._model_hashes,
            **{name: getattr(self, name) for name in (*_OF_GENERATE, "dtype", "engine")},
        }
        if self.vocabulary is not None:
            settings["vocabulary"] = hash_file(self.vocabulary)
        return settings

    def generate_options(self) -> dict[str, Any]:
        """Return the given options of [`Decoder`], and so of `generate()`."""
        options = {}
        for name in (*_OF_GENERATE, "engine"):
            value = getattr(self, name)
            if value is not None:
                options[name] = value
        if self._is_of_engine():
            options["dtype"] = self.dtype
        if self.int8_choice is not None:
            options["int8_choice"] = self.int8_choice
        if self.vocabulary is not None:
            options["logits_processor"] = LogitsProcessorList([self._shortlist()])
        return options

    def _shortlist(self) -> ShortlistLogitsProcessor:
        """Read the tokens that translations may have."""
        return _read_shortlist(self.vocabulary, self.vocabulary.stat().st_mtime_ns, self.model, self.revision)

    def load(self, device: torch.device, *, decodes: bool = True) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Load the model, on a device, and its tokenizer.

        The weights are in float32 where the engine makes the dtype itself, unless the file has 16 bits which the device
        multiplies as they are. With `decodes` False the engine makes no dtype.

        Raises:
            UserError: if int8 is asked of a model or a device that it is not for, or the CPU lacks the chosen products.
        """
        if self.int8_choice is not None:
            self.int8_choice.check()

        is_of_engine = decodes and self._is_of_engine()
        # Weights in 16 bits would take twice the memory in float32.
        dtype = self.dtype
        if is_of_engine:
            dtype = "auto"
        model = load_model(self.model, revision=self.revision, dtype=dtype)

        if is_of_engine and not self._takes_half(model, device):
            model.float()
        if self.dtype == "auto":
            in_usable_precision(model, device)

        if is_of_engine and not engine_computes_in(self.dtype, model, device):
            if self.dtype == "int8":
                raise UserError(
                    f"--dtype int8 is for models that the decoder engine knows, on a CPU, but {self.model} is a "
                    f"{type(model).__name__} on {device}. Use float32 or bfloat16."
                )
            model.to(getattr(torch, self.dtype))

        model.to(device)
        if decodes:
            check_decodes(model)
        return model, self.tokenizer()

    def _takes_half(self, model: PreTrainedModel, device: torch.device) -> bool:
        """Whether the engine takes the weights of a model as they are, and the device multiplies them fast."""
        return multiplies_as_they_are(model.dtype, device) and engine_computes_in(self.dtype, model, device)

    def _is_of_engine(self) -> bool:
        """Whether the engine makes the precision."""
        return is_of_engine(self.dtype) and self.engine != "transformers"


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of settings that are not what they were, in order. A missing one is None."""
    names = sorted({*before, *now})
    return [name for name in names if before.get(name) != now.get(name)]


@lru_cache(4)
def _read_shortlist(path: Path, changed: int, model: str, revision: str | None) -> ShortlistLogitsProcessor:
    """Return the shortlist in a file that was `changed` then, for the tokenizer of a model."""
    return ShortlistLogitsProcessor(read_shortlist(path, load_tokenizer(model, revision)))


def is_of_engine(dtype: str | torch.dtype | None) -> bool:
    """Return whether the engine makes a precision itself, from weights in float32."""
    return name_of(dtype) in ENGINE_DTYPES


def name_of(dtype: str | torch.dtype | None) -> str:
    """Return the name of a precision, such as "int8" of `torch.int8`. None is "auto"."""
    if dtype is None:
        return "auto"
    return str(dtype).removeprefix("torch.")


def engine_computes_in(dtype: str, model: PreTrainedModel, device: torch.device) -> bool:
    """Return whether the engine decodes this model on this device in a precision that it makes itself."""
    if dtype not in precisions_on(device):
        return False
    try:
        adapter_for(model)
    except UnsupportedModelError:
        return False
    return True
