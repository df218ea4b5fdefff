"""The base of all models. They save the Python files that load them without this package."""

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers.dynamic_module_utils import custom_object_save


class PortableModel:
    """A mixin for a [`PreTrainedModel`], whose checkpoints carry the Python files that load them.

    `_no_split_modules` of a class covers all of its configurations. Each model keeps the names of modules that it has.
    """

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        # Fields may have changed since the configuration was made.
        config.validate()
        super().__init__(config, *args, **kwargs)

    def post_init(self) -> None:
        """Finish the initialisation, and drop names of modules that this model lacks: FSDP refuses them."""
        super().post_init()
        present = {type(module).__name__ for module in self.modules()}
        # Start from the names of the class, because Marian's models call this method twice.
        self._no_split_modules = present.intersection(type(self)._no_split_modules)

    def save_pretrained(
        self, save_directory: str | os.PathLike, *args: Any, push_to_hub: bool = False, **kwargs: Any
    ) -> None:
        """Save a model as [`PreTrainedModel.save_pretrained`] does, with the files that load it."""
        names = ("repo_id", "commit_message", "private", "create_pr")
        to_hub = {name: kwargs.pop(name) for name in names if name in kwargs}
        to_hub |= {name: kwargs[name] for name in ("token", "max_shard_size") if name in kwargs}
        super().save_pretrained(save_directory, *args, **kwargs)
        # Since Transformers 5.24 all processes call this method, and one of them writes.
        writes = getattr(self, "should_save_on_this_rank", bool)
        if not writes(args[0] if args else kwargs.get("is_main_process", True)):
            return
        # With an adapter, Transformers saves only that.
        if not getattr(self, "_hf_peft_config_loaded", False):
            self.complete_checkpoint(Path(save_directory))
        if push_to_hub:
            self.push_to_hub(**{"repo_id": Path(save_directory).name, **to_hub})

    def complete_checkpoint(self, folder: Path) -> None:
        """Add the Python files that load a saved model: those of this package, or those it was loaded with."""
        if not type(self).__module__.startswith("transformers_modules."):
            # Imported by name, because checkpoints carry this file without the package.
            import_module("hf_capsule_mt.hub.source").complete_checkpoint(self, folder)
            return
        custom_object_save(self, folder)
        fields = read_fields(folder)
        # Drop the repository from references such as "owner/name--modeling_rnmt.RNMTModel".
        for name, reference in fields.get("auto_map", {}).items():
            fields["auto_map"][name] = reference.rpartition("--")[2]
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
