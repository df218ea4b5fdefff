"""Models whose weights are read from safetensors alone."""

import os
from typing import Any


class SafetensorsOnly:
    """For a [`PreTrainedModel`]: no other format is loaded unless asked for, since a pickle runs what it holds."""

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike | None,
        *model_args: Any,
        use_safetensors: bool | None = True,
        **kwargs: Any,
    ) -> Any:
        """Load a model as [`PreTrainedModel.from_pretrained`] does, with its arguments."""
        return super().from_pretrained(
            pretrained_model_name_or_path, *model_args, use_safetensors=use_safetensors, **kwargs
        )
