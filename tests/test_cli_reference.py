"""docs/cli.md is what the commands say of themselves."""

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "cli_reference.py"


def test_the_reference_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)  # the script sets its own
    made = runpy.run_path(str(SCRIPT))
    assert made["PAGE"].read_text() == made["page"](), "run python scripts/cli_reference.py"
