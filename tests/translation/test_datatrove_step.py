"""datatrove's real local executor, with two processes, translates as the command does."""

import json

import pytest
from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from tiny_marian import save_tiny_marian

from hf_capsule_mt import CorpusTranslator
from hf_capsule_mt.data import row_files
from hf_capsule_mt.translation.files.datatrove_step import TranslationStep

TEXTS = [f"{letter} a b c\n\nq {letter}" for letter in "defghijklmnop"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_tiny_marian(tmp_path_factory.mktemp("checkpoint")))


def documents(texts):
    return [Document(text=text, id=str(number)) for number, text in enumerate(texts)]


@pytest.mark.slow
def test_the_local_executor(checkpoint, tmp_path):
    (tmp_path / "in").mkdir()
    for name, texts in (("a.jsonl", TEXTS[:6]), ("b.jsonl", TEXTS[6:])):
        rows = [{"id": text, "text": text, "score": 0.5} for text in texts]
        (tmp_path / "in" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    translator = CorpusTranslator(checkpoint, report_column="report")
    pipeline = [
        JsonlReader(str(tmp_path / "in")),
        TranslationStep(translator),
        JsonlWriter(str(tmp_path / "out"), compression=None),
    ]
    logs = str(tmp_path / "logs")
    stats = LocalPipelineExecutor(pipeline, tasks=2, workers=2, logging_dir=logs, skip_completed=True).run()

    for name, texts in (("00000.jsonl", TEXTS[:6]), ("00001.jsonl", TEXTS[6:])):
        rows = [json.loads(line) for line in (tmp_path / "out" / name).read_text().splitlines()]
        expected = translator({"text": texts})
        assert [row["text"] for row in rows] == texts
        assert [row["metadata"]["translation"] for row in rows] == expected["translation"]
        assert [row["metadata"]["report"] for row in rows] == expected["report"]
        assert {row["metadata"]["score"] for row in rows} == {0.5}
    [of_step] = [step for step in stats.stats if "TRANSLATION" in step.name]
    assert of_step["segments"].total == 2 * len(TEXTS)


def test_a_task_works_in_parts(checkpoint, monkeypatch):
    """Its documents are not in memory together."""
    monkeypatch.setattr(row_files, "PART_SIZE", 30)
    read = []
    step = TranslationStep(CorpusTranslator(checkpoint))
    translated = step.run(read.append(document) or document for document in documents(TEXTS))
    first = next(translated)
    assert 1 < len(read) < len(TEXTS) / 2
    assert [document.text for document in (first, *translated)] == TEXTS
