"""The Python files that a checkpoint carries: modules of `configuration/` and `modeling/`, one after the other."""

import ast
import logging
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from functools import cache
from pathlib import Path
from typing import Any

from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Model,
    MarianConfig,
    MarianModel,
    MarianMTModel,
    PreTrainedConfig,
    PreTrainedModel,
)

from .. import modeling
from ..modeling.aggregation import COMBINATIONS
from ..modeling.portable_model import PortableModel
from ..modeling.routing import ROUTINGS
from ..modeling.streams import STREAMS
from ..modeling.warm_start import is_plain
from ..version import __version__

logger = logging.getLogger(__name__)

_PACKAGE = Path(__file__).parents[1]
_MODELING = f"{modeling.__name__}."
"""How the names of modules begin that a checkpoint can carry."""
_PIPELINE = "pipeline_translation"
"""What checkpoints call the file of their pipeline."""
_CARRIED = f'''

def _carried() -> None:
    """Never runs. Transformers copies what a file imports, so the pipeline is there when the model is saved again."""
    from .{_PIPELINE} import SentenceTranslationPipeline  # noqa: F401
'''
_LICENCE = """# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
"""
_KERNELS = "em_routing_kernels"
_CUSTOM_PIPELINES = {
    "translation": {"impl": f"{_PIPELINE}.SentenceTranslationPipeline", "pt": ["AutoModelForSeq2SeqLM"], "type": "text"}
}
_PLAIN_CLASSES = {
    MarianModel: MarianConfig,
    MarianMTModel: MarianConfig,
    M2M100Model: M2M100Config,
    M2M100ForConditionalGeneration: M2M100Config,
}
"""The models of Transformers as which models without aggregation or guided routing are saved."""


def register() -> None:
    """Let the models of this package write its source when they are saved. Models in checkpoints copy their own."""
    PortableModel.package_source = write_source


def write_source(model: PreTrainedModel, folder: Path) -> PreTrainedConfig:
    """Write the Python files that load a model where this package is not installed. A plain model needs none.

    Args:
        model: a model of this package.
        folder: where the model is saved. It must exist.

    Returns:
        The configuration to save in the same folder. That of a model without aggregation or guided routing says that
        it is Marian or M2M-100.
    """
    for plain_class, config_class in _PLAIN_CLASSES.items():
        if isinstance(model, plain_class) and is_plain(model.config):
            return _as_plain(model, plain_class, config_class)

    model_class = _class_of_package(model)
    files = files_of(model_class, _carried_modules(model.config))
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")

    references: dict[str, Any] = {"auto_map": _auto_map(model_class)}
    if not _classifies(model_class):
        references["custom_pipelines"] = _CUSTOM_PIPELINES
    model.config.source_references = references
    return model.config


def _class_of_package(model: PreTrainedModel) -> type[PreTrainedModel]:
    """Return the class of a model. Sharding gives it another one, which is made from that of the package."""
    for model_class in type(model).__mro__:
        if model_class.__module__.startswith(_MODELING):
            return model_class
    raise TypeError(f"{type(model).__name__} is not a model of this package.")


def _as_plain(
    model: PreTrainedModel, plain_class: type[PreTrainedModel], config_class: type[PreTrainedConfig]
) -> PreTrainedConfig:
    """Return the configuration of a plain model without the fields that the class of Transformers lacks.

    Label smoothing stays.

    Args:
        model: the model.
        plain_class: its class in Transformers.
        config_class: the class of that one's configuration.
    """

    class SavedAsPlain(config_class):
        """The configuration in the checkpoint."""

        def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
            """Save it. Transformers has just set the class of the model, which is one of this package."""
            self.architectures = [plain_class.__name__]
            super().save_pretrained(*args, **kwargs)

    plain_names = {field.name for field in fields_of(config_class)}
    added_names = {field.name for field in fields_of(type(model.config))} - plain_names
    fields = model.config.to_dict()
    for name in added_names - {"label_smoothing"}:
        fields.pop(name, None)
    fields["model_type"] = config_class.model_type
    return SavedAsPlain.from_dict(fields)


def own_aggregations(config: PreTrainedConfig) -> dict[str, str]:
    """Return which aggregations of a model stand outside the package. No checkpoint carries them.

    Args:
        config: of the model.

    Returns:
        The module of each, by the field of the configuration that names it.
    """
    modules = {}
    for field_name, module in _aggregation_modules(config).items():
        if not module.startswith(_MODELING):
            modules[field_name] = module
    return modules


def _aggregation_modules(config: PreTrainedConfig) -> dict[str, str]:
    """Return the module that defines each aggregation of a model, by the field of the configuration that names it."""
    modules = {}
    for field_name in ("layer_aggregation", "head_aggregation"):
        aggregation = getattr(config, field_name, None)
        known: Mapping[str, type] = {}
        if field_name == "layer_aggregation" and aggregation is not None:
            known = STREAMS if config.layer_aggregation_place == "layers" else COMBINATIONS
        if aggregation in known:
            modules[field_name] = known[aggregation].__module__
        elif aggregation in ROUTINGS:
            modules[field_name] = ROUTINGS[aggregation].route.__module__
    return modules


def _carried_modules(config: PreTrainedConfig) -> tuple[str, ...]:
    """Return the modules of the package that define a model's aggregations. Warn of one from elsewhere."""
    own_modules = own_aggregations(config)
    for field_name, module in own_modules.items():
        logger.warning(
            "The checkpoint does not carry the %s %r of %s. Keep that code. In Python, import it and hf_capsule_mt "
            "before you load the checkpoint, without trust_remote_code. Commands of hf-capsule-mt take --import.",
            field_name,
            getattr(config, field_name),
            module,
        )

    names = set()
    for field_name, module in _aggregation_modules(config).items():
        if field_name not in own_modules:
            names.add(module.removeprefix(_MODELING))
    return tuple(sorted(names))


