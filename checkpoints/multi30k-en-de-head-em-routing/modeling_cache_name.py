# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/cache_name.py.
"""The name of a decoder's cache: `cache` in Transformers 5.24 and later, `past_key_values` before."""

from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils.deprecation import deprecate_kwarg

CACHE = "cache" if "cache" in Seq2SeqLMOutput.__dataclass_fields__ else "past_key_values"
"""What the installed Transformers calls it, in the arguments of models and in their outputs."""

# Deprecated where Transformers has it so; there is no warning of what was removed before the installed version.
under_both_names = deprecate_kwarg("past_key_values", "5.40.0" if CACHE == "cache" else "5.0.0", new_name="cache")
"""Decorator of a method that has an argument `cache`: it may be called with `past_key_values` too."""
