"""What is finished of a file stays until all of it stands."""

import gzip
import json

import pytest

from hf_capsule_mt.evaluation import partial_output
from hf_capsule_mt.evaluation.partial_output import PartialOutput


def header(window):
    return {"window": window, "input": str(window)}


@pytest.mark.parametrize(("output", "report"), [("out.de.gz", "report.jsonl"), ("out.de", "report.jsonl.gz")])
def test_windows_survive_a_full_disk_at_the_end(tmp_path, monkeypatch, output, report):
    files = tmp_path / output, tmp_path / report
    partial = PartialOutput(*files)
    for window in range(2):
        partial.append(header(window), [f"line {window}"], [json.dumps({"line": window})])

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(partial_output.shutil, "copyfileobj", full)
        with pytest.raises(OSError, match="No space"):
            partial.finish()
    assert not any(file.exists() for file in files)
    again = PartialOutput(*files)
    assert all(again.has(header(window)) for window in range(2))
    again.finish()
    assert {file.name for file in tmp_path.iterdir()} == {output, report}
    texts = [(gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()) for file in files]
    assert texts == [b"line 0\nline 1\n", b'{"line": 0}\n{"line": 1}\n']
