"""What a child tells of an error; without a process, and without torch."""

from __future__ import annotations

import errno
import json
import os
from typing import Any

import pytest

from pt2hub.errors import FactoryFailed, StorageUnavailable
from pt2hub_workers.inside.child import report_error


class Told:
    """A channel that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.error: dict[str, Any] = {}

    def log(self, text: str, level: str = "info") -> None:
        self.lines.append((level, text))

    def send(self, event: str, **values: Any) -> None:
        assert event == "error"
        self.error = values["error"]


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    """An error with the traceback of one that was raised."""
    try:
        raise error from cause
    except type(error) as caught:
        return caught


def told(error: Exception) -> Told:
    channel = Told()
    report_error(channel, error, "build")  # type: ignore[arg-type]  # the same methods
    return channel


def test_the_models_own_part_of_a_traceback_stands_in_the_summary_and_all_of_it_in_the_log() -> None:
    with pytest.raises(json.JSONDecodeError) as inner:
        json.loads("{")  # a frame of the model, then frames of Python
    channel = told(raised(FactoryFailed("the factory raised"), inner.value))

    (first, own), (second, whole) = channel.lines
    assert (first, second) == ("output", "compiler")
    assert __file__ in own
    assert "JSONDecodeError: Expecting" in own
    assert "json/decoder.py" not in own
    assert "json/decoder.py" in whole
    assert channel.error["code"] == "factory_failed"


def test_an_error_that_is_not_ours_is_a_defect_unless_the_machine_ran_short() -> None:
    assert told(raised(KeyError("x"))).error["code"] == "internal"
    full = raised(FactoryFailed("no"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert told(full).error["kind"] == "transient"
    away = raised(StorageUnavailable("away"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert told(away).error["code"] == "storage_unavailable"
