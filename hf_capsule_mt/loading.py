"""Loading of models, tokenizers and configurations, from a folder or from the Hub, without remote code."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import is_offline_mode, resolve_revision
from huggingface_hub.errors import HFValidationError, RevisionResolutionError
from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.utils import GENERATION_CONFIG_NAME
from transformers.utils import logging as transformers_logging

from hf_capsule_mt.data.encoding import max_length_of
from hf_capsule_mt.data.languages import restore_added_languages
from hf_capsule_mt.errors import UserError, blamed_on_user
from hf_capsule_mt.modeling.modeling_capsule_aggregated_m2m_100 import warn_of_start

logger = logging.getLogger(__name__)

_OURS = ("capsule_aggregated_marian", "capsule_aggregated_m2m_100", "caps_nmt", "rnmt")


def commit_of(name: str | Path, revision: str | None = None) -> str | None:
    """Return the commit that a branch or tag of a model on the Hub is at, or in the cache when offline.

    All files of one commit belong together. A folder has no commit. A `revision` that is a commit is
    returned as it is.

    Raises:
        OSError: if there is neither such a folder nor such a model on the Hub.
    """
    if Path(name).is_dir():
        return None
    try:
        # Without `local_files_only` it would warn that the Hub cannot be reached, which a user who works offline knows.
        return resolve_revision(str(name), revision=revision, local_files_only=is_offline_mode()).resolved
    except (OSError, HFValidationError, RevisionResolutionError) as error:
        # Whoever misspells a folder must not look for faults of the network.
        raise OSError(f"There is no folder {name}, and no model of this name on the Hub: {error}") from error


def load_config(name: str | Path, revision: str | None = None) -> PreTrainedConfig:
    """Load a configuration.

    Raises:
        OSError: if there is no such checkpoint.
        UserError: if its configuration is not one, or has wrong values.
    """
    with blamed_on_user(Exception, about=f"The configuration of {name} cannot be read"):
        return AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=False)


def load_tokenizer(name: str | Path, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load a tokenizer.

    Raises:
        OSError: if there is none.
        UserError: if its files are damaged, or need a package that is not installed.
    """
    # The library tokenizers raises a bare Exception for a damaged file.
    with blamed_on_user(Exception, about=f"The tokenizer of {name} cannot be read"):
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False)
        restore_added_languages(tokenizer)
    # Transformers compares it with the length of a text, whenever that is tokenised.
    max_length_of(tokenizer)
    return tokenizer


def load_model(
    name: str | Path,
    model_class: type = AutoModelForSeq2SeqLM,
    *,
    revision: str | None = None,
    dtype: str | torch.dtype = "auto",
    **options: Any,
) -> PreTrainedModel:
    """Load a model from a folder or the Hub, with all of its weights and generation settings.

    Args:
        name: a folder, or a name on the Hub.
        model_class: a class with `from_pretrained`.
        revision: branch, tag or commit of a model on the Hub.
        dtype: precision of the weights (default: that of the file).
        **options: of `from_pretrained`, and fields of the configuration that replace the checkpoint's.

    Raises:
        OSError: if there is no such checkpoint.
        UserError: if its weights or its generation settings are missing, or the weights cannot be read or have other
            shapes than the configuration says.
    """
    with readable_weights(name), _no_bar():
        model, report = model_class.from_pretrained(
            name, revision=revision, dtype=dtype, trust_remote_code=False, output_loading_info=True, **options
        )
    check_loaded(model, unfit_weights(model, report), revision=revision)
    return model


@contextmanager
def _no_bar() -> Iterator[None]:
    """Hide the bar of loading, which takes a moment and breaks other bars. Downloads show theirs."""
    if not transformers_logging.is_progress_bar_enabled() or are_progress_bars_disabled():
        yield
        return
    transformers_logging.disable_progress_bar()
    # Transformers has also switched off those of downloads.
    enable_progress_bars()
    try:
        yield
    finally:
        transformers_logging.enable_progress_bar()


