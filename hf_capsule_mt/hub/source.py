"""The Python files that a checkpoint carries: modules of `configuration/` and `modeling/`, one after the other."""

import ast
import textwrap
from dataclasses import fields as fields_of
from functools import cache
from pathlib import Path

from transformers import MarianConfig, PreTrainedModel
from transformers.models.marian.modeling_marian import MarianModel, MarianMTModel

from .. import modeling
from ..modeling.portable_model import read_fields, write_fields
from ..modeling.warm_start import is_plain
from ..version import __version__

_PACKAGE = Path(__file__).parents[1]
_PIPELINE = "pipeline_translation"
_CARRIED = f'''

def _carried() -> None:
    """Never runs. Transformers copies what a file imports, so the pipeline is there when the model is saved again."""
    from .{_PIPELINE} import TranslationPipeline  # noqa: F401
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
    "translation": {"impl": f"{_PIPELINE}.TranslationPipeline", "pt": ["AutoModelForSeq2SeqLM"], "type": "text"}
}


def complete_checkpoint(model: PreTrainedModel, folder: Path) -> None:
    """Add what loads a saved model where this package is not installed: Python files, or for a plain model nothing.

    A model without aggregation or guided routing is Marian, and its configuration says so.
    """
    fields = read_fields(folder)
    if isinstance(model, MarianModel | MarianMTModel) and is_plain(model.config):
        own = {field.name for field in fields_of(type(model.config))}
        own -= {"label_smoothing", *(field.name for field in fields_of(MarianConfig))}
        fields = {name: value for name, value in fields.items() if name not in own}
        kind = MarianModel if isinstance(model, MarianModel) else MarianMTModel
        write_fields(folder, {**fields, "architectures": [kind.__name__], "model_type": MarianConfig.model_type})
        return
    # Sharding gives a model a class of its own, made from that of the package.
    model_class = next(kind for kind in type(model).__mro__ if kind.__module__.startswith(f"{modeling.__name__}."))
    kinds = {getattr(model.config, f"{part}_aggregation", None) for part in ("layer", "head")}
    for name, text in files_of(model_class, "em_routing" in kinds).items():
        (folder / name).write_text(text, encoding="utf-8")
    fields["auto_map"] = _auto_map(model_class)
    if (folder / f"{_PIPELINE}.py").exists():
        fields["custom_pipelines"] = _CUSTOM_PIPELINES
    write_fields(folder, fields)


def _auto_map(model_class: type[PreTrainedModel]) -> dict[str, str]:
    family = model_class.config_class.model_type
    classifies = "ForSequenceClassification" in model_class.__name__
    classes = {
        auto_class: kind
        for auto_class, kinds in modeling.AUTO_MODELS.items()
        for kind in kinds
        if kind.config_class is model_class.config_class
        and ("ForSequenceClassification" in kind.__name__) == classifies
    }
    references = {auto_class: f"modeling_{family}.{kind.__name__}" for auto_class, kind in classes.items()}
    return {"AutoConfig": f"configuration_{family}.{model_class.config_class.__name__}", **references}


@cache
def files_of(model_class: type[PreTrainedModel], em_routing: bool) -> dict[str, str]:
    """Return the files for a model, by name."""
    configuration = f"configuration_{model_class.config_class.model_type}"
    modeling = f"modeling_{model_class.config_class.model_type}"
    roots = [model_class.__module__.rpartition(".")[2], *(["em_routing"] if em_routing else [])]
    files = {
        f"{configuration}.py": _concatenate("configuration", [configuration]),
        f"{modeling}.py": _concatenate("modeling", roots, configuration),
    }
    if em_routing:
        files[f"{_KERNELS}.py"] = _concatenate("modeling", [_KERNELS])
    if "ForSequenceClassification" not in model_class.__name__:
        files[f"{_PIPELINE}.py"] = (_PACKAGE / "translation" / f"{_PIPELINE}.py").read_text(encoding="utf-8")
        files[f"{modeling}.py"] += _CARRIED
    return files


def _concatenate(room: str, roots: list[str], configuration: str = "") -> str:
    """Return the modules that `roots` import from their room, and those, as one module."""
    plain: set[str] = set()
    named: dict[str, set[str]] = {}
    bodies: dict[str, str] = {}

    def add(name: str) -> None:
        if name in bodies:
            return
        text = (_PACKAGE / room / f"{name}.py").read_text(encoding="utf-8")
        text = text.removeprefix(_LICENCE.partition("\n")[0])
        lines = text.splitlines(keepends=True)
        bodies[name] = ""
        for node in ast.parse(text).body:
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                add(node.module)
            elif isinstance(node, ast.ImportFrom):
                module = f".{configuration}" if node.level else node.module
                named.setdefault(module, set()).update(map(ast.unparse, node.names))
            elif isinstance(node, ast.Import):
                plain.update(map(ast.unparse, node.names))
        bodies.pop(name)  # Behind what it imports.
        bodies[name] = "".join(lines).strip()

    for root in roots:
        add(root)
    made = f"# Made by hf-capsule-mt {__version__} from its modules {', '.join(bodies)}.\n"
    wrapped = textwrap.fill(made, 120, subsequent_indent="#   ") + "\n"
    imports = [f"import {name}" for name in sorted(plain)]
    for module, names in sorted(named.items(), key=lambda item: item[0].startswith(".")):
        line, lines = ", ".join(sorted(names)), ",\n    ".join(sorted(names))
        imports.append(f"from {module} import {line}" if len(line) < 80 else f"from {module} import (\n    {lines},\n)")
    return _LICENCE + wrapped + "\n\n\n".join(["\n".join(imports), *bodies.values()]) + "\n"
