"""Imports that precede the loading of a model."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.artifacts.imports import collector_paused

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Leaves the collector as other tests know it."""
    yield
    gc.enable()


def test_the_collector_rests_while_the_block_runs_and_also_works_again_after_an_error() -> None:
    def fail() -> None:
        with collector_paused():
            assert not gc.isenabled()
            raise ImportError

    with pytest.raises(ImportError):
        fail()
    assert gc.isenabled()


def test_a_collector_that_the_program_turned_off_stays_off() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()
