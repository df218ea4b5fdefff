"""A translation that stops in the middle, for tests of what goes on from there."""

from itertools import count

from hf_capsule_mt.translation.text_translator import TextTranslator


def interrupt_after(monkeypatch, batches):
    """Let the next run translate that many batches and then stop as if by Ctrl-C; returns the undo."""
    original, numbers = TextTranslator.decode_batches, count()

    def interrupted(*arguments, **options):
        for batch in original(*arguments, **options):
            if next(numbers) == batches:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(TextTranslator, "decode_batches", interrupted)
    return monkeypatch.undo
