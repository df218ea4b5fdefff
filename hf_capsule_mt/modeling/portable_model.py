"""What all models have: they save the Python files that load them where this package is not installed."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from transformers.dynamic_module_utils import custom_object_save
from transformers.utils import cached_file

PIPELINE_FILE = "pipeline_translation.py"


class PortableModel:
    """For a [`PreTrainedModel`]: checkpoints carry the Python files that load them with `trust_remote_code=True`.

    The class names in `_no_split_modules` what any of its configurations may have. A model keeps those that it has.
    """

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        # Fields may have been set since the configuration was made.
        config.validate()
        super().__init__(config, *args, **kwargs)

    def post_init(self) -> None:
        """Finish the initialisation, and keep those of the names whose modules are there."""
        super().post_init()
        present = {type(module).__name__ for module in self.modules()}
        # FSDP's wrapping refuses a class that the model lacks. The class's names, for Marian's models call this twice.
        self._no_split_modules = present.intersection(type(self)._no_split_modules)

    def save_pretrained(
        self, save_directory: str | os.PathLike, *args: Any, push_to_hub: bool = False, **kwargs: Any
    ) -> None:
        """Save a model as [`PreTrainedModel.save_pretrained`] does, with the files that load it."""
        to_hub = {name: kwargs.pop(name) for name in ("repo_id", "commit_message", "private") if name in kwargs}
        super().save_pretrained(save_directory, *args, **kwargs)
        # Transformers 5.24 lets each process call this, and one of them write.
        writes = getattr(self, "should_save_on_this_rank", bool)
        # An adapter is saved without the model.
        if not writes(args[0] if args else kwargs.get("is_main_process", True)) or not self._saves_config():
            return
        self.complete_checkpoint(Path(save_directory))
        if push_to_hub:
            self.push_to_hub(**{"repo_id": Path(save_directory).name, **to_hub}, token=kwargs.get("token"))

    def _saves_config(self) -> bool:
        return not getattr(self, "_hf_peft_config_loaded", False)

    def complete_checkpoint(self, folder: Path) -> None:
        """Add Python files to a saved model: those that it was loaded with. The package writes them anew instead."""
        custom_object_save(self, folder)
        fields = read_fields(folder)
        # Names of files on the Hub are not those of this folder.
        for name, reference in fields.get("auto_map", {}).items():
            fields["auto_map"][name] = reference.rpartition("--")[2]
        where = {"revision": getattr(self.config, "_commit_hash", None), "_raise_exceptions_for_missing_entries": False}
        pipeline = cached_file(self.config._name_or_path, PIPELINE_FILE, **where)
        if pipeline is None:
            fields.pop("custom_pipelines", None)
        else:
            shutil.copyfile(pipeline, folder / PIPELINE_FILE)
            for task in fields.get("custom_pipelines", {}).values():
                task["impl"] = task["impl"].rpartition("--")[2]
        write_fields(folder, fields)


def read_fields(folder: Path) -> dict[str, Any]:
    """Read the configuration of a saved model."""
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def write_fields(folder: Path, fields: dict[str, Any]) -> None:
    """Write the configuration of a saved model."""
    text = json.dumps(fields, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
