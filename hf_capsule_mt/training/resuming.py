"""The checks that a run resumes from a whole checkpoint of its own, with the same tokenizer and the same batches."""

import dataclasses
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.trainer_pt_utils import safe_globals
from transformers.utils import logging

from hf_capsule_mt.checkpoints import (
    checkpoints,
    last_checkpoint,
    load_config,
    read_config,
    tensor_files,
    tensor_shapes,
)
from hf_capsule_mt.data.streaming import was_streamed
from hf_capsule_mt.modeling.checkpoint_files import first_names
from hf_capsule_mt.trainer_state import missing_state, read_trainer_state

from .arguments import TranslationTrainingArguments
from .run_identity import AUTO, LAST, files_of_run, identity_in, remove_half_written
from .weight_average import check_averages

logger = logging.get_logger(__name__)

# Names, or ends of names, of the fields that a resumed run may change.
_FREE = ("dropout", "layerdrop", "label_smoothing", "loss_weight", "use_cache", "init_std")

# How a number is changed, where it is no option.
_HOW = {
    "processes": " (--num_processes of accelerate launch, --nproc_per_node of torchrun)",
    "batches_per_update": " (processes times --gradient_accumulation_steps)",
    "pairs_per_update": " (processes times --gradient_accumulation_steps times --per_device_train_batch_size)",
}


class FoundCheckpoint(str):
    """The folder of a checkpoint that [`find_checkpoint`] has found, and need not check again."""


def find_checkpoint(value: str | Path, args: TranslationTrainingArguments) -> FoundCheckpoint | None:
    """Return the checkpoint that `resume_from_checkpoint` names, [`LAST`] or a folder, after a check of its state.

    For [`AUTO`] it is the last one, or None if the output folder holds no whole one; what a kill in the first save has
    left there is deleted then.

    Raises:
        OSError: if a file of its state is damaged.
        ValueError: if it was not saved to its end, is the folder of a run, has more updates than `args.max_steps`, or
            a later one beside it in `args.output_dir`; if its updates had other batches; if a file of its state is
            missing, unless `args.ignore_missing_state`; if it has averaged weights and this run does not average, or
            the other way round; or there is no last checkpoint.
    """
    if isinstance(value, FoundCheckpoint):
        return value
    if value == AUTO and last_checkpoint(args.output_dir, with_state=False) is None:
        if args.process_index == 0:
            remove_half_written(Path(args.output_dir))
        return None
    checkpoint = _last(args) if value in (LAST, AUTO) else _named(str(value))
    if args.max_steps > 0:
        check_updates(checkpoint, args.max_steps, f"max_steps is {args.max_steps}")
    _check_last(checkpoint, args)
    check_same_batches(checkpoint, batches_of(args), args)
    processes = _batches_in(checkpoint).get("processes", args.world_size)
    missing = [] if args.ignore_missing_state else missing_state(checkpoint, processes)
    if missing:
        raise ValueError(
            f"resume_from_checkpoint is {str(checkpoint)!r}, which lacks {', '.join(missing)}: without it the run "
            "would go on from another state than was saved; copy it again, name another checkpoint, or accept that "
            "with --ignore_missing_state true"
        )
    check_averages(checkpoint, args.ema_decay)
    if processes != args.world_size and args.should_log:
        logger.warning(
            f"{checkpoint} was saved by {processes} processes, and this run has {args.world_size}: it goes on with the "
            "same pairs in the same updates, but other random numbers for dropout"
        )
    for file in sorted([*checkpoint.glob("*.pt"), *checkpoint.glob("*.pth")]):
        _check_whole(file)
    return FoundCheckpoint(checkpoint)


def _last(args: TranslationTrainingArguments) -> Path:
    last = last_checkpoint(args.output_dir, with_state=not args.ignore_missing_state)
    if last is not None:
        return last
    found = f"resume_from_checkpoint is {LAST!r}, but {args.output_dir} holds no whole checkpoint"
    if (lacking := last_checkpoint(args.output_dir, with_state=False)) is not None:
        raise ValueError(
            f"{found}: {lacking.name} lacks {', '.join(missing_state(lacking))}; begin what is missing anew with "
            "--ignore_missing_state true"
        )
    anew = " anew, with --overwrite_output_dir true" if files_of_run(Path(args.output_dir)) else ""
    raise ValueError(f"{found}; leave it out to start the run{anew}")


