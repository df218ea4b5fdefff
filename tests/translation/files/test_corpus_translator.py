"""`CorpusTranslator`: a column of texts as `datasets.map` and other engines call it, without a lost line."""

import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from pyarrow import parquet
from tiny_marian import save_tiny_marian, tiny_model, tiny_tokenizer
from translated_lines import translate_lines

from hf_capsule_mt import CorpusTranslator, pipeline
from hf_capsule_mt.data.tokenizer import train_joint_bpe
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation import text_translator
from hf_capsule_mt.translation.files.crew import Crew
from hf_capsule_mt.translation.files.job import ROWS
from hf_capsule_mt.translation.files.run import translate_files
from hf_capsule_mt.translation.generation.decoder import Decoded
from hf_capsule_mt.translation.generation.model_options import changed_settings
from hf_capsule_mt.translation.quality.judge import Judgement
from hf_capsule_mt.translation.text_translator import TextTranslator

TRANSFORMER = Path(__file__).parents[3] / "checkpoints" / "tatoeba-en-de-transformer"
TEXTS = ["a b c", "d e f g\nh i", "j", "a b c\n\nd e f g"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_tiny_marian(tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(scope="module")
def expected():
    """By the function that translates lines."""
    lines = sorted({line for text in TEXTS for line in text.split("\n")})
    translations = dict(zip(lines, translate_lines(tiny_model(), tiny_tokenizer(), lines)))
    return ["\n".join(translations[line] for line in text.split("\n")) for text in TEXTS]


def test_every_line_is_translated_in_its_place(checkpoint, expected):
    columns = CorpusTranslator(checkpoint)({"id": [4, 3, 2, 1], "text": TEXTS})
    assert columns == {"id": [4, 3, 2, 1], "text": TEXTS, "translation": expected}


def test_equal_words_with_other_tags(checkpoint):
    """Without tags the words are translated once. With tags a sentence is one of its own."""
    texts = ["a b c", "<b>a</b> b c", "a <i>b c</i>", "a b c"]
    plain, bold, italic, again = CorpusTranslator(checkpoint, tags=True)({"text": texts})["translation"]
    assert again == plain
    assert [text.count("<b>") + text.count("</b>") for text in (plain, bold, italic)] == [0, 2, 0]
    assert [text.count("<i>") + text.count("</i>") for text in (plain, bold, italic)] == [0, 0, 2]


def test_a_glossary(tmp_path):
    """Terms are those that a pipeline obeys. What is written depends on them."""
    terms = tmp_path / "terms.tsv"
    terms.write_text("coat\tJacke\n")
    translate = CorpusTranslator(str(TRANSFORMER), glossary=terms, num_beams=4)

    found = translate({"text": ["Where did you buy that coat?\nI like music.", None, "My coat is old."]})["translation"]

    translator = pipeline(TRANSFORMER, device="cpu", num_beams=4, glossary=str(terms))
    sources = ["Where did you buy that coat?", "I like music.", "My coat is old."]
    lines = [result["translation_text"] for result in translator(sources, batch_size=3)]
    assert found == [f"{lines[0]}\n{lines[1]}", None, lines[2]]
    assert ["Jacke" in line for line in lines] == [True, False, True]
    without = CorpusTranslator(str(TRANSFORMER), num_beams=4)
    assert changed_settings(without.job.settings(ROWS), translate.job.settings(ROWS)) == ["glossary"]


def test_arrays_nulls_and_other_names(checkpoint, expected):
    translate = CorpusTranslator(checkpoint, text_column="words", translation_column="Worte")
    columns = translate({"words": np.array([TEXTS[0], None, ""], object), "number": np.arange(3)})
    assert columns["Worte"] == [expected[0], None, ""]
    assert columns["number"] == [0, 1, 2]


@pytest.mark.parametrize("num_proc", [None, 2])
def test_as_datasets_calls_it(checkpoint, expected, num_proc):
    rows = Dataset.from_dict({"text": TEXTS}).map(
        CorpusTranslator(checkpoint), batched=True, batch_size=2, num_proc=num_proc
    )
    assert list(rows["translation"]) == expected


def test_a_copy_carries_no_model(checkpoint, expected):
    translate = CorpusTranslator(checkpoint)
    before = len(pickle.dumps(translate))
    assert translate({"text": TEXTS})["translation"] == expected
    copy = pickle.dumps(translate)
    assert len(copy) == before
    assert pickle.loads(copy)({"text": TEXTS})["translation"] == expected


def test_equal_sentences_are_translated_once(checkpoint, engine_calls):
    once = CorpusTranslator(checkpoint)
    once({"text": ["a b"]})
    engine_calls.clear()
    once({"text": ["a b\na b", "a b", " a b "]})
    assert sum(len(found) for found in engine_calls) == 1


def test_the_numbers_of_a_row(checkpoint):
    long = " ".join("abcdefgh" * 5)
    translate = CorpusTranslator(checkpoint, report_column="report")
    report = translate({"text": ["a b\n1 2\n", long, None, "c d"]})["report"]
    assert [row["segments"] for row in report] == [2, 1, 0, 1]
    assert [row["words"] for row in report] == [4, 40, 0, 2]
    assert [row["copied"] for row in report] == [1, 0, 0, 0]
    assert [row["source_cut"] for row in report] == [0, 1, 0, 0]


def test_each_number_of_a_row_is_its_own(checkpoint, monkeypatch):
    translate = CorpusTranslator(checkpoint, report_column="report")
    judgements = [Judgement(faults=(name,)) for name in ("limit_reached", "empty", "too_short", "repeats")]

    def judge(reader, sentence, *translation):
        return judgements["abcd".index(sentence.segment.text)]

    monkeypatch.setattr("hf_capsule_mt.translation.quality.report.judge", judge)
    report = translate({"text": ["a", "b", "c", "d", "a\na"]})["report"]
    names = ["limit_reached", "empty", "too_short", "repeats"]
    assert [[row[name] for name in names] for row in report] == [
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
        [2, 0, 0, 0],
    ]


def test_rows_are_not_judged_by_another_pass_of_the_model(checkpoint, monkeypatch):
    monkeypatch.setattr(text_translator, "forced_pass", lambda *_, **__: pytest.fail("another pass"))
    assert CorpusTranslator(checkpoint)({"text": ["a b c"]})["translation"] != ["a b c"]


def test_a_row_that_is_too_long_for_a_batch_is_named(checkpoint):
    with pytest.raises(UserError, match="Line 3 has 6 tokens"):
        CorpusTranslator(checkpoint, max_tokens_per_batch=5)({"text": ["a", None, "b\na b c d e"]})


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"words": ["a"]}, "There is no column 'text'. The columns are words"),
        ({"text": ["a"], "translation": ["b"]}, "There is a column 'translation' already"),
        ({"text": ["a"], "report": [1]}, "There is a column 'report' already"),
        ({"text": [1]}, "1 is not a text"),
    ],
)
def test_mistakes(checkpoint, batch, words):
    with pytest.raises(UserError, match=words):
        CorpusTranslator(checkpoint, report_column="report")(batch)


