"""Why a GPU was idle between two kernels, from events as CUPTI and Kineto write them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.performance.profiles import Gaps
from pt2hub_workers.inside.operations.files import CALL_NAME
from pt2hub_workers.performance.trace_profiles import make_profile
from pt2hub_workers.performance.traces import read_trace

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.performance.profiles import Profile

Raw = dict[str, Any]
HOST, OTHER_THREAD = 4711, 4712
_CBID = {"cudaLaunchKernel": 211, "cuLaunchKernel": 652, "cudaGraphLaunch": 311, "cudaMemcpyAsync": 41}


def call(ts: float, dur: float) -> Raw:
    return {
        "ph": "X", "cat": "user_annotation", "name": CALL_NAME, "pid": HOST, "tid": HOST, "ts": ts, "dur": dur,
        "args": {"External id": 1},
    }  # fmt: skip


def cuda(name: str, ts: float, dur: float, correlation: int = 0, tid: int = HOST) -> Raw:
    """A call of CUDA by the host."""
    category = "cuda_runtime" if name.startswith("cuda") else "cuda_driver"
    args = {"cbid": _CBID.get(name, 131), "correlation": correlation}
    return {
        "ph": "X", "cat": category, "name": name, "pid": HOST, "tid": tid, "ts": ts, "dur": dur, "args": args,
    }  # fmt: skip


def op(name: str, ts: float, dur: float, tid: int = HOST) -> Raw:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": HOST,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": {},
    }


def kernel(ts: float, dur: float, correlation: Any, stream: int = 7, name: str = "triton_poi_fused_0") -> Raw:
    args = {
        "External id": 12, "queued": 0, "device": 0, "context": 1, "stream": stream, "correlation": correlation,
        "registers per thread": 32, "shared memory": 0, "grid": [64, 1, 1], "block": [128, 1, 1],
        "blocks per SM": 0.48, "warps per SM": 1.9, "est. achieved occupancy %": 3,
    }  # fmt: skip
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args,
    }  # fmt: skip


def copy(ts: float, dur: float, correlation: int, kind: str = "Memcpy DtoH (Device -> Pageable)") -> Raw:
    args = {
        "device": 0,
        "stream": 7,
        "correlation": correlation,
        "bytes": 4,
        "memory bandwidth (GB/s)": 0.003,
    }
    return {
        "ph": "X", "cat": "gpu_memcpy", "name": kind, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args,
    }  # fmt: skip


def profile_of(tmp_path: Path, *events: Raw) -> Profile:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return make_profile(read_trace(path, "cuda"))


LAUNCH_BOUND = [  # small kernels: each launch returns long after the kernel before it has ended
    cuda("cuLaunchKernel", 1010, 4, 1), kernel(1018, 5, 1),
    cuda("cuLaunchKernel", 1040, 4, 2), kernel(1048, 5, 2),
    cuda("cudaLaunchKernel", 1070, 6, 3), kernel(1080, 5, 3, name="void cudnn::nhwcToNchwKernel<float>(int)"),
]  # fmt: skip
QUEUED = [  # the host runs ahead: launches have returned before the GPU gets to the kernels
    cuda("cuLaunchKernel", 1010, 4, 1), kernel(1020, 100, 1),
    cuda("cuLaunchKernel", 1016, 4, 2), kernel(1121.5, 100, 2),
    cuda("cuLaunchKernel", 1022, 4, 3), kernel(1223.0, 100, 3),
]  # fmt: skip
ITEM = [  # x.item() between two kernels: the copy is launched in time, the stream is waited for, and then the host goes on
    cuda("cuLaunchKernel", 1010, 4, 1), kernel(1020, 60, 1),
    cuda("cudaMemcpyAsync", 1030, 5, 2), copy(1081, 2, 2),
    cuda("cudaStreamSynchronize", 1036, 52, 3),
    cuda("cuLaunchKernel", 1100, 4, 4), kernel(1110, 20, 4),
]  # fmt: skip
BLOCKING_COPY = [
    cuda("cuLaunchKernel", 1010, 4, 1), kernel(1020, 60, 1),
    cuda("cudaMemcpy", 1030, 60, 2), copy(1082, 3, 2),
    cuda("cuLaunchKernel", 1100, 4, 3), kernel(1110, 20, 3),
]  # fmt: skip
STREAMS = [  # a kernel of the second stream waits for an event of the first, whose kernels hide part of the wait
    cuda("cuLaunchKernel", 1010, 4, 1), kernel(1020, 60, 1, stream=7),
    cuda("cudaStreamWaitEvent", 1015, 2, 90),
    cuda("cuLaunchKernel", 1018, 4, 2), kernel(1084, 30, 2, stream=8),
    cuda("cuLaunchKernel", 1024, 4, 3), kernel(1030, 20, 3, stream=9),
    cuda("cuLaunchKernel", 1030, 4, 4), kernel(1100, 10, 4, stream=7),
]  # fmt: skip
GRAPH = [  # one launch starts them all, and returns while they run
    cuda("cudaMemcpyAsync", 1005, 4, 1), copy(1012, 2, 1, "Memcpy DtoD (Device -> Device)"),
    cuda("cudaGraphLaunch", 1012, 38, 2),
    kernel(1030, 5, 2), kernel(1036.5, 5, 2), kernel(1043, 5, 2), kernel(1055, 5, 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "busy", "gaps"),
    [
        (LAUNCH_BOUND, 15.0, Gaps(launch_us=25.0 + 27.0)),
        (QUEUED, 300.0, Gaps(device_us=1.5 + 1.5)),
        (ITEM, 82.0, Gaps(device_us=1.0, sync_us=27.0)),
        (BLOCKING_COPY, 83.0, Gaps(launch_us=2.0, sync_us=25.0)),
        (STREAMS, 60.0 + 30.0, Gaps(device_us=4.0)),
        (GRAPH, 22.0, Gaps(launch_us=16.0, device_us=1.5 + 1.5 + 7.0)),
    ],
    ids=["launch-bound", "queued", "item", "blocking copy", "streams", "graph"],
)
def test_each_gap_has_the_cause_that_its_launch_shows(
    tmp_path: Path, events: list[Raw], busy: float, gaps: Gaps
) -> None:
    profile = profile_of(tmp_path, call(1000, 400), *events)
    assert profile.device_us == pytest.approx(busy)
    assert profile.gaps == gaps
    assert profile.gap_us == pytest.approx(gaps.total_us)
    assert profile.rest_us == pytest.approx(400 - busy - gaps.total_us)


@pytest.mark.parametrize(
    "name",
    [
        "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
        "cuCtxSynchronize", "cuEventSynchronize", "cudaStreamSynchronize_ptsz", "cudaMemcpy", "cudaMemcpy2D",
        "cudaMemcpyToSymbol", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2",
    ],
)  # fmt: skip
def test_these_calls_hold_the_host_up(tmp_path: Path, name: str) -> None:
    profile = profile_of(
        tmp_path,
        call(1000, 200), cuda("cuLaunchKernel", 1010, 4, 1), kernel(1020, 20, 1),
        cuda(name, 1016, 30, 2), cuda("cuLaunchKernel", 1050, 4, 3), kernel(1060, 20, 3),
    )  # fmt: skip
    assert profile.gaps == Gaps(sync_us=20.0)


@pytest.mark.parametrize(
    "name",
    [
        "cudaMemcpyAsync", "cuMemcpyDtoHAsync_v2", "cudaMemcpy2DAsync", "cudaStreamWaitEvent", "cudaEventRecord",
        "cudaStreamIsCapturing", "cudaMalloc", "cudaDeviceSynchronizes", "xcudaMemcpy",
    ],
)  # fmt: skip
def test_these_calls_do_not(tmp_path: Path, name: str) -> None:
    profile = profile_of(
        tmp_path,
        call(1000, 200), cuda("cuLaunchKernel", 1010, 4, 1), kernel(1020, 20, 1),
        cuda(name, 1016, 30, 2), cuda("cuLaunchKernel", 1050, 4, 3), kernel(1060, 20, 3),
    )  # fmt: skip
    assert profile.gaps == Gaps(launch_us=20.0)


def test_a_wait_of_another_thread_after_the_launch_or_before_the_gap_is_not_the_cause(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        call(1000, 200),
        cuda("cudaStreamSynchronize", 1002, 3, 90),
        cuda("cuLaunchKernel", 1010, 4, 1), kernel(1020, 20, 1),
        cuda("cudaStreamSynchronize", 1016, 30, 91, tid=OTHER_THREAD),
        cuda("cuLaunchKernel", 1050, 4, 2), kernel(1060, 20, 2),
        cuda("cudaDeviceSynchronize", 1056, 40, 92),
    )  # fmt: skip
    assert profile.gaps == Gaps(launch_us=20.0)


def test_a_wait_that_begins_when_the_gpu_is_idle_waits_for_nothing(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        call(1000, 200), cuda("cuLaunchKernel", 1010, 4, 1), kernel(1020, 20, 1),
        cuda("cudaStreamSynchronize", 1042, 2, 2), cuda("cuLaunchKernel", 1050, 4, 3), kernel(1060, 20, 3),
    )  # fmt: skip
    assert profile.gaps == Gaps(launch_us=20.0)


def test_of_an_early_long_wait_the_end_counts(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        call(1000, 200), cuda("cuLaunchKernel", 1010, 4, 1), kernel(1020, 20, 1),
        cuda("cudaStreamSynchronize", 1015, 28, 2), cuda("cudaEventSynchronize", 1020, 1, 3),
        cuda("cuLaunchKernel", 1050, 4, 4), kernel(1060, 20, 4),
    )  # fmt: skip
    assert profile.gaps == Gaps(sync_us=20.0)


@pytest.mark.parametrize("correlation", [99, 0, -1, 1.5, True, None, "2", [2]])
def test_a_kernel_without_its_launch_has_a_gap_of_unknown_cause(tmp_path: Path, correlation: Any) -> None:
    profile = profile_of(
        tmp_path,
        call(1000, 200), cuda("cuLaunchKernel", 1010, 4, 1), kernel(1020, 20, 1),
        cuda("cuLaunchKernel", 1050, 4, 2), kernel(1060, 20, correlation),
    )  # fmt: skip
    assert profile.gaps == Gaps(unknown_us=20.0)


def test_the_gaps_are_the_mean_of_the_calls_and_none_is_between_calls(tmp_path: Path) -> None:
    def events(at: float, number: int, late: float) -> list[Raw]:
        return [
            call(at, 150),
            cuda("cuLaunchKernel", at + 10, 4, number), kernel(at + 20, 20, number),
            cuda("cuLaunchKernel", at + 45, 4, number + 1), kernel(at + 40 + late, 20, number + 1),
            cuda("cudaDeviceSynchronize", at + 60, 80, number + 2),
        ]  # fmt: skip

    profile = profile_of(tmp_path, *events(1000, 1, 20.0), *events(1300, 11, 30.0), *events(1600, 21, 40.0))
    assert profile.gaps == Gaps(launch_us=30.0)
    assert (profile.calls, profile.device_us, profile.rest_us) == (3, 40.0, 80.0)


def test_a_kernel_of_a_library_has_the_operator_that_launches_it(tmp_path: Path) -> None:
    conv, gemm = "sm80_xmma_fprop_implicit_gemm_f32f32", "ampere_sgemm_128x64_tn"
    profile = profile_of(
        tmp_path,
        call(1000, 400),
        op("aten::convolution", 1010, 60), op("aten::cudnn_convolution", 1012, 50),
        cuda("cudaLaunchKernel", 1020, 5, 1), kernel(1030, 10, 1, name=conv),
        cuda("cuLaunchKernel", 1080, 5, 2), kernel(1090, 10, 2),
        op("Torch-Compiled Region: 0/0", 1095, 100),
        op("aten::addmm", 1100, 30), cuda("cudaLaunchKernel", 1110, 5, 3), kernel(1120, 9, 3, name=gemm),
        op("aten::mm", 1150, 30), cuda("cudaLaunchKernel", 1160, 5, 4), kernel(1170, 9, 4, name=gemm),
        op("aten::addmm", 1180, 10), cuda("cudaLaunchKernel", 1185, 2, 5), kernel(1190, 9, 5, name=gemm),
        op("aten::mm", 1215, 30, tid=OTHER_THREAD), cuda("cuLaunchKernel", 1220, 5, 6), kernel(1230, 5, 6),
    )  # fmt: skip
    assert {row.name: row.operator for row in profile.rows} == {
        conv: "aten::convolution",
        gemm: "aten::addmm",
        "triton_poi_fused_0": None,
    }


def test_a_trace_of_many_waits_is_read_in_a_moment(tmp_path: Path) -> None:
    events = [call(1000, 400_000)]
    for n in range(8_000):
        at = 1000 + 20 * n
        events += [
            cuda("cudaStreamSynchronize", at, 1, 3 * n + 1),
            cuda("cuLaunchKernel", at + 2, 1, 3 * n + 2),
            kernel(at + 6, 2, 3 * n + 2),
        ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}, separators=(",", ":")))
    trace = read_trace(path, "cuda")
    began = time.process_time()
    profile = make_profile(trace)
    assert time.process_time() - began < 3
    assert profile.gaps == Gaps(launch_us=18.0 * 7_999)
