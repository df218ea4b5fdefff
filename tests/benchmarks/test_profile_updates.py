"""benchmarks/profile_updates.py: shares of every kind, which add up."""

import runpy
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "profile_updates.py"


def test_the_shares_of_two_methods(monkeypatch, capsys):
    words = ["--vocab_size", "99", "--max_tokens", "48", "--methods", "rnmt", "capsnmt", "--bf16"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    main = runpy.run_path(str(SCRIPT))["main"]
    monkeypatch.setitem(main.__globals__, "UPDATES", 1)
    main()
    columns, _, *rows = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()
    )
    assert [row[0] for row in rows] == ["rnmt", "capsnmt"]
    for row in rows:
        shares = dict(zip(columns[2:], map(int, row[2:]), strict=True))
        assert abs(sum(shares.values()) - 100) <= len(shares)
        assert min(shares["products"], shares["copies and casts"], shares["optimizer"]) >= 1
