"""What private names of other libraries do for the engine. The list of all is in `tests/test_private_names.py`."""

import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module
from ending_models import ending, sources
from transformers import AttentionInterface, DynamicCache, EncoderDecoderCache, GenerationConfig
from transformers.generation import GenerationMode
from transformers.generation.utils import GENERATION_MODES_MAPPING

from hf_capsule_mt.decoding.fingerprint import with_shared_weights
from hf_capsule_mt.decoding.products import int8
from hf_capsule_mt.modeling.linear import has_onednn
from hf_capsule_mt.modeling.transformers_versions import CACHE


def test_hooks_of_a_module():
    module = torch.nn.Linear(2, 2)
    hooks = [lambda *given: None, lambda *given: None]
    module.register_forward_hook(hooks[0])
    module.register_forward_pre_hook(hooks[1])
    assert list(module._forward_hooks.values()) == hooks[:1]
    assert list(module._forward_pre_hooks.values()) == hooks[1:]


def test_a_copy_shares_the_hook_of_accelerate():
    """It holds weights that were moved away. A copy of it would hold them again."""
    hook = ModelHook()
    copy = with_shared_weights(add_hook_to_module(torch.nn.Linear(2, 2), hook))
    assert [value for value in vars(copy).values() if isinstance(value, ModelHook)] == [hook]


def test_the_version_of_a_weight():
    weight = torch.nn.Parameter(torch.zeros(2))
    before = weight._version
    with torch.no_grad():
        weight.add_(1)
    assert weight._version > before


def test_the_implementation_of_attention():
    model = ending("marian")
    AttentionInterface.register("canary", lambda *given, **options: None)
    model.set_attn_implementation("canary")
    assert model.model.decoder.layers[0].self_attn.config._attn_implementation == "canary"


def test_the_mark_of_a_cache_of_the_caller():
    model = ending("marian")
    caches = []

    def custom(model, input_ids, **given):
        caches.append(given[CACHE])
        return input_ids

    own = EncoderDecoderCache(DynamicCache(), DynamicCache())
    for given in ({CACHE: own}, {}):
        model.generate(**sources(2), **given, custom_generate=custom)
    marks = [getattr(cache, "_is_user_defined", False) for cache in caches]
    assert marks == [True, False]
    assert caches[0] is own


@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 2}])
@pytest.mark.parametrize("samples", [False, True])
def test_the_loops_of_generate(options, samples):
    mode = GenerationConfig(**options, do_sample=samples).get_generation_mode(None)
    assert isinstance(mode, GenerationMode)
    assert callable(getattr(type(ending("marian")), GENERATION_MODES_MAPPING[mode]))


@pytest.mark.skipif(not torch.backends.cpu.get_cpu_capability().startswith("AVX"), reason="needs an x86 CPU")
def test_products_of_onednn():
    """Without them decoding takes twice as long, and nothing says so."""
    assert has_onednn()
    assert isinstance(torch.ops.mkldnn._is_mkldnn_bf16_supported(), bool)
    assert isinstance(torch.cpu._is_vnni_supported(), bool)
    assert int8._int8_backends()
    assert int8._multiplies_by_rows()
