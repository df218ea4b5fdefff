"""A split of a data set becomes files that the other commands read."""

import json

import pytest

from benchmarks.studies.export_text import main


@pytest.fixture
def dataset(tmp_path):
    folder = tmp_path / "pairs"
    folder.mkdir()
    rows = [{"translation": {"en": f"line {number}", "de": f"Zeile {number}"}} for number in range(3)]
    rows.insert(1, {"translation": {"en": "", "de": "leer"}})
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["--dataset_name", str(folder), "--split", "test", "--source_lang", "en", "--target_lang", "de"]


def test_files(dataset, tmp_path, capsys):
    main([*dataset, "--output_file", str(tmp_path / "test.en"), str(tmp_path / "test.de")])
    assert (tmp_path / "test.en").read_text() == "line 0\nline 1\nline 2\n"
    assert (tmp_path / "test.de").read_text() == "Zeile 0\nZeile 1\nZeile 2\n"
    assert "4 pairs read, 3 kept, 1 dropped with an empty side" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output_file", "one.en"], "name a source and a target file"),
        (["--output_file", "a.en", "../{folder}/a.en"], "name a source and a target file"),
        (["--output_file", "nowhere/a.en", "nowhere/a.de"], "the folder of nowhere/a.en does not exist"),
        (["--output_file", "pairs/test.jsonl"], "test.jsonl, which is another file of this command, and would be lost"),
        (["--output_file", "a.en", "a.de", "--source_lang", "fr"], 'no language "fr", only en, de'),
    ],
)
def test_mistakes(dataset, tmp_path, capsys, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        main([*dataset, *(option.format(folder=tmp_path.name) for option in options)])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["pairs"]
