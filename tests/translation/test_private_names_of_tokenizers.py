"""A private name of Transformers that the pipeline reads, because there is no public one."""

import inspect

import pytest
from transformers import MBart50Tokenizer, NllbTokenizer


@pytest.mark.parametrize("tokenizer", [MBart50Tokenizer, NllbTokenizer])
def test_tokenizers_that_take_languages(tokenizer):
    parameters = inspect.signature(tokenizer._build_translation_inputs).parameters
    assert {"src_lang", "tgt_lang"} <= parameters.keys()
