"""A translation that stops in the middle, for tests of what goes on from there."""

from hf_capsule_mt.cli import translate as translate_command


def interrupt_after(monkeypatch, batches):
    """Let the next run translate that many batches and then stop as if by Ctrl-C; returns the undo."""
    original = translate_command.translate_batches

    def interrupted(*arguments, **options):
        for number, batch in enumerate(original(*arguments, **options)):
            if number == batches:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(translate_command, "translate_batches", interrupted)
    return monkeypatch.undo