def _named(value: str) -> Path:
    if checkpoints(value):
        raise ValueError(
            f"resume_from_checkpoint is {value!r}, the folder of a run, not a checkpoint; name one of it, such as "
            f"{last_checkpoint(value) or checkpoints(value)[-1]}, or {LAST!r} with that folder as output_dir"
        )
    try:
        read_trainer_state(value)
    except FileNotFoundError as error:
        raise ValueError(
            f"resume_from_checkpoint is {value!r}, which holds no trainer_state.json; name the folder of a checkpoint "
            f"that was saved to its end, or {LAST!r} for the newest of output_dir"
        ) from error
    return Path(value)


def check_updates(checkpoint: str | Path, last: int, option: str) -> None:
    """Raise a ValueError if a checkpoint is of a later update than the `last` of a run, which an `option` decides."""
    done = read_trainer_state(checkpoint).get("global_step", 0)
    if done > last:
        raise ValueError(
            f"resume_from_checkpoint is {str(checkpoint)!r}, of update {done}, but {option}; raise it, or name an "
            "earlier checkpoint"
        )


def _check_last(checkpoint: Path, args: TranslationTrainingArguments) -> None:
    """Raise a ValueError if the output folder holds a later checkpoint, which would pass for one of the run to be."""
    last = last_checkpoint(args.output_dir, with_state=not args.ignore_missing_state)
    if last is None or last.resolve().parent != checkpoint.resolve().parent:
        return
    done, later = (read_trainer_state(folder).get("global_step", 0) for folder in (checkpoint, last))
    if later > done:
        raise ValueError(
            f"resume_from_checkpoint is {str(checkpoint)!r}, of update {done}, but {last} has {later} and would pass "
            f"for the run's newest: go on from that, delete the checkpoints after {done}, or name another output_dir"
        )


def batches_of(args: TranslationTrainingArguments, **data: Any) -> dict[str, Any]:
    """Return what the batches of every update depend on: options, and facts of the `data`."""
    batches = args.world_size * args.gradient_accumulation_steps
    pairs = {
        "pairs_per_update": batches * args.train_batch_size,
        "train_sampling_strategy": args.train_sampling_strategy,
    }
    return {
        "processes": args.world_size,
        "max_tokens_per_batch": args.max_tokens_per_batch,
        **({"batches_per_update": batches} if args.max_tokens_per_batch else pairs),
        "data_seed": args.seed_of_data,
        **data,
    }


def check_same_batches(checkpoint: str | Path, here: Mapping[str, Any], args: TranslationTrainingArguments) -> None:
    """Check that a checkpoint's run had the same batches: which pairs are left to do is counted in updates.

    Raises:
        ValueError: if it had not, and `args.ignore_data_skip` does not ask to begin the data anew.
    """
    if args.ignore_data_skip:
        return
    there = _batches_in(checkpoint)
    # Of a run whose state does not tell, the processes alone are known.
    compared = [name for name in here if name in there and (name != "processes" or len(there) == 1)]
    name = next((name for name in compared if there[name] != here[name]), None)
    if name is not None:
        raise ValueError(
            f"resume_from_checkpoint is {str(checkpoint)!r}, whose run had {name} {there[name]}, where this has "
            f"{here[name]}: it would leave out pairs of sentences, or train on them again; go on with {name} "
            f"{there[name]}{_HOW.get(name, '')}, or begin the data anew with --ignore_data_skip true"
        )


def check_not_streamed(checkpoint: str | Path, args: TranslationTrainingArguments) -> None:
    """Check that a checkpoint's run read its data in epochs, of which the number of updates tells what is left.

    Raises:
        ValueError: if it streamed them, and `args.ignore_data_skip` does not ask to begin the data anew.
    """
    if was_streamed(checkpoint) and not args.ignore_data_skip:
        raise ValueError(
            f"resume_from_checkpoint is {str(checkpoint)!r}, whose run streamed its data: this one cannot tell which "
            "pairs are left; go on with --streaming true, or begin the data anew with --ignore_data_skip true"
        )


def check_same_tokenizer(checkpoint: str | Path, here: str | None) -> None:
    """Check that a checkpoint's run had the tokenizer whose [`words_hash`] is `here`, if both are known.

    Raises:
        ValueError: if it had another.
    """
    there = identity_in(read_trainer_state(checkpoint)).get("tokenizer")
    if None not in (here, there) and here != there:
        raise ValueError(
            f"resume_from_checkpoint is {str(checkpoint)!r}, whose run had another tokenizer (its words have hash "
            f"{there}, and here {here}): to the model its ids are other words; go on with --tokenizer_name {checkpoint}"
        )


