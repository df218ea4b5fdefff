"""A model in a few sentences, as its card and the demo show it."""

from pathlib import Path

import yaml
from transformers import PreTrainedConfig

_DESCRIPTIONS = Path(__file__).with_name("architecture.yaml")


def describe_architecture(config: PreTrainedConfig) -> str:
    """Return a few sentences on the model with this configuration."""
    wording = yaml.safe_load(_DESCRIPTIONS.read_text(encoding="utf-8"))
    sizes = []
    for field, name in wording["sizes"].items():
        size = getattr(config, field, None)
        if size:
            sizes.append(f"{name} {size}")

    family = wording["families"].get(config.model_type, f"A model of type `{config.model_type}`")
    sentences = [f"{family} ({', '.join(sizes)})."]
    for field, beginning in wording["parts"].items():
        # A stranger's Marian model may have any field, which means nothing in its class.
        value = getattr(config, field, None) if hasattr(type(config), field) else None
        if value:
            # An algorithm that a user registered has no wording.
            method = wording["values"].get(value, value.replace("_", " "))
            if method is not None:
                sentences.append(f"{beginning} {method}.")
    return " ".join(sentences)
