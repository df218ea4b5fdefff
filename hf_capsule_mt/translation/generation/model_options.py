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
from hf_capsule_mt.decoding import ShortlistLogitsProcessor
from hf_capsule_mt.decoding.precision import dtype_to_load, fit_weights, is_of_engine
from hf_capsule_mt.decoding.products.int8 import Int8Choice, int8_choice
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_file
from hf_capsule_mt.loading import check_decodes, commit_of, load_config, load_model, load_tokenizer

_MODEL_FILES = (".safetensors", ".bin", ".json", ".spm", ".model", ".txt")
_OF_GENERATE = ("num_beams", "length_penalty", "max_new_tokens")


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
        if choice is None and self.dtype == "int8" and is_of_engine(self.dtype, self.engine):
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
        if is_of_engine(self.dtype, self.engine):
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

        [`fit_weights`] says in which dtype the weights are. With `decodes` False the engine makes none.

        Raises:
            UserError: if int8 is asked of a model or a device that it is not for, or the CPU lacks the chosen products.
        """
        if self.int8_choice is not None:
            self.int8_choice.check()

        engine = self.engine if decodes else "transformers"
        dtype = dtype_to_load(self.dtype, engine)
        model = load_model(self.model, revision=self.revision, dtype=dtype)
        fit_weights(model, device, self.dtype, engine)

        model.to(device)
        if decodes:
            check_decodes(model)
        return model, self.tokenizer()


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of settings that are not what they were, in order. A missing one is None, and so is False."""

    def value(settings: Mapping[str, Any], name: str) -> Any:
        found = settings.get(name)
        return None if found is False else found

    return [name for name in sorted({*before, *now}) if value(before, name) != value(now, name)]


@lru_cache(4)
def _read_shortlist(path: Path, changed: int, model: str, revision: str | None) -> ShortlistLogitsProcessor:
    """Return the shortlist in a file that was `changed` then, for the tokenizer of a model."""
    return ShortlistLogitsProcessor(read_shortlist(path, load_tokenizer(model, revision)))
