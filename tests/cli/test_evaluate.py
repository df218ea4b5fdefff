"""The evaluation command, as a script too: a file called evaluate.py must not hide the library of that name."""

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hf_capsule_mt.cli.evaluate import main
from hf_capsule_mt.evaluation.scores import score_translations
from hf_capsule_mt.records import EvaluationRecord, read

SCRIPT = Path(__file__).parents[2] / "scripts" / "evaluate.py"
HYPOTHESES = ["Ein Hund läuft .", "", "Zwei Männer sitzen auf einer Bank ."]
REFERENCES = [
    ["Ein Hund rennt .", "Nichts .", "Zwei Männer sitzen auf einer Bank ."],
    ["ein Hund läuft .", "", "Zwei Leute sitzen auf der Bank ."],
]


@pytest.fixture
def files(tmp_path):
    """The hypotheses, and two references of which one is compressed."""
    paths = [tmp_path / name for name in ("out.de", "ref1.de", "ref2.de.gz")]
    for path, lines in zip(paths, (HYPOTHESES, *REFERENCES)):
        content = "".join(f"{line}\n" for line in lines).encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return [str(path) for path in paths]


def test_table_and_record(files, tmp_path, capsys):
    record_file = tmp_path / "record.json"
    options = ["--tokenize", "none", "--lowercase", "--metrics", "bleu", "ter", "--output_file", str(record_file)]
    main(["--hypotheses", files[0], "--references", *files[1:], *options])
    settings = {"tokenize": "none", "lowercase": True, "metrics": ["bleu", "ter"]}
    scores = score_translations(HYPOTHESES, REFERENCES, **settings)
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["metric", "score", "signature"]
    assert [row.split() for row in rows] == [
        [name, f"{entry['score']:.2f}", entry["signature"]] for name, entry in scores.items()
    ]
    record = json.loads(record_file.read_text())
    assert record["scores"] == scores
    assert record["settings"] == settings
    inputs = [record["hypotheses"], *record["references"]]
    assert inputs == [{"file": file, "sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest()} for file in files]
    environment = record["environment"]
    assert {"hf-capsule-mt", "torch", "sacrebleu"} <= environment["packages"].keys()
    assert {"device", "cpu_threads", "commit", "date"} <= environment.keys()
    assert read(EvaluationRecord, record_file).scores["bleu"].score == scores["bleu"]["score"]
    assert {file.name for file in tmp_path.iterdir()} == {"out.de", "ref1.de", "ref2.de.gz", "record.json"}


@pytest.mark.slow
def test_as_a_script(files):
    command = [sys.executable, str(SCRIPT), "--hypotheses", files[0], "--references", files[1]]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = score_translations(HYPOTHESES, REFERENCES[:1])["bleu"]
    assert f"{expected['score']:.2f}  {expected['signature']}" in result.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--references": ["SHORT"]}, "3 hypotheses but 1 segments in reference 1"),
        ({"--references": ["absent.de"]}, "absent.de"),
        ({"--metrics": ["rouge"]}, "unknown metric 'rouge'; there are bleu, chrf, chrf++, ter"),
        ({"--tokenize": ["moses"]}, "unknown tokenizer 'moses'"),
        ({"--output_file": ["no/such/folder/record.json"]}, "create it first"),
    ],
)
def test_mistakes(files, tmp_path, capsys, change, message):
    (tmp_path / "SHORT").write_text("Ein Hund .\n")
    options = {"--hypotheses": files[:1], "--references": files[1:], **change}
    values = [[name, *(str(tmp_path / v) if v == "SHORT" else v for v in value)] for name, value in options.items()]
    with pytest.raises(SystemExit) as exit_:
        main([argument for group in values for argument in group])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err
