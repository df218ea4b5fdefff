# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/copied_weights.py.
"""The weights of a trained model as the beginning of one that has more."""

from collections.abc import Collection

from transformers import PreTrainedModel
from transformers.integrations.fsdp import is_fsdp_enabled


def copy_weights(
    model: PreTrainedModel, trained: PreTrainedModel, added: tuple[str, ...], dropped: Collection[str] = ()
) -> set[str]:
    """Give a model the weights of a trained one.

    Args:
        model: changed in place.
        trained: the other model.
        added: beginnings of the names of weights that the model alone has.
        dropped: names of weights that the trained model alone may have.

    Returns:
        The names among `dropped` that it has.

    Raises:
        ValueError: if other weights are there once, one is of another shape, or one is offloaded or a part.
    """
    if any(hasattr(weight, "ds_id") for each in (model, trained) for weight in each.parameters()):
        raise ValueError(
            f"DeepSpeed's ZeRO-3 leaves this process parts of the weights of the {type(trained).__name__}, and no new "
            "model can begin with these; make it and save it before the training arguments with DeepSpeed's are made, "
            "and load that"
        )
    weights = trained.state_dict()
    elsewhere = {name for name, weight in weights.items() if weight.is_meta}
    if elsewhere and not is_fsdp_enabled():
        raise ValueError(
            f"weights of the {type(trained).__name__} are not in memory, as after device_map with too little of it; "
            "load it whole, without device_map"
        )
    own = model.state_dict()
    # Computed, of as many positions as the configuration has.
    positions = {name for name in own.keys() & weights.keys() if name.endswith("embed_positions.weight")}
    left_out = elsewhere | {name for name in positions if own[name].shape != weights[name].shape}
    do_not_fit = f"the weights of the {type(trained).__name__} do not fit the configuration"
    try:
        # What one process of FSDP lacks it is sent by another, whose model has it.
        present = {name: weight for name, weight in weights.items() if name not in left_out}
        report = model.load_state_dict(present, strict=False)
    except RuntimeError as error:
        first = " ".join(line.strip() for line in str(error).splitlines()[1:2])
        raise ValueError(f"{do_not_fit}: {first}") from error
    unused = {key for key in report.unexpected_keys if key in dropped}
    strange = [
        *(key for key in report.missing_keys if not key.startswith(added) and key not in left_out),
        *(key for key in report.unexpected_keys if key not in unused),
    ]
    if strange:
        raise ValueError(f"{do_not_fit}: {', '.join(strange)}")
    model.tie_weights()
    return unused
