"""Checkpoints on disk: listing, checking and loading, with errors that explain what is wrong."""

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from .configuration import CONFIGURATIONS
from .files import read_json
from .modeling.checkpoint_files import (
    ADAPTER,
    CONFIG,
    GENERATION_CONFIG,
    OTHER_WEIGHTS,
    WEIGHTS_INDEX,
    WHERE,
    check_generation_config,
    check_settings_of,
    check_weight_files,
    check_weight_map,
    conversion,
    explained_weights,
    first_names,
    misfit,
    one_line,
)
from .modeling.finite_weights import check_finite
from .trainer_state import missing_state, read_trainer_state, step_of

logger = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_WORDS = "tokenizer.json"
_TOKENIZER = [_TOKENIZER_CONFIG, _WORDS]
_OUR_TYPES = [config.model_type for config in CONFIGURATIONS]
# Of each part of a checkpoint: files of which one must be there, files that hold JSON, and what helps.
_PARTS = {
    "config": ([CONFIG], [CONFIG, GENERATION_CONFIG], "name the folder of a checkpoint"),
    "weights": (["*.safetensors"], [WEIGHTS_INDEX], "copy them into it, or name another checkpoint"),
    "tokenizer": (_TOKENIZER, _TOKENIZER, "copy that of the model, or make one with hf-capsule-mt train_tokenizer"),
}


def checkpoints(run: str | Path) -> list[Path]:
    """Return the folders of a run's checkpoints, the oldest first."""
    return sorted((folder for folder in Path(run).glob("checkpoint-*") if step_of(folder) is not None), key=step_of)


def is_whole(checkpoint: str | Path) -> bool:
    """Return whether the Trainer saved a checkpoint to its end: its state comes last."""
    try:
        read_trainer_state(checkpoint)
    except (OSError, ValueError):
        return False
    return True


def last_checkpoint(run: str | Path, *, with_state: bool = True) -> Path | None:
    """Return the newest checkpoint of a run that was saved to its end; None if there is none.

    With `with_state`, it is one that a run can go on from: see [`missing_state`].
    """
    whole = [folder for folder in checkpoints(run) if is_whole(folder)]
    usable = [folder for folder in whole if not with_state or not missing_state(folder)]
    return usable[-1] if usable else None


def check_folder(folder: str | Path, *parts: str) -> None:
    """Check that a folder holds the `parts` of a checkpoint ("config", "weights", "tokenizer"; default: all).

    Files that Transformers can do without, and that change what comes out, must be there in a checkpoint of this
    package, which has saved them; of another's, a warning says that they are not.

    Raises:
        FileNotFoundError: if a part is missing.
        OSError: if the index of the weights names files elsewhere, or a checkpoint of this package lacks a file.
        ValueError: if a file that should hold JSON does not, or a word has an id that no vocabulary has.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    if (folder / ADAPTER).is_file() and not (folder / CONFIG).is_file():
        raise FileNotFoundError(
            f"{folder} holds an adapter, not a model; take the model in the folder of its run, or merge it: "
            f"PeftModel.from_pretrained(model, {str(folder)!r}).merge_and_unload().save_pretrained(...)"
        )
    for part in parts or _PARTS:
        patterns, in_json, remedy = _PARTS[part]
        if not any(file for pattern in patterns for file in folder.glob(pattern)):
            remedy = (part == "weights" and _conversion(folder)) or remedy
            raise FileNotFoundError(f"{folder} holds no {part} ({' or '.join(patterns)}); {remedy}")
        found = {name: _read_json(folder, name) for name in in_json if (folder / name).is_file()}
        _check_optional_files(folder, part)
        if WEIGHTS_INDEX in found:
            _check_shards(folder, found[WEIGHTS_INDEX])
        if _WORDS in found:
            _check_words(folder / _WORDS, found[_WORDS])


def _conversion(folder: Path) -> str | None:
    """Return what to say of a folder whose weights are in pytorch_model.bin alone; None of all others, and of ours."""
    model_type = _read_json(folder, CONFIG).get("model_type") if (folder / CONFIG).is_file() else None
    if not (folder / OTHER_WEIGHTS).is_file() or model_type in _OUR_TYPES:
        return None
    model = "MarianMTModel" if model_type in (None, "marian") else "AutoModelForSeq2SeqLM"
    return f"it holds {OTHER_WEIGHTS}; {conversion(folder, model=model)}"


def _check_shards(folder: Path, index: Mapping[str, Any]) -> None:
    check_weight_map(folder / WEIGHTS_INDEX)
    for name in sorted(set(index["weight_map"].values())):
        # With all weights in one file an index is of no use.
        if not (folder / name).is_file() and not (folder / WEIGHTS).is_file():
            raise FileNotFoundError(f"{folder} lacks {name}, which {WEIGHTS_INDEX} names; copy it again")


def _check_words(file: Path, fields: Mapping[str, Any]) -> None:
    """Check that no word has so large an id that its tokenizer would take gigabytes."""
    model = fields.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    for word, index in vocabulary.items() if isinstance(vocabulary, dict) else ():
        if isinstance(index, int) and index > 2**24:
            raise ValueError(f"{file} is damaged: {word!r:.80} is word {index}; allowed are ids up to {2**24}")


def _check_optional_files(folder: Path, part: str) -> None:
    """Check the files that are optional to Transformers and not to the result."""
    config = _read_json(folder, CONFIG) if (folder / CONFIG).is_file() else {}
    is_ours = config.get("model_type") in _OUR_TYPES
    if part == "config" and _translates(config):
        settings = folder / GENERATION_CONFIG
        if is_ours:
            check_generation_config(folder, settings if settings.is_file() else None)
        elif not settings.is_file():
            logger.warning("%s has no %s: its model decodes as %s says", folder, GENERATION_CONFIG, CONFIG)
    if part == "tokenizer" and not (folder / _TOKENIZER_CONFIG).is_file():
        missing = f"{folder} has no {_TOKENIZER_CONFIG}, which says how long a text may be and how it is cut"
        if is_ours:
            raise FileNotFoundError(f"{missing}; copy it again from where the checkpoint came from")
        logger.warning("%s: Transformers guesses", missing)


def _translates(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration says that a translation model was saved with it."""
    architectures = config.get("architectures")
    names = architectures if isinstance(architectures, list) else []
    return any(str(name).endswith(("ForConditionalGeneration", "MTModel")) for name in names)


