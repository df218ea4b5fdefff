"""What tells a training run from others, and what its data depends on, in the state of each of its checkpoints."""

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from hf_capsule_mt.checkpoints import checkpoints, is_whole, last_checkpoint
from hf_capsule_mt.modeling.checkpoint_files import first_names
from hf_capsule_mt.trainer_state import read_trainer_state

LAST = "last"
"""In place of a checkpoint: the newest whole one of the run in the output folder."""
AUTO = "auto"
"""The same, and the start of the run where there is none."""

# Options that say where and how a run is started, and not which run it is.
_NOT_OF_THE_RUN = (
    *("output_dir", "run_name", "logging_dir", "resume_from_checkpoint", "overwrite_output_dir"),
    *("ignore_missing_state", "disable_tqdm", "report_to", "local_rank"),
)
# Left of a finished run in its folder, beside its checkpoints.
_LEFT = ("model*.safetensors*", "adapter", "weights.sha256", "trainer_state.json", "run_record.json")


class RunIdentity(TrainerCallback, ExportableState):
    """Adds to the `trainer_state.json` of every checkpoint an identifier of the run, its settings and its data."""

    def __init__(self) -> None:
        self.run = uuid4().hex
        self.settings: dict[str, Any] = {}
        """Options that are not at their default, by name."""
        self.batches: dict[str, Any] = {}
        """What the batches of every update depend on."""
        self.data_began = (0, 0)
        """The update after which the data was begun, and the number of the epoch that it was begun with."""
        self.tokenizer: str | None = None
        """The hash of the tokenizer's words, if there is one."""

    def state(self) -> dict[str, Any]:
        """Return what is saved, as the Trainer wants it."""
        names = "run", "settings", "batches", "data_began", "tokenizer"
        return {"args": {}, "attributes": {name: getattr(self, name) for name in names}}

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Go on with the run, and the data, of a Trainer's `state`; begin the data if that is empty."""
        there = identity_in(state)
        self.run = there.get("run", self.run)
        self.data_began = tuple(there.get("data_began", (0, 0)))

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Make the entry that the Trainer fills; the state of a checkpoint of a plain Trainer has none."""
        state.stateful_callbacks.setdefault(type(self).__name__, self.state())


def identity_in(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a [`RunIdentity`] has put into a Trainer's state, by name; empty if there is none."""
    saved = (state.get("stateful_callbacks") or {}).get(RunIdentity.__name__)
    attributes = saved.get("attributes") if isinstance(saved, dict) else None
    return attributes if isinstance(attributes, dict) else {}


def settings_of(arguments: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of dataclasses of options that are not at their default, without those of a single start."""
    found = {}
    for group in arguments:
        for field in dataclasses.fields(group):
            value = getattr(group, field.name)
            made = field.default_factory
            default = field.default if made is dataclasses.MISSING else made()
            is_plain = value is None or isinstance(value, str | int | float | list | dict)
            if is_plain and value != default and field.name not in _NOT_OF_THE_RUN:
                found[field.name] = value
    # As they are read again.
    return json.loads(json.dumps(found, default=str))


def check_same_everywhere(identity: RunIdentity, checkpoint: str | None, stream: Mapping[str, Any]) -> None:
    """Check that all processes have the same data, tokenizer and `checkpoint` to go on from: each looks by itself.

    Args:
        identity: of this process's run.
        checkpoint: that it goes on from, if there is one.
        stream: what decides the batches of a stream, if the data is one.

    Raises:
        ValueError: on every process, if one has another.
    """
    updates = None if checkpoint is None else read_trainer_state(checkpoint).get("global_step")
    here = {**identity.batches, **stream, "tokenizer": identity.tokenizer, "update to go on from": updates}
    first, *others = gather_object([here])
    for process, there in enumerate(others, start=1):
        name = next((name for name in {**first, **there} if first.get(name) != there.get(name)), None)
        if name is not None:
            raise ValueError(
                f"process {process} has {name} {there.get(name)}, and process 0 {first.get(name)}: they would train on "
                "different data; give all of them the same files, or a folder that they share"
            )


def check_no_other_run(
    args: TrainingArguments, settings: Mapping[str, Any], checkpoint: str | None, start: str | None = None
) -> None:
    """Check that the output folder holds neither checkpoints of a run nor what a finished one leaves.

    It may, if `checkpoint`, from which the run goes on, is one of them, or `args.overwrite_output_dir` gives them up.

    Raises:
        ValueError: if it does; the message names the `settings` that differ from those of the run in the folder; or if
            the model that the run starts from, `start`, is among what would be given up, or the run's own beginning.
    """
    folder = Path(args.output_dir)
    found = files_of_run(folder)
    if not found or _is_in(folder, checkpoint):
        return
    if args.overwrite_output_dir:
        if start and Path(start).resolve() in [path.resolve() for path in (folder, *checkpoints(folder))]:
            raise ValueError(
                f"overwrite_output_dir is true, and training starts from {start}, which would be deleted; name another "
                "output_dir"
            )
        if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
            raise ValueError(
                f"overwrite_output_dir is true, and torchrun starts this run again: {found[0]} would be deleted; start "
                f"it with --resume_from_checkpoint {AUTO}"
            )
        return
    there = next((saved for place in (*reversed(checkpoints(folder)), folder) if (saved := _settings_in(place))), None)
    go_on = "go on with that run (--resume_from_checkpoint last; in Python train(resume_from_checkpoint=True)), "
    raise ValueError(
        f"{folder} holds another run, {found[0].name}{_differences(there, settings)}; name another folder, "
        f"{go_on if last_checkpoint(folder) else ''}or delete it "
        "(--overwrite_output_dir true; overwrite_output_dir=True)"
    )


def files_of_run(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, and the files that a finished run leaves beside them."""
    return [*checkpoints(folder), *sorted(file for pattern in _LEFT for file in folder.glob(pattern))]


def remove_run(folder: Path, checkpoint: str | None) -> None:
    """Delete the checkpoints and results of a run, unless `checkpoint`, from which another goes on, is one of them."""
    for path in [] if _is_in(folder, checkpoint) else files_of_run(folder):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def remove_half_written(folder: Path) -> None:
    """Delete what a kill in a run's first save leaves, unless the folder holds anything else of a run."""
    if not any(path.is_file() or is_whole(path) for path in files_of_run(folder)):
        remove_run(folder, None)


def _is_in(folder: Path, checkpoint: str | None) -> bool:
    return checkpoint is not None and Path(checkpoint).resolve().parent == folder.resolve()


def _settings_in(checkpoint: Path) -> dict[str, Any] | None:
    return identity_in(read_trainer_state(checkpoint)).get("settings") if is_whole(checkpoint) else None


def _differences(there: Mapping[str, Any] | None, here: Mapping[str, Any]) -> str:
    """Return which settings differ, for a message; empty if those of the other run are unknown."""
    if there is None:
        return ""
    names = [name for name in sorted({*there, *here}) if there.get(name) != here.get(name)]
    if not names:
        return ", of the same settings"

    def text(settings: Mapping[str, Any], name: str) -> str:
        return repr(settings[name]) if name in settings else "the default"

    differences = [f"{name} is {text(there, name)} there and {text(here, name)} here" for name in names]
    return f": {first_names(differences, 4)}"
