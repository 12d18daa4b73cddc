"""Gaps between kernels by cause, torch.compile beside the artifact, and debug logs, on a CUDA device.

    PYTHONPATH=registry:workers:tests python -m pytest -m gpu -s --confcutdir=tests/gpu tests/gpu/test_gap_causes.py

The first tests trace plain torch whose gaps are known; they take seconds. The last one publishes resnet18.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
import torch

from pt2hub.cli.operations import demo
from pt2hub.domain.debug_logs import DEBUG_LOGS
from pt2hub_workers.inside.performance.call_trace import trace_calls
from pt2hub_workers.inside.performance.timer import make_clock
from pt2hub_workers.performance.trace_profiles import make_profile
from pt2hub_workers.performance.traces import read_trace
from support.gpu import await_measured, publish

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pt2hub.client.client import Client
    from pt2hub.domain.performance.profiles import Gaps, Profile

pytestmark = pytest.mark.gpu


def profile_of(call: Callable[[], object], tmp_path: Path) -> tuple[Profile, Gaps]:
    into = tmp_path / "trace.json"
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    assert trace_calls(call, make_clock("cuda"), device="cuda", pace=1e-3, into=into) == ""
    profile = make_profile(read_trace(into, "cuda"))
    assert profile.gaps is not None
    print(json.dumps({"gaps": asdict(profile.gaps), "busy": profile.device_us, "call": profile.call_us}))
    print(json.dumps([[row.name[:60], row.calls, row.operator] for row in profile.rows[:6]]))
    assert profile.gaps.unknown_us <= 0.02 * (profile.gap_us or 0.0), "launches are in the trace"
    return profile, profile.gaps


def test_small_kernels_wait_for_their_launches(tmp_path: Path) -> None:
    x = torch.zeros(1024, device="cuda")

    def call() -> None:
        for _ in range(100):
            x.add_(1)

    profile, gaps = profile_of(call, tmp_path)
    assert gaps.launch_us > 0.9 * gaps.total_us
    assert gaps.sync_us == 0
    assert profile.rows[0].operator == "aten::add_"


def test_large_kernels_are_queued(tmp_path: Path) -> None:
    x = torch.randn(4096, 4096, device="cuda")

    def call() -> None:
        for _ in range(20):
            torch.mm(x, x)

    profile, gaps = profile_of(call, tmp_path)
    assert gaps.device_us > gaps.launch_us + gaps.sync_us
    assert gaps.total_us < 0.1 * (profile.device_us or 0.0)


def test_an_item_holds_the_host_up(tmp_path: Path) -> None:
    x = torch.randn(2048, 2048, device="cuda")

    def call() -> None:
        for _ in range(10):
            y = torch.mm(x, x)
            if y[0, 0].item() == 42:
                y.add_(1)

    _, gaps = profile_of(call, tmp_path)
    assert gaps.sync_us > gaps.launch_us
    assert gaps.sync_us > 10


def test_a_graph_has_one_launch(tmp_path: Path) -> None:
    x = torch.zeros(1024, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            x.add_(1)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(50):
            x.add_(1)

    profile, gaps = profile_of(graph.replay, tmp_path)
    assert profile.rows[0].calls == 50 * profile.calls
    assert gaps.launch_us == 0, "the first kernel alone waits for the launch, and it is before all gaps"
    assert gaps.device_us > 0


def test_streams_that_wait_for_each_other_wait_on_the_device(tmp_path: Path) -> None:
    x, side = torch.randn(4096, 4096, device="cuda"), torch.cuda.Stream()

    def call() -> None:
        here = torch.cuda.current_stream()
        for _ in range(5):
            torch.mm(x, x)
            side.wait_stream(here)
            with torch.cuda.stream(side):
                torch.mm(x, x)
            here.wait_stream(side)

    _, gaps = profile_of(call, tmp_path)
    assert gaps.device_us > gaps.launch_us + gaps.sync_us


def test_an_artifact_beside_torch_compile_with_debug_logs(client: Client) -> None:
    measure = {"processes": 1, "torch_compile": True}
    # An option of its own, so that the code is compiled and its logs are recorded.
    compiled = {"debug": list(DEBUG_LOGS), "options": {"coordinate_descent_search_radius": 2}}
    spec = {**demo.SPEC, "model": "vision/resnet18-gaps", "measure": measure, "compile": compiled}
    digest = await_measured(client, publish(client, spec))
    found = client.artifacts.profile(digest)
    own, other = found.artifact, found.torch_compile
    assert other is not None, "torch.compile was not traced: the log of the measuring job says why"
    for profile in (own, other):
        assert profile.gaps is not None
        print(json.dumps({profile.implementation: asdict(profile.gaps), "busy": profile.device_us}))
        assert profile.gaps.total_us == pytest.approx(profile.gap_us, abs=0.01)
        assert profile.gaps.unknown_us <= 0.02 * (profile.gap_us or 1.0)
        assert profile.gaps.sync_us <= 0.1 * profile.gaps.total_us
    assert (own.batch, own.device) == (other.batch, "cuda")
    for row in found.rows[:12]:
        print(json.dumps([row.name[:70], row.kernel, [item.line for item in row.lines][:3], str(row.source)]))
    generated = [row for row in found.rows if row.artifact and row.name.startswith("triton_")]
    assert generated
    astray = [
        row for row in generated if not (row.kernel == f"model_{row.name}" and row.lines and row.source)
    ]
    assert not astray, [[row.name, row.kernel, len(row.lines), str(row.source)] for row in astray]
    both = [row.name for row in found.rows if row.artifact and row.torch_compile]
    print(json.dumps({"rows": len(found.rows), "in both": len(both)}))
    libraries = [row for row in found.rows if row.artifact and not row.name.startswith(("triton_", "Mem"))]
    with_origin = sum(bool(row.lines or (row.artifact and row.artifact.operator)) for row in libraries)
    print(json.dumps({"library kernels": len(libraries), "with an operator": with_origin}))

    texts = {kind: client.artifacts.debug_log(digest, kind).text for kind in DEBUG_LOGS}
    print(json.dumps({kind: [len(text), text[:120]] for kind, text in texts.items()}))
    assert "aten.convolution" in texts["graph"]
    assert "fusing" in texts["fusion"]
    assert "Schedule:" in texts["schedule"]
    assert "triton" in texts["output_code"]