def has_other_metric(state: Mapping[str, Any], args: TranslationTrainingArguments) -> bool:
    """Return whether the best value in a Trainer's `state` is known to be one of another metric than that of `args`."""
    there = identity_in(state).get("settings", {}).get("metric_for_best_model")
    if state.get("best_metric") is None or there is None:
        return False
    return there.removeprefix("eval_") != args.metric_for_best_model


def dealt_to(checkpoint: str | Path, args: TranslationTrainingArguments) -> int:
    """Return among how many processes the batches of a checkpoint's run are dealt: those that the data began with.

    An epoch's batches are a multiple of them, and are the same on another number of processes only if they stay so.
    """
    there = {} if args.ignore_data_skip else _batches_in(checkpoint)
    return there.get("dealt_to", there.get("processes", args.world_size))


def check_dealt_evenly(batches: int, dealt: int, processes: int) -> None:
    """Check that all `processes` get as many of an epoch's batches, which were cut to be `dealt` to others.

    Raises:
        ValueError: if they do not.
    """
    if batches % processes:
        raise ValueError(
            f"an epoch of the resumed run has {batches} batches, a multiple of the {dealt} processes that it began "
            f"with, and not of {processes}: go on with {dealt} or a divisor of it{_HOW['processes']}, or begin the "
            "data anew with --ignore_data_skip true"
        )


def _batches_in(checkpoint: str | Path) -> dict[str, Any]:
    """Return what the batches of a checkpoint's run depended on, or else how many files of random states there are."""
    known = identity_in(read_trainer_state(checkpoint)).get("batches")
    if known:
        return known
    of_several = len([*Path(checkpoint).glob("rng_state_*.pth")])
    if of_several:
        return {"processes": of_several}
    return {"processes": 1} if (Path(checkpoint) / "rng_state.pth").is_file() else {}


def _check_whole(file: Path) -> None:
    """Check a file that `torch.save` wrote, a ZIP archive with checksums; raise an OSError if it is damaged."""
    try:
        with zipfile.ZipFile(file) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise ValueError(f"the checksum of {broken} is wrong")
        # Reads what is around the tensors, which no checksum covers.
        with safe_globals():
            torch.load(file, map_location="meta", mmap=True, weights_only=True)
    # Both readers raise whatever they stumble over.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise OSError(f"{file} is damaged: {reason}; copy it again, or name another checkpoint") from error


def check_same_model(checkpoint: str | Path, model: PreTrainedModel) -> None:
    """Check that a checkpoint is one of `model`, as it is configured now.

    Raises:
        FileNotFoundError: if it holds no weights or no configuration.
        OSError: if its weights are damaged.
        ValueError: if it is of another type, or a field of the configuration or a tensor differs.
    """
    found = read_config(checkpoint).get("model_type")
    if found != model.config.model_type:
        differences = [f"model_type is {found!r} there and {model.config.model_type!r} here"]
    else:
        differences = _different_fields(load_config(checkpoint), model.config) or _different_tensors(checkpoint, model)
    if differences:
        raise ValueError(
            f"resume_from_checkpoint is {str(checkpoint)!r}, a checkpoint of another model: "
            f"{first_names(differences, 4)}; train with the options of its run, or name a checkpoint of this one"
        )


def _different_fields(there: PreTrainedConfig, here: PreTrainedConfig) -> list[str]:
    of_all = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    names = [field.name for field in dataclasses.fields(here) if field.name not in of_all]
    pairs = {name: (getattr(there, name), getattr(here, name)) for name in names if not name.endswith(_FREE)}
    return [f"{name} is {old!r} there and {new!r} here" for name, (old, new) in pairs.items() if old != new]


def _different_tensors(checkpoint: str | Path, model: PreTrainedModel) -> list[str]:
    saved: dict[str, Any] = tensor_shapes(tensor_files(Path(checkpoint)))
    state = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    wrong = [name for name, shape in saved.items() if state.get(name) != shape]
    # A checkpoint holds one of several tied parameters.
    names_of: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names_of.setdefault(id(parameter), []).append(name)
    known = {*saved, *(model._keys_to_ignore_on_save or ())}
    missing = [names[0] for names in names_of.values() if not known.intersection(names)]
    return [
        f"{name} has shape {saved.get(name, 'none')} there and {state.get(name, 'none')} here"
        for name in sorted([*wrong, *missing])
    ]
