"""Configurations that are saved together with the source of their models, so that checkpoints load anywhere."""

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

from huggingface_hub.errors import StrictDataclassFieldValidationError

from .checks import check_dtype, check_names, check_spelling, check_token_ids
from .source import IN_PACKAGE, source_files

_REMOTE_CODE = ("auto_map", "custom_pipelines")
# At the head of each file of the source.
_OURS = b"The hf-capsule-mt authors"
_PIPELINES = {
    "translation": {
        "impl": "translation_pipeline_translation.TranslationPipeline",
        "pt": ["AutoModelForSeq2SeqLM"],
        "type": "text",
    }
}


class PortableConfig:
    """Makes a [`PreTrainedConfig`] write its models' source beside `config.json`, wherever it is saved from.

    There, `auto_map` and `custom_pipelines` say which classes to load with `trust_remote_code=True`. In this package
    they are left out when a configuration is read, for its classes are known to Transformers without them.
    """

    auto_classes: ClassVar[dict[str, str]] = {}
    """Names of Auto classes, and the exported module and class that each is to load."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and not hasattr(type(self), name):
            check_names(type(self), [name])
        try:
            super().__setattr__(name, value)
        except StrictDataclassFieldValidationError as error:
            [field] = [field for field in fields(self) if field.name == name]
            allowed = getattr(field.type, "__name__", field.type)
            raise ValueError(f"{name} is {value!r:.80}; allowed are values of {allowed}") from error

    def __post_init__(self, **kwargs: Any) -> None:
        for alias in self.attribute_map.keys() & kwargs:
            setattr(self, self.attribute_map[alias], kwargs.pop(alias))
        check_names(type(self), kwargs)
        self.check_fields()
        check_dtype(self.dtype)
        check_dtype(kwargs.get("torch_dtype"))
        check_token_ids(self)
        super().__post_init__(**kwargs)

    def check_fields(self) -> None:
        """Check the fields of the family; raise a ValueError that names the field, the value and what is allowed."""

    def unread_fields(self) -> set[str]:
        """Name the fields that no part of the model reads, for what they belong to is switched off."""
        return set()

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build the configuration; fields among `kwargs` replace those of `config_dict` and are checked with them.

        In this package, the names of remote code are left out.

        Raises:
            ValueError: if a value is not allowed, or the name of a field is damaged or misspelt.
        """
        if IN_PACKAGE:
            config_dict = {name: value for name, value in config_dict.items() if name not in _REMOTE_CODE}
        check_spelling([field.name for field in fields(cls)], config_dict)
        check_names(cls, kwargs)
        names = {**cls.attribute_map, **{field.name: field.name for field in fields(cls)}}
        overrides = {field: kwargs[name] for name, field in names.items() if name in kwargs}
        return super().from_dict({**config_dict, **overrides}, **kwargs)

    def to_json_file(self, json_file_path: str | os.PathLike, use_diff: bool = True) -> None:
        """Write the configuration, and its models' source beside it.

        Raises:
            FileExistsError: if a file of that name is there which is not of this package's source.
            ValueError: if a field has been set to a value that is not allowed.
        """
        self.check_fields()
        folder = Path(json_file_path).parent
        modules = frozenset(reference.partition(".")[0] for reference in self.auto_classes.values())
        texts = source_files(modules)
        for name in texts:
            _check_ours(folder / name)
        for name, text in texts.items():
            _replace(folder / name, text)
        fields = self.to_diff_dict() if use_diff else self.to_dict()
        fields |= {"auto_map": self.auto_classes, "custom_pipelines": _PIPELINES}
        _replace(Path(json_file_path), json.dumps(fields, indent=2, sort_keys=True) + "\n")


def _check_ours(path: Path) -> None:
    """Raise a FileExistsError for a file that somebody else wrote."""
    if path.is_file() and _OURS not in path.read_bytes()[:1000]:
        raise FileExistsError(
            f"{path} is not of hf-capsule-mt, and the source of the model has a file of that name; save the model to a "
            "folder of its own"
        )


def _replace(path: Path, text: str) -> None:
    """Write a file at once, so that nobody reads half of it."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    # A link that somebody laid here would lead the text to another file.
    temporary.unlink(missing_ok=True)
    with open(temporary, "x", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
