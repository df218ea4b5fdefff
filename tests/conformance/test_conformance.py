"""Transformers' own tests of a model, run on every kind of aggregation.

Tests that need an accelerator, deepspeed, flash attention and the like skip themselves where those are missing.
"""

import unittest
from unittest import mock

import pytest
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)
from transformers_suite import import_suite

from hf_capsule_mt import (
    CapsuleAggregatedMarianConfig,
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianForSequenceClassification,
    CapsuleAggregatedMarianModel,
)

import_suite()

from transformers_model_tests.test_modeling_common import GenerationTesterMixin, ModelTesterMixin, ids_tensor  # noqa: E402

pytestmark = pytest.mark.slow

# The tests that may find out that they do not apply, as they do with MarianMTModel. Another that does so fails.
NOT_APPLICABLE = {
    "test_attn_implementation_composite_models": "one configuration, not one a part",
    "test_can_capture_specific_layers_hidden_states": "two stacks, each with its own name for hidden states",
    "test_can_load_from_already_mapped_keys": "no weights are renamed at loading",
    "test_can_set_attention_dynamically_composite_model": "one configuration, not one a part",
    "test_causal_lm_loss_honors_shift_labels": "no decoder-only model",
    "test_eager_matches_batched_and_grouped_inference": "no experts",
    "test_internal_model_config_and_subconfig_are_same": "one configuration, not one a part",
    "test_keep_in_fp32_modules": "no module is kept in float32",
    "test_model_rope_scaling": "no rotary positions",
    "test_model_rope_with_partial_rotation": "no rotary positions",
    "test_moe_models_record_router_logits": "no experts",
    "test_output_router_logits_from_config": "no experts",
    "test_resize_position_vector_embeddings": "Marian's positions are sinusoidal",
    "test_reverse_loading_mapping": "no weights are renamed at loading",
    "test_sdpa_can_dispatch_composite_models": "one configuration, not one a part",
    "test_sliding_window_mask": "no sliding window",
    "test_tied_head_has_a_tp_plan_entry": "no plan for tensor parallelism, as in Marian",
    "test_tp_plan_matches_params": "no plan for tensor parallelism, as in Marian",
    "test_vision_axial_rope": "no rotary positions",
}
WITHOUT_LOSSES = {"bow_loss_weight": 0, "bca_loss_weight": 0}
KINDS = {
    "none": {},
    "em_routing": {"layer_aggregation": "em_routing", "layer_aggregation_parameterization": "joint"},
    "dynamic_routing": {
        "layer_aggregation": "dynamic_routing",
        "layer_aggregation_context": "own",
        "layer_aggregation_output": "residual",
        "num_output_capsules": 4,
    },
    "dynamic": {"layer_aggregation": "dynamic", "layer_aggregation_sides": ["decoder"]},
    "linear": {"layer_aggregation": "linear", "layer_aggregation_sides": ["encoder"]},
    "heads": {
        "head_aggregation": "simple_routing",
        "head_aggregation_decoder_layers": None,
        "head_aggregation_cross_layers": None,
    },
    "heads_and_layers": {
        "head_aggregation": "em_routing",
        "head_aggregation_decoder_layers": None,
        "head_aggregation_cross_layers": None,
        "head_aggregation_output": "residual",
        "layer_aggregation": "em_routing",
    },
    # The tests take the loss for the cross entropy alone.
    "guided": {"guided_routing": "gdr", "guided_capsule_dim": 4, **WITHOUT_LOSSES},
    "guided_attention": {"guided_routing": "attention", "guided_capsule_dim": 4, **WITHOUT_LOSSES},
    "everything": {
        "guided_routing": "gdr",
        "guided_capsule_dim": 4,
        "head_aggregation": "simple_routing",
        "layer_aggregation": "dynamic_routing",
        **WITHOUT_LOSSES,
    },
}


