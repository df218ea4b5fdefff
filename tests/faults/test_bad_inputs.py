"""A few of the attacks with damaged inputs, always the same. `make fuzz` makes many."""

import bad_inputs
import pytest
from bad_inputs import AREAS, DAMAGED, attack
from outcomes import Outcome

DAMAGES = ("byte_damage", "json_damage", "_header_damage", "_tensor_damage", "_line_damage")


@pytest.mark.parametrize("area", AREAS)
def test_damage_and_hard_texts_are_refused_or_do_no_harm(area, tmp_path):
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        finding = attack(area, seed, folder)
        assert finding.outcome in (Outcome.REFUSED, Outcome.RIGHT), f"{area} {seed}: {finding.about}"


@pytest.mark.parametrize("area", [area for area in DAMAGED if area != "checkpoint"])
def test_what_is_not_damaged_is_accepted(area, tmp_path, monkeypatch):
    """Otherwise a command that refuses everything would pass the test above."""
    for damage in DAMAGES:
        monkeypatch.setattr(bad_inputs, damage, lambda rng, data: data)
    finding = attack(area, 0, tmp_path)
    assert finding.outcome is Outcome.RIGHT, finding.about
