"""What all models of this package have."""

from typing import Any

from .saved_source import SavedWithSource


class PortableModel(SavedWithSource):
    """Checks the fields of a [`PreTrainedModel`]'s configuration.

    The class names in `_no_split_modules` what any of its configurations may have; a model keeps those that it has.
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
