"""What private names of other libraries do for the models. The list of all such names is in `test_private_names.py`."""

import pytest
from tiny_checkpoints import tiny_checkpoint
from torch import nn
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt.modeling.initial_weights import init_words
from hf_capsule_mt.modeling.translation_head import _is_bare

HOOKS = [
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
]


@pytest.mark.parametrize("register", HOOKS)
def test_the_loss_sees_hooks_of_every_kind(register):
    """It would read the weight of a projection, and leave out its hooks."""
    projection = nn.Linear(2, 2, bias=False)
    assert _is_bare(projection)
    handle = getattr(projection, register)(lambda *_: None)
    assert not _is_bare(projection)
    handle.remove()
    assert _is_bare(projection)


def test_loaded_words_stay_as_they_are():
    words = nn.Embedding(3, 2, padding_idx=1)
    nn.init.ones_(words.weight)
    # Transformers marks loaded weights so.
    words.weight._is_hf_initialized = True
    init_words(words, 2)
    assert words.weight.tolist() == [[1, 1]] * 3
    words.weight._is_hf_initialized = False
    init_words(words, 2)
    is_zero = (words.weight == 0).all(-1)
    assert is_zero.tolist() == [False, True, False]


def test_of_a_model_with_an_adapter_only_the_adapter_is_saved(tmp_path, monkeypatch):
    """Python files beside an adapter would be loaded with another model."""
    model = AutoModelForSeq2SeqLM.from_pretrained(tiny_checkpoint("capsule_aggregated_marian"))
    model.save_pretrained(tmp_path / "model")
    # Transformers wants a newer PEFT than is tested with to load one.
    monkeypatch.setattr(model, "active_adapters", lambda: ["default"])
    model.save_pretrained(tmp_path / "adapter")
    assert list((tmp_path / "model").glob("*.py"))
    assert not list((tmp_path / "adapter").glob("*.py"))
