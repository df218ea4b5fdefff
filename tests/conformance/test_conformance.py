"""Transformers' own tests of a model, run on the configurations that differ in the code they reach.

Tests that need an accelerator, deepspeed, flash attention and the like skip themselves where those are missing.
"""

import unittest
from contextlib import suppress
from unittest import mock

import pytest
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)
from transformers_suite import import_suite

import hf_capsule_mt as package

import_suite()

from transformers_model_tests.test_modeling_common import GenerationTesterMixin, ModelTesterMixin, ids_tensor  # noqa: E402

pytestmark = pytest.mark.slow

# The tests that may find out that they do not apply. Another that does so fails.
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
    "test_resize_position_vector_embeddings": "no positions are learned: Marian's are sinusoidal",
    "test_reverse_loading_mapping": "no weights are renamed at loading",
    "test_sdpa_can_dispatch_composite_models": "one configuration, not one a part",
    "test_sliding_window_mask": "no sliding window",
    "test_tied_head_has_a_tp_plan_entry": "no plan for tensor parallelism, as in Marian",
    "test_tp_plan_matches_params": "no plan for tensor parallelism, as in Marian",
    "test_vision_axial_rope": "no rotary positions",
}
NOT_RECURRENT = dict.fromkeys(
    [
        "test_attention_outputs",
        "test_can_set_attention_dynamically",
        "test_eager_matches_sdpa_inference",
        "test_multimodal_outputs_are_returned",
        "test_sdpa_can_dispatch_non_composite_models",
    ],
    "no self-attention, and one implementation of RNMT's additive attention",
) | {"test_bc_cache_name_forward": "a cache of their own; tests/modeling gives it under both names"}
# The tests take the loss for the cross entropy alone.
GUIDED = {"guided_routing": "gdr", "guided_capsule_dim": 4, "bow_loss_weight": 0, "bca_loss_weight": 0}
GUIDED |= {"guided_routing_iterations": 2}
KINDS = {
    "heads_and_layers": {
        "head_aggregation": "em_routing",
        "head_aggregation_decoder_layers": None,
        "head_aggregation_cross_layers": None,
        "head_aggregation_output": "residual",
        "layer_aggregation": "em_routing",
        "layer_aggregation_parameterization": "joint",
    },
    "everything": {
        "head_aggregation": "simple_routing",
        "layer_aggregation": "dynamic_routing",
        "layer_aggregation_context": "own",
        "layer_aggregation_output": "residual",
        "num_output_capsules": 4,
        "routing_iterations": 2,
        **GUIDED,
    },
    "source": {
        "layer_aggregation": "em_routing",
        "layer_aggregation_place": "source",
        "layer_aggregation_context": "own",
        "routing_iterations": 2,
    },
    "each_layer": {"layer_aggregation": "linear", "layer_aggregation_place": "layers"},
    "streams": {"layer_aggregation": "manifold-hyper-connections", "layer_aggregation_place": "layers"},
    "capsnmt": {"decoder_layers": 1, "num_sentence_capsules": 3},
    "hybrid": {"sentence_aggregation": "capsule", "num_sentence_capsules": 3, **GUIDED},
}
TRANSLATION = {"Model": MODEL_MAPPING_NAMES, "ForConditionalGeneration": MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES}
CLASSIFICATION = {"ForSequenceClassification": MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES}


