"""The script that measures trained models on a file."""

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

from tiny_marian import tiny_model, tiny_tokenizer

from benchmarks.speed.decoders_report import file_report
from hf_capsule_mt.evaluation.scores import score_translations
from hf_capsule_mt.records import FileDecodingRecord, read
from hf_capsule_mt.translation.translator import translate_lines

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "trained.py"


def test_every_decoder_of_a_file(tmp_path, monkeypatch, capsys):
    lines = ["a b c d e", "g h", "i j k"]
    tiny_model().save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    expected = translate_lines(tiny_model(), tiny_tokenizer(), lines, num_beams=2)
    for name, text in (("source", lines), ("reference", [*expected[:2], "q r s"])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in text))
    files = [str(tmp_path / "source"), str(tmp_path / "reference")]
    words = ["--models", f"plain={tmp_path / 'model'}", "--test", *files, "--num_beams", "2", "--rounds", "2"]
    monkeypatch.setattr(sys, "argv", ["trained.py", *words, "--output_file", str(tmp_path / "record.json")])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    record = read(FileDecodingRecord, tmp_path / "record.json")
    found = record.models["plain"]
    names = ["engine float32", "engine bfloat16", "engine int8"]
    names += ["CTranslate2 float32", "CTranslate2 int8"] if find_spec("ctranslate2") else []
    assert list(found) == names
    assert all(len(decoder.seconds) == 2 and min(decoder.seconds) > 0 for decoder in found.values())
    scores = score_translations(expected, [[*expected[:2], "q r s"]], tokenize="none", metrics=("bleu",))
    assert found["engine float32"].bleu.score == scores["bleu"]["score"]
    assert found["engine float32"].bleu.score > 0
    assert f"| plain | engine float32 | {scores['bleu']['score']:.2f} |" in file_report(record)
    assert capsys.readouterr().out.count("BLEU") == len(names)