@contextmanager
def readable_weights(name: str | Path) -> Iterator[None]:
    """Raise a UserError for whatever a library finds wrong with a checkpoint while it builds and fills the model.

    Weights may be damaged, a pickle may hold more than tensors, and a configuration may have values of wrong types.

    Raises:
        PermissionError: if this process may not read the weights.
    """
    try:
        with blamed_on_user(Exception, about=f"The weights of {name} cannot be loaded"):
            yield
    except FileNotFoundError:
        # Of a file that it may not read, safetensors says that there is none.
        for file in Path(name).glob("*.safetensors"):
            file.open("rb").close()
        raise


@dataclass(frozen=True)
class LoadReport:
    """What a pipeline must know of a model that was loaded for it.

    Args:
        dtype: the precision that the user asked for.
        unfit: names of weights, see [`unfit_weights`]. None: they were checked when they were loaded.
        where: arguments of `from_pretrained`, such as `revision`.
    """

    dtype: str | torch.dtype | None
    unfit: set[str] | None = None
    where: Mapping[str, Any] = field(default_factory=dict)


def unfit_weights(model: PreTrainedModel, report: Mapping[str, Any]) -> set[str]:
    """Return the names of weights that were not in a checkpoint, by the report of `from_pretrained`.

    For a model of this package, weights that it has no use for count too: the configuration is another model's.
    """
    unfit = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    return unfit.union(report["unexpected_keys"]) if model.config.model_type in _OURS else unfit


def check_loaded(model: PreTrainedModel, unfit: set[str], **where: Any) -> None:
    """Raise a UserError if weights are `unfit`, or if one of our models or of Marian has no generation settings.

    `where` has arguments of `from_pretrained`, such as `revision`.
    """
    name = model.name_or_path
    if unfit:
        shown = ", ".join(sorted(unfit)[:5])
        raise UserError(f"{name} has other weights than its configuration: {shown}. It is incomplete or damaged.")
    if model.config.model_type in ("marian", *_OURS) and model.can_generate() and not _has_settings(model, **where):
        raise UserError(f"{name} has no readable {GENERATION_CONFIG_NAME}. Copy it again from where it was saved.")
    warn_of_start(model.config)


def _has_settings(model: PreTrainedModel, **where: Any) -> bool:
    """Return whether a checkpoint has generation settings. Old ones of Marian have them in config.json."""
    if model.generation_config.num_beams is not None or model.generation_config.bad_words_ids is not None:
        return True
    # Transformers uses other settings if the file is missing or damaged.
    try:
        GenerationConfig.from_pretrained(model.name_or_path, **where)
    except OSError:
        return False
    return True


def check_decodes(model: PreTrainedModel) -> None:
    """Write one token with the generation settings of a checkpoint, which may have values of wrong types.

    Transformers checks some of them only when it decodes, with errors that do not name the checkpoint.

    Raises:
        UserError: if the model cannot decode with its settings.
    """
    source = torch.zeros((1, 1), dtype=torch.long, device=model.device)
    about = f"The generation settings of {model.name_or_path} cannot be used"
    # A setting may ask for sampling, which draws random numbers.
    with blamed_on_user(Exception, about=about), torch.random.fork_rng(), warnings.catch_warnings():
        # One token needs no limit.
        warnings.filterwarnings("ignore", message="Using the model-agnostic default `max_length`")
        # Not by `max_new_tokens`: Transformers warns where a checkpoint has a `max_length` too.
        model.generate(source, attention_mask=torch.ones_like(source), stopping_criteria=[_stop_at_once])


def _stop_at_once(token_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return torch.ones(len(token_ids), dtype=torch.bool, device=token_ids.device)


def count_parameters(model: PreTrainedModel) -> int:
    """Return the number of parameters, tied ones once, without sinusoids, which no checkpoint needs."""
    return sum(parameter.numel() for parameter in distinct_parameters(model))


def distinct_parameters(model: PreTrainedModel) -> set[torch.nn.Parameter]:
    """Return the parameters, tied ones once, without sinusoids, which no checkpoint needs."""
    sinusoids = set()
    for module in model.modules():
        if isinstance(module, MarianSinusoidalPositionalEmbedding):
            sinusoids.add(module.weight)
    return set(model.parameters()) - sinusoids
