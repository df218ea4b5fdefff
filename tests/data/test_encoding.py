"""Lines become token ids, cut to the limit of a model, and batches of similar length."""

import json
import multiprocessing
import random
import threading
import time

import pytest
from tiny_checkpoints import tiny_checkpoint
from tiny_marian import tiny_tokenizer
from transformers import PreTrainedConfig, PreTrainedTokenizerFast

from hf_capsule_mt.cli import translate
from hf_capsule_mt.data import encoding
from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import encode_lines, source_limit, tokenize_lines
from hf_capsule_mt.data.languages import TOKENIZING
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.loading import load_tokenizer

CHECKPOINT = tiny_checkpoint("capsule_aggregated_marian")


def test_batches_fill_their_budget_and_no_more():
    lengths = [random.Random(0).randint(0, 9) for _ in range(5)] + [9, 0, 1, 4, 4, 4, 2, 7, 7]
    batches = batch_by_tokens(lengths, 20)
    assert sorted(index for batch in batches for index in batch) == [i for i, length in enumerate(lengths) if length]
    for batch, following in zip(batches, [*batches[1:], None]):
        longest = lengths[batch[0]]
        assert longest == max(lengths[index] for index in batch)
        assert longest * len(batch) <= 20
        if following is not None:
            assert longest * (len(batch) + 1) > 20
            assert lengths[following[0]] <= lengths[batch[-1]]


def test_long_lines_are_cut_and_counted(caplog):
    tokenizer = tiny_tokenizer(model_max_length=5)
    encoded = encode_lines(tokenizer, ["a", "a b c d e f", "", "f e d c b a"], 5)
    assert tokenizer.convert_ids_to_tokens(encoded[1]) == ["a", "b", "c", "d", "</s>"]
    assert [len(ids) for ids in encoded] == [2, 5, 0, 5]
    assert [record.getMessage() for record in caplog.records] == [
        "2 lines have more than 5 tokens, the model's limit, and were cut (the first is line 2)"
    ]


def test_lines_are_tokenized_in_parts(monkeypatch):
    """Of all at once a tokenizer would hold far more than their tokens."""
    tokenizer, calls, lines = tiny_tokenizer(), [], ["a b", "c", "d e f", "a", "b c", "", "d", "e f"]
    expected = tokenize_lines(tokenizer, lines)
    monkeypatch.setattr(encoding, "_TOKENIZED_TOGETHER", 3)

    def counted(self, text, **options):
        calls.append(len(text))
        return call(self, text, **options)

    call = type(tokenizer).__call__
    monkeypatch.setattr(type(tokenizer), "__call__", counted)
    assert tokenize_lines(tokenizer, lines) == expected
    assert expected[5] == []
    assert calls == [3, 3, 1]


def test_very_long_lines_are_cut_before_they_are_tokenized(monkeypatch):
    """A tokenizer takes 470 bytes of memory for a letter."""
    tokenizer, read = tiny_tokenizer(), []
    call = type(tokenizer).__call__

    def counted(self, text=None, text_target=None, **options):
        texts = text or text_target
        read.extend([texts] if isinstance(texts, str) else texts)
        return call(self, text=text, text_target=text_target, **options)

    long = "a b c d " * 100_000
    expected = [*tokenizer("a b c d a b c d a")["input_ids"]]
    monkeypatch.setattr(type(tokenizer), "__call__", counted)
    assert encode_lines(tokenizer, [long, "a"], 10)[0] == expected
    assert encode_lines(tokenizer, [long, "a"], 10, side="text_target")[0] == expected
    assert max(map(len, read)) < 2000
    blank = " " * 100_000 + "a"
    assert encoding.shortened(tokenizer, blank, 10) == blank


def test_translate_reads_only_the_beginning_of_a_very_long_line(tmp_path, monkeypatch):
    read, call = [], PreTrainedTokenizerFast.__call__
    monkeypatch.setattr(
        PreTrainedTokenizerFast,
        "__call__",
        lambda self, text, **options: (
            read.extend([text] if isinstance(text, str) else text) or call(self, text, **options)
        ),
    )
    (tmp_path / "in").write_text("a b c d " * 100_000 + "\n")
    model = ["--model", str(CHECKPOINT), "--device", "cpu", "--num_beams", "1"]
    translate.main([*model, "--input_file", str(tmp_path / "in"), "--output_file", str(tmp_path / "out")])
    assert max(map(len, read)) < 100_000


def test_a_process_that_is_forked_while_a_tokenizer_works():
    """It would wait for ever for the lock that another thread held."""
    held, tokenizer = threading.Event(), tiny_tokenizer()

    def work():
        with TOKENIZING:
            held.set()
            time.sleep(0.5)

    thread = threading.Thread(target=work)
    thread.start()
    held.wait()
    child = multiprocessing.get_context("fork").Process(target=encode_lines, args=(tokenizer, ["a b"], 9))
    child.start()
    child.join(30)
    is_alive = child.is_alive()
    child.kill()
    thread.join()
    assert not is_alive
    assert child.exitcode == 0


def test_a_tokenizer_whose_limit_is_nothing_has_none():
    """It cut texts for ever."""
    tokenizer = tiny_tokenizer(model_max_length=0)
    assert source_limit(PreTrainedConfig(), tokenizer) > 10**9


@pytest.mark.parametrize("length", ["512", [512], {}])
def test_a_limit_that_is_no_number(length):
    """As in a damaged file of settings."""
    tokenizer = tiny_tokenizer()
    tokenizer.model_max_length = length
    with pytest.raises(UserError, match=r"model_max_length is .*, which is no number"):
        source_limit(PreTrainedConfig(), tokenizer)


def damaged(folder, change):
    """The tokenizer of a folder whose tokenizer.json, or its settings, were changed."""
    tiny_tokenizer().save_pretrained(folder)
    file = folder / ("tokenizer_config.json" if "model_max_length" in change else "tokenizer.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    return folder


def test_a_limit_that_is_no_number_is_refused_with_the_tokenizer(tmp_path):
    """Transformers would compare it with a length at the first text."""
    with pytest.raises(UserError, match="model_max_length is '32', which is no number"):
        load_tokenizer(damaged(tmp_path, {"model_max_length": "32"}))


def test_a_panic_of_the_library_says_what_is_wrong(tmp_path):
    """It is no Exception, and ended a command with a traceback."""
    template = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}]
    processor = {"type": "TemplateProcessing", "single": template, "pair": template, "special_tokens": {}}
    tokenizer = load_tokenizer(damaged(tmp_path, {"post_processor": processor}))
    with pytest.raises(UserError, match=r"is damaged\. Copy the model again"):
        encode_lines(tokenizer, ["a b"], 9)
    # The lock is free again.
    assert TOKENIZING.acquire(blocking=False)
    TOKENIZING.release()
