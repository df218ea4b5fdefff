"""What of a model is kept in one piece when its weights are spread over devices."""


class UndividedModules:
    """For a [`PreTrainedModel`] whose class names in `_no_split_modules` what any of its configurations may have."""

    def post_init(self) -> None:
        """Finish the initialisation, and keep those of the names whose modules are there."""
        super().post_init()
        present = {type(module).__name__ for module in self.modules()}
        # FSDP's wrapping refuses a class that the model lacks. The class's names, for Marian's models call this twice.
        self._no_split_modules = present.intersection(type(self)._no_split_modules)
