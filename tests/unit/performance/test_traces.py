"""Traces: what comes from a process that runs unproven code is rebuilt, and what it adds up to."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.codec import encode
from pt2hub.domain.performance.profiles import MAX_ROWS, Gaps, read_profile
from pt2hub.errors import BadResponse, OutputRefused
from pt2hub.rendering.profiles import GAPS
from pt2hub.server.pages.artifacts import time_breakdown
from pt2hub_workers.inside.operations.files import CALL_NAME, MAX_TRACE_BYTES
from pt2hub_workers.performance import traces
from pt2hub_workers.performance.trace_profiles import make_profile, profile_referrers
from pt2hub_workers.performance.traces import Trace, read_trace

if TYPE_CHECKING:
    from pathlib import Path


def event(name: str, ts: float, dur: float, cat: str = "cpu_op", **fields: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 4711, "tid": 4711, "ts": ts, "dur": dur, **fields}


def call(ts: float, dur: float = 100.0) -> dict[str, Any]:
    return event(CALL_NAME, ts, dur, "user_annotation")


def written(tmp_path: Path, *events: Any, **fields: Any) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events, **fields}))
    return path


def of(tmp_path: Path, *events: Any, device: str = "cpu") -> Trace:
    return read_trace(written(tmp_path, *events), device)


def kept(trace: Trace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(trace.pack() or b""))["traceEvents"]
    return found


def test_what_calls_another_row_is_counted_without_it_and_the_rest_is_told(tmp_path: Path) -> None:
    trace = of(
        tmp_path,
        event("warm-up", 0, 900, "user_annotation"), event("aten::mm", 10, 800),
        call(1000), event("aten::linear", 1010, 60), event("aten::mm", 1020, 40), event("cpp_fused_relu_0", 1080, 10),
        call(2000), event("aten::linear", 2010, 60), event("aten::mm", 2020, 40), event("cpp_fused_relu_0", 2080, 10),
        event("another thread", 2011, 80, tid=5), event("after the last call", 2500, 1),
    )  # fmt: skip
    profile = make_profile(trace)
    assert [(row.name, row.calls, row.total_us, row.mean_us, row.share) for row in profile.rows] == [
        ("aten::mm", 2, 80.0, 40.0, 0.4),
        ("aten::linear", 2, 40.0, 20.0, 0.2),
        ("cpp_fused_relu_0", 2, 20.0, 10.0, 0.1),
    ]
    assert (profile.calls, profile.call_us, profile.rest_us) == (2, 100.0, 30.0)
    assert read_profile(json.loads(json.dumps(encode(profile)))) == profile
    assert {item["ts"] for item in kept(trace) if item["ph"] == "X"} >= {0.0, 1000.0}


def test_of_a_gpu_the_rows_are_its_kernels_and_arrows_lead_to_them(tmp_path: Path) -> None:
    launch = event("cudaLaunchKernel", 1005, 5, "cuda_runtime", args={"correlation": 7})
    kernel = event("triton_poi_fused_relu_0", 1020, 50, "kernel", args={"grid": [4, 1, 1], "device": 0})
    place = {"pid": 0, "tid": 7}
    arrows = [
        {"ph": "s", "id": 7, "pid": 4711, "tid": 4711, "ts": 1005, "cat": "ac2g", "name": "ac2g"},
        {"ph": "f", "id": 7, **place, "ts": 1020, "cat": "ac2g", "name": "ac2g", "bp": "e"},
    ]
    copy = event("Memcpy DtoD", 1080, 10, "gpu_memcpy", **place)
    trace = of(tmp_path, call(1000), launch, {**kernel, **place}, copy, *arrows, device="cuda")

    profile = make_profile(trace)
    assert [(row.name, row.share) for row in profile.rows] == [
        ("triton_poi_fused_relu_0", 0.83333),
        ("Memcpy DtoD", 0.16667),
    ]
    assert (profile.device_us, profile.gap_us, profile.rest_us) == (60.0, 10.0, 30.0)
    places = {item["name"]: (item["pid"], item["tid"]) for item in kept(trace) if item["ph"] == "X"}
    assert places == {
        CALL_NAME: (1, 1),
        "cudaLaunchKernel": (1, 1),
        "triton_poi_fused_relu_0": (10, 7),
        "Memcpy DtoD": (10, 7),
    }
    assert [(item["ph"], item["pid"]) for item in kept(trace) if item.get("cat") == "ac2g"] == [
        ("s", 1),
        ("f", 10),
    ]


H100 = {"launches": 70, "launch_us": 5.0, "every_us": 20.0, "kernel_us": 5.6, "latency_us": 12.0}
"""A call of resnet18 as an H100 told of it: 1,480 us under the profiler, 400 of them kernels; 550 without it."""


def cuda_call(at: float, number: int) -> list[dict[str, Any]]:
    """A call as CUPTI and Kineto tell of it: launches on the host, kernels on a stream, and what links the two."""
    found = [call(at, 1480.0)]
    for place in range(H100["launches"]):  # type: ignore[arg-type]
        launched = at + 10 + place * H100["every_us"]
        correlation = {"correlation": number * 1000 + place, "External id": place}
        kind = "cuda_driver" if place % 2 else "cuda_runtime"
        name = "cuLaunchKernel" if place % 2 else "cudaLaunchKernel"
        found.append(event(name, launched, H100["launch_us"], kind, args={"cbid": 211, **correlation}))
        kernel = (
            f"model_triton_poi_fused_relu_{place % 3}"
            if place % 2
            else "void cudnn::nhwcToNchwKernel<float>(int)"
        )
        args = {"queued": 0, "device": 0, "stream": 7, "grid": [4, 1, 1], "block": [128, 1, 1], **correlation}
        begin = launched + H100["latency_us"]
        found.append({**event(kernel, begin, H100["kernel_us"], "kernel", args=args), "pid": 0, "tid": 7})
    found.append(event("cudaDeviceSynchronize", at + 1420, 55, "cuda_runtime", args={"cbid": 165}))
    return found


def test_a_call_that_waits_for_launches_is_told_as_that_and_shares_are_of_what_the_gpu_ran(
    tmp_path: Path,
) -> None:
    events = [item for number in range(3) for item in cuda_call(1000 + 1600 * number, number)]
    trace = replace(of(tmp_path, *events, device="cuda"), plain_us=550.0)
    profile = make_profile(trace)
    assert sum(row.share for row in profile.rows) == pytest.approx(1.0, abs=1e-4)
    assert [(row.name, row.calls, row.share) for row in profile.rows[:2]] == [
        ("void cudnn::nhwcToNchwKernel<float>(int)", 105, 0.5),
        ("triton_poi_fused_relu_0", 36, pytest.approx(12 / 70, abs=1e-4)),
    ]
    assert {row.name for row in profile.rows[1:]} == {f"triton_poi_fused_relu_{n}" for n in range(3)}
    assert profile.device_us == pytest.approx(70 * 5.6)
    assert profile.gap_us == pytest.approx(69 * 14.4)
    assert profile.rest_us == pytest.approx(1480 - 70 * 5.6 - 69 * 14.4)
    assert profile.profiler_us == 930.0
    assert profile.idle_us == pytest.approx(550 - 70 * 5.6)
    assert read_profile(json.loads(json.dumps(encode(profile)))) == profile
    table = time_breakdown.break_down(profile)
    assert table.rest_share is None
    assert [item.generated for item in table.shown] == ["", *(row.name for row in profile.rows[1:])]
    assert [name for name, _, _ in table.whole] == [
        "GPU busy with kernels and copies",
        GAPS["launch_us"],
        GAPS["sync_us"],
        "before the first kernel and after the last",
        "call under the profiler",
        "call without the profiler",
        "profiler overhead",
        "GPU idle in a call without the profiler",
    ]
    assert sum(own or 0.0 for _, own, _ in table.whole[:4]) == pytest.approx(1480)
    assert profile.gaps == Gaps(launch_us=pytest.approx(69 * 14.4))


def test_streams_that_run_beside_each_other_are_no_gap_and_no_more_than_the_time_of_a_call(
    tmp_path: Path,
) -> None:
    def kernel(name: str, ts: float, dur: float, stream: int) -> dict[str, Any]:
        return {**event(name, ts, dur, "kernel"), "pid": 0, "tid": stream}

    trace = of(
        tmp_path,
        call(1000),
        *(kernel("a", 1010, 60, 7), kernel("b", 1020, 20, 8), kernel("c", 1080, 10, 7)),
        device="cuda",
    )
    profile = make_profile(trace)
    assert (profile.device_us, profile.gap_us, profile.rest_us) == (70.0, 10.0, 20.0)
    assert [(row.name, row.share) for row in profile.rows] == [("a", 0.66667), ("b", 0.22222), ("c", 0.11111)]


def test_a_gpu_that_tells_of_no_kernels_is_not_called_idle(tmp_path: Path) -> None:
    with pytest.raises(OutputRefused, match="CUPTI may lack permissions"):
        of(tmp_path, call(1000), event("aten::mm", 1010, 5), device="cuda")


def test_nothing_is_passed_on_as_it_came(tmp_path: Path) -> None:
    own = event(
        "/home/ada/models/secret.py(12): for\u202eward\x1b[2J", 1001, 5,
        args={"Call stack": "/home/ada", "stream": "/home/ada", "grid": ["/home", 1], "bytes": 12, "device": [1] * 99},
        pid="/home/ada", tid="/home/ada", secret="/home/ada",
    )  # fmt: skip
    other = {"ph": "M", "name": "process_name", "args": {"name": "/home/ada/bin/python"}, "pid": 1, "tid": 1}
    trace = of(tmp_path, call(1000), own, other, event("/home/ada", 1002, 1, "/home/ada"), "no event", None)
    text = gzip.decompress(trace.pack() or b"").decode()
    assert "ada" not in text
    assert "secret.py(12): forward[2J" in text
    halved = of(tmp_path, call(1000), event("a\ud800b", 1001, 5))
    assert profile_referrers(halved, halved.pack())[0].data.count(b'"a?b"') == 1
    assert '"args":{"bytes":12,"device":[1,1,1,1,1,1,1,1]}' in text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[1]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"traceEvents": 1}',
        b'{"traceEvents": []}',
        json.dumps({"traceEvents": [event("no call", 1, 1)]}).encode(),
        json.dumps({"traceEvents": [call(n) for n in range(17)]}).encode(),
        json.dumps({"traceEvents": [call(1), {**call(2), "name": f"/x/{CALL_NAME}"}]}).encode(),
        json.dumps({"traceEvents": [call(1), event("x", 10**400, 1)]}).encode(),
        json.dumps({"traceEvents": [call(1), event("x", 1, -1)]}).encode(),
        json.dumps({"traceEvents": [call(1), {**event("x", 1, 1), "name": ["x"]}]}).encode(),
        json.dumps({"traceEvents": [call(1), {**event("x", 1, 1), "cat": ["x"]}]}).encode(),
        b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "x", "ts": NaN, "dur": 1}]}',
        b" " * (MAX_TRACE_BYTES + 1),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    with pytest.raises(OutputRefused):
        read_trace(path, "cpu")


def test_of_too_many_events_the_last_call_is_kept_and_of_too_many_in_one_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "MAX_EVENTS", 4)
    both = [item for at in (1000, 2000) for item in (call(at), *(event("x", at + n, 1) for n in range(1, 4)))]
    assert [item["ts"] for item in kept(of(tmp_path, *both)) if item["ph"] == "X"] == [1000, 1001, 1002, 1003]
    assert of(tmp_path, call(1000), *(event("x", 1000 + n, 1) for n in range(9))).pack() is None


def test_the_table_has_its_longest_rows_and_says_how_many_are_left_out(tmp_path: Path) -> None:
    many = [event(f"kernel {n}", 1000 + 10 * n, 1 + n / 1000) for n in range(300)]
    profile = make_profile(of(tmp_path, call(1000, 3000), *many))
    assert (len(profile.rows), profile.left_out) == (MAX_ROWS, 100)
    assert profile.rows[0].name == "kernel 299"
    table = time_breakdown.break_down(profile)
    assert (len(table.shown), len(table.others)) == (20, 180)
    assert table.rest_width == time_breakdown.WIDTH


ROW = {"name": "x", "calls": 1, "total_us": 1.0, "mean_us": 1.0, "share": 0.5}
PROFILE = {"schema": 2, "device": "cpu", "calls": 1, "call_us": 2.0, "rest_us": 1.0, "rows": [ROW]}
"""As an earlier pt2hub wrote it, without causes of gaps, operators and the implementation."""


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": [ROW] * 201},
        {"rows": [{**ROW, "share": float("nan")}]},
        {"rows": [{**ROW, "total_us": -1.0}]},
        {"rows": [{**ROW, "calls": 10**400}]},
        {"rows": [{**ROW, "mean_us": 10**400}]},
        {"rows": [{**ROW, "name": None}]},
        {"rows": {"x": 1}},
        {"calls": 0},
        {"calls": True},
        {"left_out": -1},
        {"call_us": float("inf")},
        {"plain_us": float("inf")},
        {"device_us": -1.0},
        {"gap_us": "1"},
        {"gaps": {"launch_us": -1.0}},
        {"gaps": {"sync_us": float("nan")}},
        {"gaps": {"device_us": "1"}},
        {"gaps": [1.0]},
        {"implementation": 3},
        {"implementation": "x" * 301},
        {"rows": [{**ROW, "name": "x" * 301}]},
        {"rows": [{**ROW, "operator": "x" * 301}]},
        {"rows": [{**ROW, "operator": 1}]},
    ],
)
def test_a_table_that_lies_is_none(changes: dict[str, Any]) -> None:
    older = read_profile(PROFILE)
    assert (older.rows[0].name, older.rows[0].operator, older.gaps) == ("x", None, None)
    assert older.implementation == "artifact"
    with pytest.raises(BadResponse):
        read_profile({**PROFILE, **changes})
