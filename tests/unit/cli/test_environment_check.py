from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.cli.operations.environment_check import note_unknown_settings

if TYPE_CHECKING:
    import pytest


def test_a_variable_that_is_no_setting_is_named_with_the_one_that_may_be_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    note_unknown_settings(
        {"PT2HUB_STORAGE": "s3://b", "PATH": "/bin", "PT2HUB_STORGE": "x", "PT2HUB_GATE_SECONDS": "9"}
    )
    gate, storage = capsys.readouterr().err.splitlines()
    assert gate.startswith("PT2HUB_GATE_SECONDS is not a setting of pt2hub and has no effect. ")
    assert storage.endswith("Did you mean PT2HUB_STORAGE?")
