"""Readers of files from strangers: files that were once answered wrongly, and some that are new in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.fuzzing import READERS, kept, read_within_bounds

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("path", kept(), ids=lambda path: f"{path.parent.name} {path.name}")
def test_a_file_that_was_answered_wrongly_is_answered_right(path: Path) -> None:
    read_within_bounds(READERS[path.parent.name], path.read_bytes())


@pytest.mark.parametrize("name", READERS)
def test_a_made_up_file_is_answered_with_a_value_or_an_error_of_pt2hub(name: str) -> None:
    @settings(max_examples=30, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def read(data: st.DataObject) -> None:
        read_within_bounds(READERS[name], data.draw(READERS[name].files))

    read()
