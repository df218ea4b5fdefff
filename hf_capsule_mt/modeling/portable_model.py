"""The base of all models. They save the Python files that load them without this package."""

import os
import secrets
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedConfig
from transformers.dynamic_module_utils import custom_object_save


class PortableModel:
    """A mixin for a [`PreTrainedModel`], whose checkpoints carry the Python files that load them.

    `_no_split_modules` of a class covers all of its configurations. Each model keeps the names of modules that it has.
    """

    package_source: ClassVar[Callable[[Any, Path], PreTrainedConfig] | None] = None
    """Does the work of `write_source`. The installed package sets it. A copy of this file in a checkpoint lacks it."""

    def post_init(self) -> None:
        """Finish the initialisation, and drop names of modules that this model lacks: FSDP refuses them."""
        super().post_init()
        present = {type(module).__name__ for module in self.modules()}
        # Start from the names of the class, because Marian's models call this method twice.
        self._no_split_modules = present.intersection(type(self)._no_split_modules)

    def save_pretrained(
        self, save_directory: str | os.PathLike, *args: Any, push_to_hub: bool = False, **kwargs: Any
    ) -> None:
        """Save a model as [`PreTrainedModel.save_pretrained`] does, with the files that load it.

        Args:
            save_directory: the folder. It is made if it does not exist.
            *args: other arguments of [`PreTrainedModel.save_pretrained`].
            push_to_hub: whether to then send the model to the Hub, by the name of the folder or `repo_id`.
            **kwargs: other arguments of [`PreTrainedModel.save_pretrained`], and those of a push.
        """
        names = ("repo_id", "commit_message", "private", "create_pr")
        to_hub = {name: kwargs.pop(name) for name in names if name in kwargs}
        to_hub |= {name: kwargs[name] for name in ("token", "max_shard_size") if name in kwargs}
        is_main_process = args[0] if args else kwargs.get("is_main_process", True)
        # Since Transformers 5.24 all processes call this method, and one of them writes.
        writes = getattr(self, "should_save_on_this_rank", bool)(is_main_process)
        config = self.config
        # With an adapter, Transformers saves only that.
        if writes and not _has_adapter(self):
            # Before all else, so that config.json is written once, and complete.
            self.config = self.write_source(Path(save_directory))
        try:
            super().save_pretrained(save_directory, *args, **kwargs)
        finally:
            self.config = config
        if writes:
            allow_readers(Path(save_directory).glob("*model*.safetensors"))
        if writes and push_to_hub:
            self.push_to_hub(**{"repo_id": Path(save_directory).name, **to_hub})

    def write_source(self, folder: Path) -> PreTrainedConfig:
        """Write the Python files that load the model: those of the package, or those it was loaded with.

        Args:
            folder: where to write them. It is made if it does not exist.

        Returns:
            The configuration to save in the same folder.
        """
        folder.mkdir(parents=True, exist_ok=True)
        package_source = type(self).package_source
        if package_source is not None:
            return package_source(self, folder)
        custom_object_save(self, folder)
        return self.config


def allow_readers(weights: Iterable[Path]) -> None:
    """Let those read files of weights who may read new files. By itself safetensors lets only their owner.

    Args:
        weights: the files, which have just been written.
    """
    for path in weights:
        new_file = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        # Python can read the umask only by changing it, which would affect the files of other threads.
        new_file.touch()
        path.chmod(stat.S_IMODE(new_file.stat().st_mode))
        new_file.unlink()


def _has_adapter(model: Any) -> bool:
    """Return whether Transformers has loaded an adapter into a model. Without PEFT there is none."""
    try:
        model.active_adapters()
    except ValueError:
        return False
    return True
