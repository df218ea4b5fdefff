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
