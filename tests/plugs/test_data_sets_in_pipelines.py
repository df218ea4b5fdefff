"""Data sets as input of pipeline("translation"), for every family."""

import pytest
from datasets import Dataset
from plug_table import FAMILIES, promised
from tiny_marian import tiny_tokenizer
from transformers import pipeline
from transformers.pipelines.pt_utils import KeyDataset

TEXTS = ["a b c", "d", "e f a b"]
DATA = Dataset.from_dict({"en": TEXTS})
STREAM = DATA.to_iterable_dataset()


def translator(family):
    return pipeline("translation", model=FAMILIES[family](), tokenizer=tiny_tokenizer(), max_new_tokens=4)


@promised("`datasets` in pipelines", ("hybrid",))
def test_every_kind_of_data_set(family):
    translate = translator(family)
    expected = translate(TEXTS)
    assert translate(DATA["en"], batch_size=2) == expected
    lazily = (KeyDataset(DATA, "en"), STREAM["en"], (row["en"] for row in STREAM), iter(TEXTS))
    for texts in lazily:
        results = translate(texts, batch_size=2)
        assert not isinstance(results, list)
        assert [result for [result] in results] == expected


@pytest.mark.parametrize("rows", [DATA, STREAM])
def test_rows_are_refused(rows):
    with pytest.raises(ValueError, match="is not a text"):
        next(iter(translator("CapsNMT")(rows)))
