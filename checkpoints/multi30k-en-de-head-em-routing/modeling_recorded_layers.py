# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/recorded_layers.py.
"""What Transformers records of a decoder as its hidden states."""

from dataclasses import fields

from torch import nn
from transformers.utils.output_capturing import OutputRecorder

# Since Transformers 5.24, where hidden states can be asked for by numbers, from behind too.
_COUNTED_BY = {"num_hidden_layers_key": "decoder_layers"}
_KNOWN = {field.name for field in fields(OutputRecorder)}


def decoder_layers(kind: type[nn.Module]) -> OutputRecorder:
    """Return the recorder of a decoder's layers of a `kind`, which may be more or fewer than the encoder's."""
    return OutputRecorder(kind, **{name: value for name, value in _COUNTED_BY.items() if name in _KNOWN})
