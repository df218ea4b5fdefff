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
    "attention.py",
    "configuration_checks.py",
    "configuration_guided_routing.py",
    "configuration_portable.py",
    "configuration_recurrent.py",
    "configuration_rnmt.py",
    "configuration_source.py",
    "decoding_constraints.py",
    "decoding_engine.py",
    "decoding_finite_scores.py",
    "decoding_generation.py",
    "decoding_guided_routing.py",
    "decoding_int8.py",
    "decoding_products.py",
    "decoding_rnmt.py",
    "decoding_rows.py",
    "decoding_search.py",
    "decoding_stream.py",
    "decoding_vocabulary.py",
    "decoding_weights.py",
    "documents.py",
    "language_codes.py",
    "marked_segments.py",
    "markup.py",
    "modeling_cache_name.py",
    "modeling_checkpoint_files.py",
    "modeling_copied_weights.py",
    "modeling_decoding_settings.py",
    "modeling_guided_parts.py",
    "modeling_layers_conditional_gru.py",
    "modeling_layers_guided_losses.py",
    "modeling_layers_guided_routing.py",
    "modeling_layers_linear.py",
    "modeling_layers_recurrent.py",
    "modeling_layers_sentence_capsules.py",
    "modeling_ops_additive_scores.py",
    "modeling_ops_bag_of_words.py",
    "modeling_ops_guided_routing.py",
    "modeling_ops_log_partition.py",
    "modeling_ops_losses.py",
    "modeling_ops_masks.py",
    "modeling_ops_products.py",
    "modeling_ops_routing.py",
    "modeling_ops_scan.py",
    "modeling_ops_two_passes.py",
    "modeling_outputs.py",
    "modeling_portable_model.py",
    "modeling_recorded_layers.py",
    "modeling_recurrent_seq2seq.py",
    "modeling_rnmt.py",
    "modeling_translation_head.py",
    "modeling_untied_embeddings.py",
    "modeling_weight_hashes.py",
    "pipeline.py",
    "putting_back.py",
    "shared_weights.py",
    "source_limits.py",
    "teacher_forcing.py",
)


def source_files(modules: frozenset[str]) -> dict[str, str]:
    """The text of every file of the source, by its name; `modules` are those it was written for."""
    return {name: (Path(__file__).parent / name).read_text(encoding="utf-8") for name in FILES}


def _never_called() -> None:
    # Transformers fetches what a file imports, and saving again needs every file.
    from .attention import __doc__ as _
    from .configuration_checks import __doc__ as _
    from .configuration_guided_routing import __doc__ as _
    from .configuration_portable import __doc__ as _
    from .configuration_recurrent import __doc__ as _
    from .configuration_rnmt import __doc__ as _
    from .decoding_constraints import __doc__ as _
    from .decoding_engine import __doc__ as _
    from .decoding_finite_scores import __doc__ as _
    from .decoding_generation import __doc__ as _
    from .decoding_guided_routing import __doc__ as _
    from .decoding_int8 import __doc__ as _
    from .decoding_products import __doc__ as _
    from .decoding_rnmt import __doc__ as _
    from .decoding_rows import __doc__ as _
    from .decoding_search import __doc__ as _
    from .decoding_stream import __doc__ as _
    from .decoding_vocabulary import __doc__ as _
    from .decoding_weights import __doc__ as _
    from .documents import __doc__ as _
    from .language_codes import __doc__ as _
    from .marked_segments import __doc__ as _
    from .markup import __doc__ as _
    from .modeling_cache_name import __doc__ as _
    from .modeling_checkpoint_files import __doc__ as _
    from .modeling_copied_weights import __doc__ as _
    from .modeling_decoding_settings import __doc__ as _
    from .modeling_guided_parts import __doc__ as _
    from .modeling_layers_conditional_gru import __doc__ as _
    from .modeling_layers_guided_losses import __doc__ as _
    from .modeling_layers_guided_routing import __doc__ as _
    from .modeling_layers_linear import __doc__ as _
    from .modeling_layers_recurrent import __doc__ as _
    from .modeling_layers_sentence_capsules import __doc__ as _
    from .modeling_ops_additive_scores import __doc__ as _
    from .modeling_ops_bag_of_words import __doc__ as _
    from .modeling_ops_guided_routing import __doc__ as _
    from .modeling_ops_log_partition import __doc__ as _
    from .modeling_ops_losses import __doc__ as _
    from .modeling_ops_masks import __doc__ as _
    from .modeling_ops_products import __doc__ as _
    from .modeling_ops_routing import __doc__ as _
    from .modeling_ops_scan import __doc__ as _
    from .modeling_ops_two_passes import __doc__ as _
    from .modeling_outputs import __doc__ as _
    from .modeling_portable_model import __doc__ as _
    from .modeling_recorded_layers import __doc__ as _
    from .modeling_recurrent_seq2seq import __doc__ as _
    from .modeling_rnmt import __doc__ as _
    from .modeling_translation_head import __doc__ as _
    from .modeling_untied_embeddings import __doc__ as _
    from .modeling_weight_hashes import __doc__ as _
    from .pipeline import __doc__ as _
    from .putting_back import __doc__ as _
    from .shared_weights import __doc__ as _
    from .source_limits import __doc__ as _
    from .teacher_forcing import __doc__ as _
