"""Runs as earlier releases stored them."""

from __future__ import annotations

import pytest

from pt2hub.domain.codec import encode
from pt2hub.domain.performance.measurements import RUN_SCHEMA, Measurement, Pair, read_run
from pt2hub.errors import BadResponse
from support.registry import ENVIRONMENT

_TIMED = {"metric": "latency_p50", "unit": "ms", "batch": 2, "samples": None, "replicates": [9.0, 9.5]}
SCHEMA_1 = {
    "schema": 1,
    "id": "141d3512f3d3a069:1:1",
    "source": "again",
    "measured_at": "2026-11-22T10:00:01+00:00",
    "environment": encode(ENVIRONMENT),
    "conditions": {"processes": 2},
    "measurements": [
        {**_TIMED, "value": 9.0, "subject": "artifact"},
        {**_TIMED, "value": 20.0, "subject": "eager"},
    ],
    "baseline": "sha256:" + 64 * "a",
    "beside": [{**_TIMED, "value": 10.0, "subject": "artifact"}],
    "pairs": [{"metric": "latency_p50", "unit": "ms", "ratios": [0.9, 0.95], "batch": 2}],
    "note": None,
}


def test_a_run_of_schema_1_is_read_whole() -> None:
    run = read_run(SCHEMA_1)
    assert run.schema == RUN_SCHEMA
    assert [(item.implementation, item.value) for item in run.measurements] == [
        ("artifact", 9.0),
        ("eager", 20.0),
    ]
    assert run.baseline_measurements == [
        Measurement("latency_p50", 10.0, "ms", "artifact", 2, replicates=[9.0, 9.5])
    ]
    assert run.pairs == [Pair("latency_p50", "ms", [0.9, 0.95], 2)]
    assert read_run(encode(run)) == run


@pytest.mark.parametrize(
    "changes", [{"measurements": 3}, {"measurements": [3]}, {"beside": [{"metric": "a"}]}]
)
def test_a_malformed_run_of_schema_1_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadResponse):
        read_run({**SCHEMA_1, **changes})
