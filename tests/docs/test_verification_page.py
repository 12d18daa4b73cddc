"""The table of the verification names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture" / "verification.md"
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
}
ROWS = [
    line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| fault")
]


def test_every_test_that_the_table_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))

    assert len(named) > 30
    assert named <= TESTS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:40])
def test_every_fault_has_a_check_and_a_planted_fault_or_says_what_is_unproven(row: str) -> None:
    fault, check, planted, unproven = (cell.strip() for cell in row.strip("|").split("|"))

    assert fault
    assert check
    assert planted or unproven or check.startswith("none:"), (
        "neither seen to be caught nor said to be unproven"
    )
