"""What differs between the versions of Transformers that this package runs on."""

from dataclasses import fields

from torch import nn
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.output_capturing import OutputRecorder

CACHE = "cache" if "cache" in Seq2SeqLMOutput.__dataclass_fields__ else "past_key_values"
"""The name of the cache in the arguments and outputs of the installed Transformers."""

# From this version on Transformers accepts only the new name. Where there is no new name yet, nothing warns.
_OLD_NAME_UNTIL = "5.40.0" if CACHE == "cache" else "5.0.0"
under_both_names = deprecate_kwarg("past_key_values", _OLD_NAME_UNTIL, new_name="cache")
"""A decorator for a method with an argument `cache`, which may also be called `past_key_values`."""


def decoder_layers(kind: type[nn.Module]) -> OutputRecorder:
    """Return a recorder of the outputs of the decoder's layers, which are of the class `kind`."""
    # Since Transformers 5.24 hidden states can be chosen by negative numbers, which need the number of layers.
    if any(field.name == "num_hidden_layers_key" for field in fields(OutputRecorder)):
        return OutputRecorder(kind, num_hidden_layers_key="decoder_layers")
    return OutputRecorder(kind)
