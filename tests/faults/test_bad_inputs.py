"""A part of the attack with damaged inputs, always the same; `make fuzz` is the long one."""

import pytest
from bad_inputs import AREAS, Outcome, attack

BAD = (Outcome.SILENT_CHANGE,)
# Those of checkpoints translate, which takes longest.
ATTACKS = {"text": 150}


@pytest.mark.parametrize("area", AREAS)
def test_damage_is_refused_or_does_no_harm(area, tmp_path):
    for seed in range(ATTACKS.get(area, 16)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        finding = attack(area, seed, folder)
        assert finding.outcome not in BAD, f"{area} {seed}: {finding.about}"


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("area", AREAS)
def test_much_damage(area, tmp_path):
    for seed in range(1000, 1500):
        folder = tmp_path / str(seed)
        folder.mkdir()
        finding = attack(area, seed, folder)
        assert finding.outcome not in BAD, f"{area} {seed}: {finding.about}"
