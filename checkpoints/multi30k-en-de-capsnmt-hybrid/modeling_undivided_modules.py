# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/undivided_modules.py.
"""What of a model is kept in one piece when its weights are spread over devices."""


class UndividedModules:
    """For a [`PreTrainedModel`] whose class names in `_no_split_modules` what any of its configurations may have."""

    def post_init(self) -> None:
        """Finish the initialisation, and keep those of the names whose modules are there."""
        super().post_init()
        present = {type(module).__name__ for module in self.modules()}
        # FSDP's wrapping refuses a class that the model lacks. The class's names, for Marian's models call this twice.
        self._no_split_modules = present.intersection(type(self)._no_split_modules)
