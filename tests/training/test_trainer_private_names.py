"""Names of Transformers and accelerate that are not public, and that training depends on.

If one of these tests fails, a new version has renamed something. The place that uses the name says what for.
"""

import inspect

import pytest
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from tiny_marian import tiny_model
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR
from transformers import MarianMTModel, Seq2SeqTrainer

from hf_capsule_mt.training.trainer import TranslationTrainer

OVERRIDDEN = {
    "_prepare_for_training": {"max_steps", "train_dataloader", "resume_from_checkpoint"},
    "_issue_warnings_after_load": {"load_result"},
    "_save": {"output_dir", "state_dict"},
}
CALLED = {
    "_remove_unused_columns": {"dataset", "description"},
    "_get_collator_with_removed_columns": {"data_collator", "description"},
}


@pytest.mark.parametrize("name", [*OVERRIDDEN, *CALLED])
def test_methods_of_the_trainer(name):
    expected = (OVERRIDDEN | CALLED)[name]
    assert expected <= inspect.signature(getattr(Seq2SeqTrainer, name)).parameters.keys()
    assert (name in vars(TranslationTrainer)) == (name in OVERRIDDEN)


@pytest.mark.parametrize(
    ("caller", "name"),
    [
        ("_inner_training_loop", "_prepare_for_training"),
        ("_load_from_checkpoint", "_issue_warnings_after_load"),
        ("save_model", "_save"),
    ],
)
def test_the_trainer_calls_what_is_overridden(caller, name):
    assert f"self.{name}(" in inspect.getsource(getattr(Seq2SeqTrainer, caller))


def test_what_marian_does_not_save():
    assert any("embed_positions" in name for name in MarianMTModel._keys_to_ignore_on_save)


def test_the_rate_that_a_schedule_reports():
    schedule = LambdaLR(SGD(tiny_model().parameters(), lr=1.0), lambda _: 1.0)
    schedule._last_lr = [0.5]
    assert schedule.get_last_lr() == [0.5]


@pytest.fixture
def new_accelerator():
    """An accelerator of another precision than that of the tests before, and nothing left of it."""
    AcceleratorState._reset_state()
    yield Accelerator(cpu=True, mixed_precision="bf16")
    AcceleratorState._reset_state()


def test_the_forward_that_accelerate_puts_in_for_autocast(new_accelerator):
    model = new_accelerator.prepare(tiny_model())
    assert {"forward", "_original_forward"} <= vars(model).keys()