def test_mistakes_of_options(checkpoint):
    with pytest.raises(UserError, match="no language of ISO 639-1"):
        CorpusTranslator(checkpoint, sentences="english")
    with pytest.raises(UserError, match="not a regular expression"):
        CorpusTranslator(checkpoint, keep="(")


def test_addresses_of_rows_stay(checkpoint):
    rows = ["https://example.org/a?b=c", "a b@c.de d", "a\nhttp://a.de.\nb"]
    lone, mail, lines = CorpusTranslator(checkpoint)({"text": rows})["translation"]
    assert lone == rows[0]
    assert mail.count("b@c.de") == 1
    assert lines.split("\n")[1] == "http://a.de."
    translated = CorpusTranslator(checkpoint, translate_addresses=True)({"text": rows})["translation"]
    assert not any("://" in row or "@" in row for row in translated)


def test_white_space_stays_around_tags(checkpoint):
    [translation] = CorpusTranslator(checkpoint, tags=True)({"text": [" \t<p>a b</p>\u3000 "]})["translation"]
    assert translation.startswith(" \t<p>")
    assert translation.endswith("</p>\u3000 ")


SETTINGS = {
    "text_column": "words",
    "translation_column": "Worte",
    "report_column": "report",
    "sentences": "en",
    "tags": True,
    "keep": "a",
    "translate_addresses": True,
    "source_lang": "eng_Latn",
    "target_lang": "deu_Latn",
    "num_beams": 2,
    "length_penalty": 0.5,
    "max_new_tokens": 3,
    "max_tokens_per_batch": 9,
    "engine": "transformers",
    "dtype": "float16",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_all_that_translations_depend_on(checkpoint, name):
    """Rows of other settings are not mixed with these."""
    plain = CorpusTranslator(checkpoint)
    other = CorpusTranslator(checkpoint, **{name: SETTINGS[name]})
    assert changed_settings(plain.job.settings(ROWS), other.job.settings(ROWS)) == [name]
    assert changed_settings(plain.job.settings(ROWS), CorpusTranslator(checkpoint).job.settings(ROWS)) == []


# Documents that are difficult to cut, with a model that copies.

HARD = {
    "lines": "Home\nAbout us\nA dog runs.",
    "only line breaks": "\n\n\n",
    "nothing": "",
    "white space": " \t \n\u3000 \n  a  ",
    "carriage returns": "One.\r\nTwo. Three.\r\n\r\n",
    "other breaks": "one\u2028two\x85three\x0bfour\x0cfive\x1csix\u2029seven",
    "NUL": "a\x00b. c\x00",
    "one long word": "x" * 5000,
    "repeated words": "ha " * 400,
    "many sentences": "It is late. " * 299 + "It is early.",
    "a separator": "one\nEND_OF_DOCUMENT\ntwo",
    "other scripts": "我们走吧。你好！ これは犬です。नमस्ते दुनिया। مرحبا بالعالم.",
    "joined emoji": "A 🐕‍🦺 and a 👩‍👩‍👦. 🇩🇪!",
    "half of a character": "a \ud800 b\udc00",
    "tags": "<b>a</b> & <i>b",
    "marks": "\ufeffa \u200b b\u00a0c",
    "wide spaces around a stop": "A\u00a0.\u2028! One\u00a0. Two\u3000. Three.",
    "no letters": "1984\n--- 12:30 ---\n***",
    "a long row": "A dog runs through the snow. " * 4000,
}
TEN_MEGABYTES = ("A dog runs" + " through the snow" * 4 + ".\n") * 64_000 + "A dog runs through the snow. " * 175_000


@pytest.fixture(scope="module")
def copying(tmp_path_factory):
    """A `CorpusTranslator` with a model that copies its source."""
    folder = tmp_path_factory.mktemp("copying")
    tiny_model(max_position_embeddings=64).save_pretrained(folder)
    tokenizer = train_joint_bpe([text for name, text in HARD.items() if name != "half of a character"], 400)
    tokenizer.model_max_length = 40

    class Copying(TextTranslator):
        def decode_batches(self, sentences, batches, **options):
            for batch in batches:
                yield {
                    index: (Decoded([], 2, text=" ".join(sentences[index].segment.text.split())),) for index in batch
                }

    translate = CorpusTranslator(str(folder), sentences="en", report_column="report")
    translate._crew = Crew.with_translator(Copying(tiny_model(max_position_embeddings=64), tokenizer), {})
    return translate


@pytest.mark.parametrize("name", HARD)
def test_nothing_is_lost_of_a_hard_document(copying, name):
    text = HARD[name]
    columns = copying({"text": ["before", text, None, "after"]})
    before, translation, null, after = columns["translation"]
    assert (before, null, after) == ("before", None, "after")
    whole = text.replace("\ud800", "\ufffd").replace("\udc00", "\ufffd")
    assert [line.split() for line in translation.split("\n")] == [line.split() for line in whole.split("\n")]
    assert columns["report"][1]["source_cut"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.jsonl.zst", "a.parquet"])
def test_nothing_is_lost_of_files_with_hard_documents(copying, tmp_path, name):
    texts = [*HARD.values(), None, TEN_MEGABYTES, "after"]
    if name == "a.parquet":
        texts.remove(HARD["half of a character"])
        # Once is enough: it takes half a minute.
        texts.remove(TEN_MEGABYTES)
    rows = [{"id": number, "text": text, "score": number / 3} for number, text in enumerate(texts)]
    write_rows(rows, tmp_path / name)
    outputs = {tmp_path / name: tmp_path / "out" / name}
    outcome = translate_files(copying.job, outputs, tmp_path / "out", load=lambda: copying._crew.translator)
    assert outcome.errors == []
    new_rows = read_rows(tmp_path / "out" / name)
    assert [{key: row[key] for key in ("id", "text", "score")} for row in new_rows] == rows
    assert outcome.counts()["source_cut"] == 0
    for row in new_rows:
        if row["text"] is None:
            assert row["translation"] is None
            continue
        whole = row["text"].replace("\ud800", "\ufffd").replace("\udc00", "\ufffd")
        lines = row["translation"].split("\n")
        assert [line.split() for line in lines] == [line.split() for line in whole.split("\n")]


def write_rows(rows, path):
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
        return
    with pa.output_stream(str(path), compression="zstd") as stream:
        stream.write("".join(json.dumps(row) + "\n" for row in rows).encode())


def read_rows(path):
    if path.suffix == ".parquet":
        return parquet.read_table(path).to_pylist()
    with pa.input_stream(str(path), compression="zstd") as stream:
        return [json.loads(line) for line in stream.read().splitlines()]


def test_white_space_around_lines_stays(copying):
    text = HARD["white space"] + "\n" + HARD["carriage returns"]
    [translation] = copying({"text": [text]})["translation"]
    assert translation == text
