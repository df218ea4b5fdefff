"""What quickstart refuses, before it writes anything."""

import pytest

from hf_capsule_mt.cli.quickstart import main


@pytest.mark.parametrize("option", [["--method", "nope"], ["--max_steps", "0"]])
def test_mistakes_leave_nothing(tmp_path, capsys, option):
    with pytest.raises(SystemExit) as exit_:
        main(["--output_dir", str(tmp_path / "quickstart"), *option])
    assert exit_.value.code == 2
    assert f"argument {option[0]}: " in capsys.readouterr().err
    assert not (tmp_path / "quickstart").exists()
