# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/configuration/source.py.
"""The source that this checkpoint carries, for saving it again."""

from pathlib import Path

IN_PACKAGE = False
FILES = (
    "configuration_checks.py",
    "configuration_portable.py",
    "configuration_recurrent.py",
    "configuration_rnmt.py",
    "configuration_source.py",
    "modeling_capsule_routing.py",
    "modeling_conditional_gru.py",
    "modeling_em_routing_function.py",
    "modeling_linear.py",
    "modeling_losses.py",
    "modeling_outputs.py",
    "modeling_recurrent.py",
    "modeling_recurrent_seq2seq.py",
    "modeling_rnmt.py",
    "modeling_routing.py",
    "modeling_safe_loading.py",
    "modeling_sentence_capsules.py",
    "pipeline.py",
)


def source_files(modules: frozenset[str]) -> dict[str, str]:
    """The text of every file of the source, by its name; `modules` are those it was written for."""
    return {name: (Path(__file__).parent / name).read_text(encoding="utf-8") for name in FILES}


def _never_called() -> None:
    # Transformers fetches what a file imports, and saving again needs every file.
    from .configuration_checks import __doc__ as _
    from .configuration_portable import __doc__ as _
    from .configuration_recurrent import __doc__ as _
    from .configuration_rnmt import __doc__ as _
    from .modeling_capsule_routing import __doc__ as _
    from .modeling_conditional_gru import __doc__ as _
    from .modeling_em_routing_function import __doc__ as _
    from .modeling_linear import __doc__ as _
    from .modeling_losses import __doc__ as _
    from .modeling_outputs import __doc__ as _
    from .modeling_recurrent import __doc__ as _
    from .modeling_recurrent_seq2seq import __doc__ as _
    from .modeling_rnmt import __doc__ as _
    from .modeling_routing import __doc__ as _
    from .modeling_safe_loading import __doc__ as _
    from .modeling_sentence_capsules import __doc__ as _
    from .pipeline import __doc__ as _