def _auto_map(model_class: type[PreTrainedModel]) -> dict[str, str]:
    """Return the class in the carried files for each Auto class of Transformers."""
    config_class = model_class.config_class
    family = config_class.model_type
    references = {"AutoConfig": f"configuration_{family}.{config_class.__name__}"}
    for auto_class, kinds in modeling.AUTO_MODELS.items():
        for kind in kinds:
            if kind.config_class is config_class and _classifies(kind) == _classifies(model_class):
                references[auto_class] = f"modeling_{family}.{kind.__name__}"
    return references


def _classifies(model_class: type[PreTrainedModel]) -> bool:
    """Return whether a model is a classifier, which needs other files."""
    return "ForSequenceClassification" in model_class.__name__


@cache
def files_of(model_class: type[PreTrainedModel], aggregation_modules: tuple[str, ...]) -> dict[str, str]:
    """Return the text of the files for a model, by name.

    Args:
        model_class: the class of the model, of this package.
        aggregation_modules: modules of `modeling/` with the aggregations that the model uses.
    """
    family = model_class.config_class.model_type
    configuration_file = f"configuration_{family}"
    modeling_file = f"modeling_{family}"
    roots = [model_class.__module__.rpartition(".")[2], *aggregation_modules]

    files = {
        f"{configuration_file}.py": _concatenate("configuration", [configuration_file]),
        f"{modeling_file}.py": _concatenate("modeling", roots, configuration_file),
    }

    if "em_routing" in aggregation_modules:
        files[f"{_KERNELS}.py"] = _concatenate("modeling", [_KERNELS])
    if not _classifies(model_class):
        files[f"{_PIPELINE}.py"] = (_PACKAGE / "translation" / "portable_pipeline.py").read_text(encoding="utf-8")
        files[f"{modeling_file}.py"] += _CARRIED
    return files


@dataclass
class _Module:
    """A module of the package, taken apart.

    Attributes:
        body: its code, without the imports at the top.
        siblings: the modules of its room that it imports.
        plain_imports: the modules of `import module`.
        named_imports: the names of `from module import name`, by module. The configuration room is the module "..".
    """

    body: str = ""
    siblings: list[str] = field(default_factory=list)
    plain_imports: set[str] = field(default_factory=set)
    named_imports: dict[str, set[str]] = field(default_factory=dict)


def _concatenate(room: str, roots: list[str], configuration_file: str = "") -> str:
    """Return several modules as one.

    Args:
        room: the folder of the modules in the package.
        roots: the modules. What they import from their room is added.
        configuration_file: the carried file with all that they import from the configuration room.
    """
    modules = _in_import_order(room, roots)
    plain_imports: set[str] = set()
    named_imports: dict[str, set[str]] = {}
    for module in modules.values():
        plain_imports |= module.plain_imports
        for source, names in module.named_imports.items():
            imported_from = f".{configuration_file}" if source == ".." else source
            named_imports.setdefault(imported_from, set()).update(names)

    imports = _import_lines(plain_imports, named_imports)
    parts = ["\n".join(imports)]
    parts += [module.body for module in modules.values()]
    code = "\n\n\n".join(parts)

    made_from = f"# Made by hf-capsule-mt {__version__} from its modules {', '.join(modules)}."
    wrapped = textwrap.fill(made_from, 120, subsequent_indent="#   ")
    return f"{_LICENCE}{wrapped}\n{code}\n"


def _in_import_order(room: str, roots: list[str]) -> dict[str, _Module]:
    """Return the modules by name, each behind those that it imports."""
    ordered: dict[str, _Module] = {}

    def visit(name: str) -> None:
        if name in ordered:
            return
        module = _take_apart(_PACKAGE / room / f"{name}.py")
        for sibling in module.siblings:
            visit(sibling)
        ordered[name] = module

    for root in roots:
        visit(root)
    return ordered


def _take_apart(path: Path) -> _Module:
    """Return a module's code and its imports."""
    text = path.read_text(encoding="utf-8")
    # The line of copyright that a configuration needs. The carried file has it once, with the licence.
    text = text.removeprefix(_LICENCE.partition("\n")[0])
    lines = text.splitlines(keepends=True)
    module = _Module()

    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            module.plain_imports.update(map(ast.unparse, node.names))
        elif isinstance(node, ast.ImportFrom) and node.level == 1:
            module.siblings.append(node.module)
        elif isinstance(node, ast.ImportFrom):
            source = ".." if node.level else node.module
            module.named_imports.setdefault(source, set()).update(map(ast.unparse, node.names))
        else:
            continue

        for number in range(node.lineno - 1, node.end_lineno):
            lines[number] = ""

    module.body = "".join(lines).strip()
    return module


def _import_lines(plain: set[str], named: dict[str, set[str]]) -> list[str]:
    """Return the import statements of a file, those of other carried files last."""
    statements = [f"import {module}" for module in sorted(plain)]
    carried = {module for module in named if module.startswith(".")}

    for module in [*sorted(named.keys() - carried), *sorted(carried)]:
        names = sorted(named[module])
        line = ", ".join(names)
        if len(line) < 80:
            statements.append(f"from {module} import {line}")
        else:
            lines = ",\n    ".join(names)
            statements.append(f"from {module} import (\n    {lines},\n)")
    return statements
