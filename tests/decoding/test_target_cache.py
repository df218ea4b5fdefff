"""Slots of the target's words: beams attend to their ancestors, and what no beam descends from makes room."""

import pytest
import torch

from hf_capsule_mt.decoding.target_cache import TargetCache

BEAMS = 4


def _follow(cache, steps, at_once, parents_of):
    """Write the number of each step and beam as its key; require that beams see those of all their ancestors."""
    lines = [[[] for _ in range(BEAMS)] for _ in range(cache.sentences)]
    for step in range(steps):
        if step % at_once == 0:
            cache.reserve(min(at_once, steps - step), steps - step)
        mask = cache.begin_step()
        numbers = 1 + step * BEAMS + torch.arange(BEAMS)
        cache.layers[0][: cache.sentences, 0, 0, cache.new, 0] = numbers.float()
        lines = [[line + [number] for line, number in zip(beams, numbers.tolist())] for beams in lines]
        seen = cache.layers[0][: cache.sentences, 0, 0, cache.read, 0]
        for sentence, beams in enumerate(lines):
            for beam, line in enumerate(beams):
                assert sorted(seen[sentence][mask[sentence, 0, beam] == 0].tolist()) == line
        cache.end_step()
        parents = parents_of()
        cache.reorder(parents)
        lines = [[beams[parent] for parent in row] for beams, row in zip(lines, parents.tolist())]


@pytest.mark.parametrize("at_once", [1, 5])
def test_beams_attend_to_their_ancestors(at_once):
    torch.manual_seed(0)
    cache = TargetCache(1, torch.zeros(3, 1, 2, 1), BEAMS)
    _follow(cache, 60, at_once, lambda: torch.randint(BEAMS, (3, BEAMS)))
    # As many as there were at first.
    assert cache.layers[0].shape[3] == 32 * BEAMS


def test_beams_that_stay_apart_need_a_slot_for_every_step():
    cache = TargetCache(1, torch.zeros(3, 1, 2, 1), BEAMS)
    _follow(cache, 40, 1, lambda: torch.arange(BEAMS).expand(3, -1))
    assert cache.layers[0].shape[3] == 40 * BEAMS
