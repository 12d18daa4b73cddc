"""Whatever happens in whatever order: every published blob is readable, and nothing is left behind in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from support.collector_machine import CollectorMachine

if TYPE_CHECKING:
    from support.registry import Registry


@pytest.mark.parametrize(
    "examples", [8, pytest.param(150, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_every_published_blob_is_readable_and_none_is_left_behind(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    monkeypatch.setattr(CollectorMachine, "registry", registry, raising=False)
    run_state_machine_as_test(
        CollectorMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
