"""Where LoRA's adapters go in the models of this package, for PEFT."""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# In place of the output projection, or beside it.
_HEADS = [f"{place}.{linear}" for place in ("out_proj", "routed") for linear in ("inputs", "votes")]
_GUIDED = ["guided_votes.votes", "guided_votes.keys", "guided_routing.queries", "fc1", "fc2"]
_SENTENCE = ["projection", "scoring.0", "scoring.2"]

LORA_TARGETS: dict[str, list[str]] = {
    "capsule_aggregated_marian": ["q_proj", "k_proj", "v_proj", *_HEADS, *_GUIDED],
    "rnmt": [
        *("key_projection", "query", "start", "from_words", "from_hidden", "from_context", "readout"),
        *_SENTENCE,
        *_GUIDED,
    ],
    "caps_nmt": _SENTENCE,
}
"""By model type: the names of linear maps that adapt a model, for `LoraConfig(target_modules=...)`."""

LORA_PARAMETERS: dict[str, list[str]] = {
    "rnmt": [f"{gru}.weight_{side}_l0" for gru in ("forward_gru", "backward_gru") for side in ("ih", "hh")],
    "caps_nmt": [
        f"{lstm}.weight_{side}_l0" for lstm in ("forward_lstm", "backward_lstm", "lstm") for side in ("ih", "hh")
    ],
}
"""By model type: the weights of recurrent layers, which are no linear maps, for `LoraConfig(target_parameters=...)`."""

_CONSTANTS = "peft.utils.constants"


def register_lora_targets() -> None:
    """Let a `LoraConfig` without `target_modules` take [`LORA_TARGETS`], now or when PEFT is imported."""
    if _CONSTANTS in sys.modules:
        _add_targets(sys.modules[_CONSTANTS])
    elif not any(isinstance(finder, _WaitForPeft) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WaitForPeft())


def _add_targets(constants: ModuleType) -> None:
    constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.update(LORA_TARGETS)


class _WaitForPeft(MetaPathFinder):
    """Adds the targets as soon as PEFT's are there: PEFT takes no plug-ins, and importing it here takes time."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != _CONSTANTS:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_add(module: ModuleType) -> None:
                execute(module)
                _add_targets(module)

            spec.loader.exec_module = execute_and_add
        return spec