def read_config(name: str | Path, revision: str = "main") -> dict[str, Any]:
    """Return the fields in the `config.json` of a checkpoint, a folder or a name on the Hub, as they are.

    Raises:
        OSError: if there is no such checkpoint.
        ValueError: if the file is damaged.
    """
    if Path(name).is_dir():
        check_folder(name, "config")
    return PreTrainedConfig.get_config_dict(str(name), revision=revision)[0]


def load_config(name: str | Path, revision: str = "main") -> PreTrainedConfig:
    """Load the configuration of a checkpoint, a folder or a name on the Hub, without remote code.

    Raises:
        OSError: if there is no such checkpoint.
        ValueError: if the file is damaged or of no known model.
    """
    if Path(name).is_dir():
        check_folder(name, "config")
    try:
        with _explained(f"{name}: {CONFIG}"):
            return AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=False)
    except OSError as error:
        raise OSError(f"{name} is no folder here, and the Hub does not give it: {one_line(error)}") from error
    except ValueError as error:
        reason = one_line(error).removeprefix(f"{name}: ")
        raise ValueError(f"{name}: {CONFIG} cannot be used: {reason:.800}") from error


def load_tokenizer(name: str | Path, revision: str = "main", *, option: str | None = None) -> PreTrainedTokenizerBase:
    """Load any tokenizer of Transformers, from a folder or from the Hub at `revision`, without remote code.

    `option` is what a user gave the name as, if errors are to say so.

    Raises:
        FileNotFoundError: if the folder holds none.
        ValueError: if it is damaged, or the Hub has none of this name.
    """
    if Path(name).is_dir():
        check_folder(name, "tokenizer")
        if (Path(name) / CONFIG).is_file():
            # Transformers reads it as well, to know the tokenizer's class.
            check_folder(name, "config")
    try:
        with _explained(f"the tokenizer of {name}"):
            tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False)
            _check_tokenizer(tokenizer)
            return tokenizer
    except (OSError, ValueError) as error:
        if Path(name).is_dir():
            raise ValueError(f"the tokenizer in {name} cannot be loaded: {one_line(error):.500}") from error
        which = f"{str(name)!r} is" if option is None else f"{option} is {str(name)!r}, which is"
        raise ValueError(
            f"{which} neither a folder with a tokenizer (hf-capsule-mt train_tokenizer makes one) nor the name of one "
            f"on the Hub: {one_line(error)}"
        ) from error


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise an error if a tokenizer's settings are not allowed, or make it fail on any text."""
    limit = tokenizer.model_max_length
    if not isinstance(limit, (int, float)) or isinstance(limit, bool) or not limit >= 1:
        raise ValueError(f"model_max_length is {limit!r:.80}; allowed are numbers of at least 1")
    words: dict[int, str] = {}
    for word, index in tokenizer.get_vocab().items():
        if words.setdefault(index, word) != word:
            raise ValueError(f"{words[index]!r:.80} and {word!r:.80} are both word {index}, so it decodes by chance")
    # A tokenizer keeps how it was called last, and would be saved with it.
    called = copy.deepcopy(tokenizer)
    ids = called("a", truncation=True)["input_ids"]
    if not ids:
        raise ValueError("it makes no words of a text")
    called.decode(ids, skip_special_tokens=True)