class ModelTester:
    """The tiny model that the tests make, and its inputs."""

    batch_size = 5
    seq_length = 7
    is_training = True
    hidden_size = 16
    num_hidden_layers = 2
    num_attention_heads = 4
    vocab_size = 99
    pad_token_id = 1

    def __init__(self, fields):
        self.fields = fields

    def get_config(self):
        return CapsuleAggregatedMarianConfig(
            vocab_size=self.vocab_size,
            d_model=self.hidden_size,
            encoder_layers=self.num_hidden_layers,
            decoder_layers=self.num_hidden_layers,
            encoder_attention_heads=self.num_attention_heads,
            decoder_attention_heads=self.num_attention_heads,
            encoder_ffn_dim=4,
            decoder_ffn_dim=4,
            attention_dropout=0.1,
            max_position_embeddings=100,
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


class Conformance(ModelTesterMixin):
    not_applicable = NOT_APPLICABLE
    model_maker = ModelTester
    all_model_classes = (CapsuleAggregatedMarianModel, CapsuleAggregatedMarianForConditionalGeneration)
    mappings = (MODEL_MAPPING_NAMES, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
    is_encoder_decoder = True
    # The oldest supported version would count Marian's frozen positions. tests/modeling compares all gradients.
    test_all_params_have_gradient = False

    def setUp(self):
        self.model_tester = self.model_maker(KINDS[self.kind])
        for mapping, model_class in zip(self.mappings, self.all_model_classes):
            # The tests look a model up by name, to know whether it takes labels.
            names = mock.patch.dict(mapping, {CapsuleAggregatedMarianConfig.model_type: model_class.__name__})
            names.start()
            self.addCleanup(names.stop)

    def skipTest(self, reason):
        if not self._testMethodName.startswith(tuple(self.not_applicable)):
            self.fail(f"does not run, but is not known not to apply: {reason}")
        super().skipTest(reason)


class NoAggregationTest(Conformance, GenerationTesterMixin, unittest.TestCase):
    kind = "none"


class EMRoutingTest(Conformance, GenerationTesterMixin, unittest.TestCase):
    kind = "em_routing"


class DynamicRoutingTest(Conformance, GenerationTesterMixin, unittest.TestCase):
    kind = "dynamic_routing"


class DynamicCombinationTest(Conformance, GenerationTesterMixin, unittest.TestCase):
    kind = "dynamic"


class LinearCombinationTest(Conformance, GenerationTesterMixin, unittest.TestCase):
    kind = "linear"


class RoutedHeadsTest(Conformance, GenerationTesterMixin, unittest.TestCase):
    kind = "heads"


class RoutedHeadsAndLayersTest(Conformance, GenerationTesterMixin, unittest.TestCase):
    kind = "heads_and_layers"


class GuidedRoutingTest(Conformance, GenerationTesterMixin, unittest.TestCase):
    kind = "guided"


class GuidedAttentionTest(Conformance, GenerationTesterMixin, unittest.TestCase):
    kind = "guided_attention"


class EverythingTest(Conformance, GenerationTesterMixin, unittest.TestCase):
    kind = "everything"


class EncoderTester(ModelTester):
    """The configuration and the inputs of an encoder with a classifier."""

    def get_config(self):
        config = super().get_config()
        config.is_encoder_decoder = False  # or the tests would look for the outputs of a decoder
        return config

    def prepare_config_and_inputs_for_common(self):
        config, inputs = super().prepare_config_and_inputs_for_common()
        return config, {name: value for name, value in inputs.items() if not name.startswith("decoder")}


class ClassifierTest(Conformance, unittest.TestCase):
    kind = "heads_and_layers"
    not_applicable = NOT_APPLICABLE | {"test_encoder_decoder_loss_no_double_shift": "no language model"}
    model_maker = EncoderTester
    all_model_classes = (CapsuleAggregatedMarianForSequenceClassification,)
    mappings = (MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,)
    is_encoder_decoder = False

    @unittest.skip("it gives AutoModel, which is the whole translation model, a classifier's inputs")
    def test_load_with_mismatched_shapes(self):
        pass
