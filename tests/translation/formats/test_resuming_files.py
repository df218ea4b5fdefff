"""An interrupted translation of a file continues where it was."""

import pytest
from stand_in_translator import UpperCase
from tiny_marian import save_tiny_marian

from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.decoding.products import int8
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files import sources, translate_file
from hf_capsule_mt.translation.files.journal import Journal


class Stops(UpperCase):
    """Is interrupted after some sentences."""

    def decode_batches(self, sentences, batches, **options):
        for batch in super().decode_batches(sentences, batches, **options):
            if len(self.seen) > 3:
                raise KeyboardInterrupt
            yield batch


def test_finished_texts_are_not_translated_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_GROUP", 8)
    (tmp_path / "a.md").write_text("# one\n\ntwo\n\nthree\n\nfour\n\nfive\n")
    files = tmp_path / "a.md", tmp_path / "b.md", "en"
    with pytest.raises(KeyboardInterrupt):
        translate_file(Stops(), *files, settings={"model": "a"})
    assert not (tmp_path / "b.md").exists()
    with pytest.raises(UserError, match="is of an interrupted run with another model"):
        translate_file(UpperCase(), *files, settings={"model": "b"})
    translator = UpperCase()
    translate_file(translator, *files, settings={"model": "a"})
    assert translator.seen == ["four", "five"]
    assert (tmp_path / "b.md").read_text() == "# ONE\n\nTWO\n\nTHREE\n\nFOUR\n\nFIVE\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.md", "b.md"]


def test_another_input_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_GROUP", 1)
    files = tmp_path / "a.md", tmp_path / "b.md", "en"
    (tmp_path / "a.md").write_text("a\n\nb\n\nc\n\nd\n\ne\n")
    with pytest.raises(KeyboardInterrupt):
        translate_file(Stops(), *files, settings={})
    (tmp_path / "a.md").write_text("x\n\nb\n\nc\n\nd\n\ne\n")
    with pytest.raises(UserError, match="is of an interrupted run with another input"):
        translate_file(UpperCase(), *files, settings={})


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_the_command_keeps_what_is_finished(tmp_path, monkeypatch, dtype):
    """In int8 it continues with the same products, even if others are faster now."""
    backends = int8._int8_backends() or ("float32",)
    monkeypatch.setattr(int8, "_fastest_backend", lambda wide, many: backends[0])
    monkeypatch.setattr(sources, "_GROUP", 1)
    (tmp_path / "a.md").write_text("a b\n\nb c\n")
    write = Journal.append
    monkeypatch.setattr(Journal, "append", lambda *args: write(*args) or 1 / 0)
    model = str(save_tiny_marian(tmp_path / "model"))
    arguments = ["--model", model, "--documents", "en", "--input_file", str(tmp_path / "a.md")]
    arguments += ["--output_file", str(tmp_path / "b.md"), "--dtype", dtype]
    with pytest.raises(ZeroDivisionError):
        main(arguments)
    assert len((tmp_path / "b.md.unfinished" / "lines").read_text().splitlines()) == 1
    monkeypatch.undo()
    monkeypatch.setattr(int8, "_fastest_backend", lambda wide, many: backends[-1])
    main(arguments)
    assert not (tmp_path / "b.md.unfinished").exists()
    assert (tmp_path / "b.md").read_text().count("\n\n") == 1
