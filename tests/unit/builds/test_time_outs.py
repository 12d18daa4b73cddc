"""How long a client waits."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pt2hub.client.builds.follower import time_left
from pt2hub.errors import InvalidInput


@pytest.mark.parametrize("timeout", [math.nan, "600", True])
def test_a_time_out_that_is_no_number_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout must be a number of seconds or None, got") as raised:
        time_left(timeout)
    assert raised.value.where == "timeout"


@pytest.mark.parametrize(
    ("timeout", "least"), [(None, math.inf), (math.inf, math.inf), (600, 599.0), (0, -1.0)]
)
def test_the_seconds_that_are_left_are_told(timeout: float | None, least: float) -> None:
    assert time_left(timeout)() >= least
