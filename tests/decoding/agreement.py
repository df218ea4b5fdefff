"""`generate()` with the engine against `generate()` without it."""

import sys

import torch

from hf_capsule_mt.decoding import generate

TOLERANCE = 1e-4


def replace_everywhere(monkeypatch, name, value):
    """Replace a function in every module of the package that has it."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("hf_capsule_mt.") and hasattr(module, name):
            monkeypatch.setattr(module, name, value)


def check_agreement(model, source, calls, **options):
    """Require the same tokens, and the same scores of beam search; return the lengths of the translations.

    Where a sentence differs, both translations must be equally good.
    """
    scored = {"return_dict_in_generate": True, "output_scores": True}
    expected = model.generate(**source, **options, **scored)
    before = len(calls)
    found = model.generate(**source, **options, custom_generate=generate)
    assert len(calls) == before + 1, "the engine was not used"
    scores = None
    if options.get("num_beams", 1) > 1:
        scores = torch.cat([translation.scores for translation in calls[-1]])
        torch.testing.assert_close(scores, expected.sequences_scores.cpu(), atol=TOLERANCE, rtol=1e-6)
    if not torch.equal(found, expected.sequences):
        _check_ties(found, expected, scores)
    eos = model.generation_config.eos_token_id
    return {row.index(eos) if eos in row else len(row) for row in found[:, 1:].tolist()}


def _check_ties(found, expected, scores):
    assert scores is not None, "greedy search differs"
    width = max(found.shape[1], expected.sequences.shape[1])
    rows = [torch.nn.functional.pad(rows, (0, width - rows.shape[1])) for rows in (found, expected.sequences)]
    for row in (rows[0] != rows[1]).any(1).nonzero().flatten().tolist():
        margin = abs(scores[row].item() - expected.sequences_scores[row].item())
        print(f"row {row} differs by {margin}: {rows[0][row].tolist()} {rows[1][row].tolist()}")
        assert margin < 1e-6, f"row {row} differs, and it is no tie"
