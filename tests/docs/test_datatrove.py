"""The step of a pipeline of datatrove on the page of corpora, with the real local executor and two processes."""

import gzip
import json
import subprocess
import sys

import pytest
from code_blocks import blocks
from tiny_marian import save_tiny_marian

from hf_capsule_mt import CorpusTranslator

TEXTS = [f"{letter} a b c\n\nq {letter}" for letter in "defghijklmnop"]


@pytest.mark.slow
def test_the_step_of_the_page_translates_as_the_package_does(tmp_path):
    model = str(save_tiny_marian(tmp_path / "model"))
    [code] = [block.text for block in blocks("docs/corpora.md") if "datatrove" in block.text]
    code = code.replace("Helsinki-NLP/opus-mt-en-de", model).replace("tasks=8", "tasks=2")
    (tmp_path / "script.py").write_text(code, encoding="utf-8")
    (tmp_path / "shards").mkdir()
    for name, texts in (("a.jsonl", TEXTS[:6]), ("b.jsonl", TEXTS[6:])):
        rows = [{"id": text, "text": text, "score": 0.5} for text in texts]
        (tmp_path / "shards" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True)

    translate = CorpusTranslator(model, sentences="en", num_beams=1)
    for number, texts in enumerate((TEXTS[:6], TEXTS[6:])):
        with gzip.open(tmp_path / "translated_by_datatrove" / f"0000{number}.jsonl.gz") as file:
            written = [json.loads(line) for line in file]
        assert [row["text"] for row in written] == texts
        assert [row["metadata"]["translation"] for row in written] == translate({"text": texts})["translation"]
        assert {row["metadata"]["score"] for row in written} == {0.5}