class Conformance(ModelTesterMixin):
    """The tests, and the tiny model and its inputs that they ask for. A test names its `family` and its `kind`."""

    not_applicable = NOT_APPLICABLE
    heads = TRANSLATION
    is_encoder_decoder = True
    # The oldest supported version would count Marian's frozen positions. tests/modeling compares all gradients.
    test_all_params_have_gradient = False
    # What the tests ask of a `model_tester`.
    batch_size, seq_length, hidden_size, num_hidden_layers, num_attention_heads = 5, 7, 16, 2, 4
    is_training = True

    def __init_subclass__(cls):
        super().__init_subclass__()
        for name in dir(cls):
            # They are of models that read pictures or sound, and pass without a look at any other.
            if name.startswith("test_get_"):
                setattr(cls, name, None)
        cls.config_class = getattr(package, f"{cls.family}Config")
        cls.all_model_classes = tuple(getattr(package, cls.family + head) for head in cls.heads)

    def setUp(self):
        self.model_tester = self
        for mapping, model_class in zip(self.heads.values(), self.all_model_classes):
            # The tests look a model up by name, to know whether it takes labels.
            names = mock.patch.dict(mapping, {self.config_class.model_type: model_class.__name__})
            names.start()
            self.addCleanup(names.stop)

    def subTest(self, *args, **kwargs):
        """Of 13,000 none is reported: one that fails ends its test, one that does not apply itself."""
        return suppress(unittest.SkipTest)

    def skipTest(self, reason):
        if not self._testMethodName.startswith(tuple(self.not_applicable)):
            self.fail(f"does not run, but is not known not to apply: {reason}")
        super().skipTest(reason)

    def get_config(self):
        words = {"vocab_size": 99, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
        return self.config_class(**words, d_model=16, encoder_layers=self.num_hidden_layers, **KINDS[self.kind])

    def prepare_config_and_inputs_for_common(self):
        config = self.get_config()
        input_ids, decoder_input_ids = (
            ids_tensor([self.batch_size, self.seq_length], config.vocab_size).clamp(3) for _ in range(2)
        )
        input_ids[0, -2:] = config.pad_token_id
        inputs = {
            "input_ids": input_ids,
            "decoder_input_ids": decoder_input_ids,
            "attention_mask": input_ids.ne(config.pad_token_id),
            "decoder_attention_mask": decoder_input_ids.ne(config.pad_token_id),
        }
        return config, inputs


class Marian(Conformance):
    family = "CapsuleAggregatedMarian"

    def get_config(self):
        config = super().get_config()
        sizes = {"layers": self.num_hidden_layers, "attention_heads": self.num_attention_heads, "ffn_dim": 4}
        config.update({f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()})
        config.update({"attention_dropout": 0.1, "max_position_embeddings": 100})
        return config


class EverythingTest(Marian, GenerationTesterMixin, unittest.TestCase):
    kind = "everything"


class M2M100Test(Marian, GenerationTesterMixin, unittest.TestCase):
    family = "CapsuleAggregatedM2M100"
    kind = "everything"


class SourceTest(Marian, GenerationTesterMixin, unittest.TestCase):
    kind = "source"


class M2M100SourceTest(Marian, GenerationTesterMixin, unittest.TestCase):
    family = "CapsuleAggregatedM2M100"
    kind = "source"


class EachLayerTest(Marian, GenerationTesterMixin, unittest.TestCase):
    kind = "each_layer"


class M2M100EachLayerTest(Marian, GenerationTesterMixin, unittest.TestCase):
    family = "CapsuleAggregatedM2M100"
    kind = "each_layer"


class M2M100StreamsTest(Marian, GenerationTesterMixin, unittest.TestCase):
    family = "CapsuleAggregatedM2M100"
    kind = "streams"


class ClassifierTest(Marian, unittest.TestCase):
    kind = "heads_and_layers"
    not_applicable = NOT_APPLICABLE | {
        "test_bc_cache_name_forward": "no decoder, so no cache",
        "test_encoder_decoder_loss_no_double_shift": "no language model",
    }
    heads = CLASSIFICATION
    is_encoder_decoder = False

    def get_config(self):
        config = super().get_config()
        config.is_encoder_decoder = False  # or the tests would look for the outputs of a decoder
        return config

    def prepare_config_and_inputs_for_common(self):
        config, inputs = super().prepare_config_and_inputs_for_common()
        return config, {name: value for name, value in inputs.items() if not name.startswith("decoder")}

    @unittest.skip("it gives AutoModel, which is the whole translation model, a classifier's inputs")
    def test_load_with_mismatched_shapes(self):
        pass


class Recurrent(Conformance, GenerationTesterMixin):
    family = "CapsNMT"
    not_applicable = NOT_APPLICABLE | NOT_RECURRENT
    has_attentions = False


class CapsNMTTest(Recurrent, unittest.TestCase):
    kind = "capsnmt"
    num_hidden_layers = 1


class HybridTest(Recurrent, unittest.TestCase):
    family = "RNMT"
    kind = "hybrid"
    num_hidden_layers = 1  # as its decoder
