"""A few of the attacks with damaged inputs, always the same. `make fuzz` makes many."""

import pytest
from bad_inputs import AREAS, Outcome, attack


@pytest.mark.parametrize("area", AREAS)
def test_damage_is_refused_or_does_no_harm(area, tmp_path):
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        finding = attack(area, seed, folder)
        assert finding.outcome is not Outcome.SILENT_CHANGE, f"{area} {seed}: {finding.about}"