def load_weights(
    model_class: type, name: str | Path, fields: Mapping[str, Any] = MappingProxyType({}), **options: Any
) -> PreTrainedModel:
    """Load a model from safetensors, and refuse weights that do not fit its configuration.

    Args:
        model_class: of the model, or an Auto class.
        name: a folder or a name on the Hub.
        fields: of the configuration, in place of the checkpoint's.
        **options: of `from_pretrained`.

    Raises:
        OSError: if weights are missing, damaged, elsewhere, or of another shape, or an adapter lies beside them.
        ValueError: if tensors are missing or not finite, a model of this package has superfluous ones, or a setting
            that it decodes with is not allowed.
    """
    if Path(name).is_dir():
        check_folder(name, "config", "weights")
    check_weight_files(name, {option: options[option] for option in WHERE if option in options}, options.get("variant"))
    try:
        with _explained(f"the checkpoint {name}"), explained_weights(name, fields):
            model, report = model_class.from_pretrained(
                name, use_safetensors=True, output_loading_info=True, **options, **fields
            )
    except ValueError as error:
        if fields or str(name) in str(error):
            raise
        raise ValueError(f"{name} cannot be loaded: {one_line(error)}") from error
    strange = set(report["missing_keys"])
    # A checkpoint of another package may have unused tensors, such as the head of another task.
    if isinstance(model.config, CONFIGURATIONS):
        strange |= set(report["unexpected_keys"])
    if strange:
        raise ValueError(misfit(name, fields, f"{first_names(sorted(strange))}."))
    check_finite(name, model.named_parameters())
    if model.can_generate():
        check_settings_of(name, model, for_commands=True)
    return model


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Make a ValueError that names the files of every error that damage to them can raise somewhere in a library.

    A ValueError or OSError is left as it is.
    """
    try:
        yield
    except (ValueError, OSError):
        raise
    except BaseException as error:
        # What the Rust of tokenizers raises where it gives up is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{what} cannot be read, so it is damaged: {reason:.500}; copy it again") from error


def tensor_files(folder: Path) -> dict[str, Path]:
    """Return the file of each tensor of a checkpoint; raise an OSError if weights are missing or damaged."""
    check_folder(folder, "weights")
    if not (folder / WEIGHTS).is_file():
        weight_map = _read_json(folder, WEIGHTS_INDEX)["weight_map"]
        return {tensor: folder / name for tensor, name in weight_map.items()}
    with explained_weights(folder / WEIGHTS), safe_open(folder / WEIGHTS, "pt") as file:
        return dict.fromkeys(file.keys(), folder / WEIGHTS)


def tensor_shapes(files: Mapping[str, Path]) -> dict[str, list[int]]:
    """Return the shape of each tensor of a checkpoint, from its [`tensor_files`], without reading the tensors."""
    shapes = {}
    for path in set(files.values()):
        with explained_weights(path), safe_open(path, "pt") as file:
            shapes.update({tensor: file.get_slice(tensor).get_shape() for tensor in file.keys()})  # noqa: SIM118
    return shapes


def count_parameters(model: PreTrainedModel) -> int:
    """Return the number of parameters, tied ones once; sinusoids of positions, which no checkpoint holds, are none."""
    sinusoids = [module for module in model.modules() if isinstance(module, MarianSinusoidalPositionalEmbedding)]
    return sum(parameter.numel() for parameter in {*model.parameters()} - {module.weight for module in sinusoids})


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    try:
        return read_json(folder / name)
    except ValueError as error:
        raise ValueError(f"{error}; copy it again") from error
