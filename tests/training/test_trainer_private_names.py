"""What private names of Transformers and accelerate do in training. The list of all is in `test_private_names.py`."""

import inspect

import pytest
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderShard
from accelerate.state import AcceleratorState
from datasets import Dataset
from tiny_marian import tiny_model, tiny_tokenizer
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau
from transformers import MarianMTModel, Seq2SeqTrainer

from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.resuming import OptimizerOptions
from hf_capsule_mt.training.trainer import TranslationTrainer


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


def test_the_loader_of_accelerate_takes_the_option_of_copies():
    loader = DataLoaderShard([1], _non_blocking=True)
    assert loader._non_blocking


def test_a_resumed_schedule_has_the_rate_of_its_options():
    schedule = LambdaLR(SGD(tiny_model().parameters(), lr=1.0, momentum=0.3), lambda update: 0.5**update)
    schedule.optimizer.step()
    schedule.step()
    saved_rate = schedule.get_last_lr()
    numbers = {"momentum": 0.5, "weight_decay": 0.25}
    other = LambdaLR(SGD(tiny_model().parameters(), lr=8.0, **numbers), lambda update: 0.5**update)
    options = OptimizerOptions(other.optimizer)
    other.optimizer.load_state_dict(schedule.optimizer.state_dict())
    other.load_state_dict(schedule.state_dict())
    assert other.get_last_lr() == saved_rate == [0.5]
    options.restore(other.optimizer, other)
    assert other.get_last_lr() == [group["lr"] for group in other.optimizer.param_groups] == [4.0]
    assert other.last_epoch == 1
    assert all(numbers.items() <= group.items() for group in other.optimizer.param_groups)


def test_a_schedule_that_follows_the_scores_stays_as_it_was():
    """It cannot say the rate of any update."""
    optimizer = SGD(tiny_model().parameters(), lr=1.0)
    schedule = ReduceLROnPlateau(optimizer, patience=0)
    options = OptimizerOptions(optimizer)
    for _ in range(2):
        schedule.step(1.0)
    options.restore(optimizer, schedule)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1]
    assert schedule.last_epoch == 2


def test_columns_that_the_model_does_not_take_are_left_out(tmp_path):
    row = {"input_ids": [5, 6, 2], "labels": [7, 2], "text": "a b"}
    args = TranslationTrainingArguments(tmp_path, max_tokens_per_batch=9, report_to="none", use_cpu=True)
    trainer = TranslationTrainer(tiny_model(), args, processing_class=tiny_tokenizer(), train_dataset=[row] * 4)
    for data in ([row] * 4, Dataset.from_list([row] * 4)):
        trainer.train_dataset = data
        batch = next(iter(trainer.get_train_dataloader()))
        assert batch.keys() == {"input_ids", "attention_mask", "labels", "decoder_input_ids"}


@pytest.fixture
def new_accelerator():
    """An accelerator of another precision than that of the tests before, and nothing left of it."""
    AcceleratorState._reset_state()
    yield Accelerator(cpu=True, mixed_precision="bf16")
    AcceleratorState._reset_state()


def test_the_forward_that_accelerate_puts_in_for_autocast(new_accelerator):
    model = new_accelerator.prepare(tiny_model())
    assert {"forward", "_original_forward"} <= vars(model).keys()
