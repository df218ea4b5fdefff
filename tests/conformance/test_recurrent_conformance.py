"""Transformers' own tests of a model, run on the recurrent families.

Tests that need an accelerator, deepspeed, flash attention and the like skip themselves where those are missing.
"""

import unittest
from unittest import mock

import pytest
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES
from transformers_suite import import_suite

from hf_capsule_mt import (
    CapsNMTConfig,
    CapsNMTForConditionalGeneration,
    CapsNMTModel,
    RNMTConfig,
    RNMTForConditionalGeneration,
    RNMTModel,
)

import_suite()

from transformers_model_tests.test_modeling_common import GenerationTesterMixin, ModelTesterMixin, ids_tensor  # noqa: E402

pytestmark = pytest.mark.slow

NO_SELF_ATTENTION = "no self-attention, and one implementation of RNMT's additive attention"
# The tests that may find out that they do not apply. Another that does so fails.
NOT_APPLICABLE = {
    "test_attention_outputs": NO_SELF_ATTENTION,
    "test_attn_implementation_composite_models": "one configuration, not one a part",
    "test_can_capture_specific_layers_hidden_states": "two stacks, each with its own name for hidden states",
    "test_can_load_from_already_mapped_keys": "no weights are renamed at loading",
    "test_can_set_attention_dynamically": NO_SELF_ATTENTION,
    "test_causal_lm_loss_honors_shift_labels": "no decoder-only model",
    "test_eager_matches_batched_and_grouped_inference": "no experts",
    "test_eager_matches_sdpa_inference": NO_SELF_ATTENTION,
    "test_internal_model_config_and_subconfig_are_same": "one configuration, not one a part",
    "test_keep_in_fp32_modules": "no module is kept in float32",
    "test_model_rope_scaling": "no rotary positions",
    "test_model_rope_with_partial_rotation": "no rotary positions",
    "test_moe_models_record_router_logits": "no experts",
    "test_output_router_logits_from_config": "no experts",
    "test_resize_position_vector_embeddings": "no positions are learned",
    "test_reverse_loading_mapping": "no weights are renamed at loading",
    "test_sdpa_can_dispatch_composite_models": NO_SELF_ATTENTION,
    "test_sdpa_can_dispatch_non_composite_models": NO_SELF_ATTENTION,
    "test_sliding_window_mask": NO_SELF_ATTENTION,
    "test_tied_head_has_a_tp_plan_entry": "no plan for tensor parallelism, as in Marian",
    "test_tp_plan_matches_params": "no plan for tensor parallelism, as in Marian",
    "test_vision_axial_rope": "no rotary positions",
}
KINDS = {
    "capsule": {},
    "no_strategies": {
        "position_aware_routing": False,
        "share_routing_weights": True,
        "separable_scoring": False,
    },
    "pooling": {"sentence_aggregation": "pooling"},
    "rnmt": {"sentence_aggregation": None},
    "hybrid": {"sentence_aggregation": "capsule"},
    "guided": {"guided_routing": "gdr", "guided_capsule_dim": 4},
}


class ModelTester:
    """The tiny model that the tests make, and its inputs."""

    batch_size = 5
    seq_length = 7
    is_training = True
    hidden_size = 16
    num_hidden_layers = 2
    config_class = CapsNMTConfig
    vocab_size = 99
    pad_token_id = 1

    def __init__(self, fields):
        self.fields = {"decoder_layers": self.num_hidden_layers, **fields}

    def get_config(self):
        return self.config_class(
            vocab_size=self.vocab_size,
            d_model=self.hidden_size,
            encoder_layers=self.num_hidden_layers,
            num_sentence_capsules=3,
            dropout=0.1,
            bos_token_id=0,
            pad_token_id=self.pad_token_id,
            eos_token_id=2,
            decoder_start_token_id=3,
            **self.fields,
        )

    def prepare_config_and_inputs_for_common(self):
        input_ids, decoder_input_ids = (
            ids_tensor([self.batch_size, self.seq_length], self.vocab_size).clamp(3) for _ in range(2)
        )
        input_ids[0, -2:] = self.pad_token_id
        inputs = {
            "input_ids": input_ids,
            "decoder_input_ids": decoder_input_ids,
            "attention_mask": input_ids.ne(self.pad_token_id),
            "decoder_attention_mask": decoder_input_ids.ne(self.pad_token_id),
        }
        return self.get_config(), inputs


class RNMTTester(ModelTester):
    """The same for RNMT, whose decoder has one layer: so has the encoder."""

    num_hidden_layers = 1
    config_class = RNMTConfig

    def __init__(self, fields):
        self.fields = fields


class Conformance(ModelTesterMixin, GenerationTesterMixin):
    model_maker = ModelTester
    all_model_classes = (CapsNMTModel, CapsNMTForConditionalGeneration)
    is_encoder_decoder = True
    has_attentions = False

    def setUp(self):
        self.model_tester = self.model_maker(KINDS[self.kind])
        mappings = (MODEL_MAPPING_NAMES, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
        for mapping, model_class in zip(mappings, self.all_model_classes):
            # The tests look a model up by name, to know whether it takes labels.
            names = mock.patch.dict(mapping, {self.model_maker.config_class.model_type: model_class.__name__})
            names.start()
            self.addCleanup(names.stop)

    def skipTest(self, reason):
        if not self._testMethodName.startswith(tuple(NOT_APPLICABLE)):
            self.fail(f"does not run, but is not known not to apply: {reason}")
        super().skipTest(reason)


class CapsuleTest(Conformance, unittest.TestCase):
    kind = "capsule"


class NoStrategiesTest(Conformance, unittest.TestCase):
    kind = "no_strategies"


class PoolingTest(Conformance, unittest.TestCase):
    kind = "pooling"


class RNMTConformance(Conformance):
    model_maker = RNMTTester
    all_model_classes = (RNMTModel, RNMTForConditionalGeneration)


class RNMTTest(RNMTConformance, unittest.TestCase):
    kind = "rnmt"


class HybridTest(RNMTConformance, unittest.TestCase):
    kind = "hybrid"


class GuidedTest(RNMTConformance, unittest.TestCase):
    kind = "guided"
