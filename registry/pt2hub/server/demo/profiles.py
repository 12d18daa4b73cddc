"""Where the calls of the story's artifacts spend their time: a trace of three calls, and the table of it."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.profiles import PROFILE_SCHEMA, Profile, ProfileRow
from pt2hub.server.demo import kernels
from pt2hub.server.demo.models import chance

if TYPE_CHECKING:
    from pt2hub.domain.measurements import MeasurementRun
    from pt2hub.server.demo.plan import Build, Version

_CALLS = 3
_LIBRARY = {
    True: (
        "ampere_sgemm_128x64_tn",
        "sm80_xmma_fprop_implicit_gemm_f32f32_nhwckrsc",
        "Memcpy DtoD (Device -> Device)",
    ),
    False: ("aoti_torch_cpu_addmm_out", "aten::mkldnn_convolution", "aten::copy_"),
}
"""What the library does in a call, on a GPU and on a CPU."""
_IDLE = 0.06
"""Share of a call in which nothing of this runs, about."""


def profile(version: Version, build: Build, run: MeasurementRun) -> tuple[Profile, bytes]:
    """The table of an artifact's calls, and their trace, packed.

    Args:
        version: Of what.
        build: On which target.
        run: What was measured of it: a call takes a little longer while it is watched.
    """
    gpu = build.arch.startswith("sm")
    luck = chance(version.model.name, version.model.program(version.number), build.arch, "profile")
    example = next(iter(version.model.dims.values()))["example"]
    wanted = ("latency_p50", "artifact", example)
    p50 = next(m.value for m in run.measurements if (m.metric, m.subject, m.batch) == wanted)
    call_us = p50 * 1000 * luck.uniform(1.03, 1.09)
    spans = _spans(version, luck.uniform(0.5, 1.5) * _IDLE, gpu=gpu)
    table = replace(_table(spans, call_us, gpu=gpu), batch=example, plain_us=round(p50 * 1000, 3))
    return table, _trace(spans, call_us, gpu=gpu)


def _spans(version: Version, idle: float, *, gpu: bool) -> list[tuple[str, float]]:
    """What runs in a call, in order, each with its share of it."""
    names = kernels.kernel_names(version.model, version.model.program(version.number))
    luck = chance(*names, gpu, "spans")
    own = names if gpu else [f"cpp_{name.removeprefix('triton_')}" for name in names]
    product, convolution, copy = _LIBRARY[gpu]
    convolves = any(len(shape) > 2 for _, shape in version.model.tensors)  # noqa: PLR2004  # a matrix has two
    calls = luck.choices((convolution if convolves else product, product), k=len(own))
    order = [name for pair in zip(calls, own, strict=True) for name in pair] + [copy]
    weights = [
        luck.uniform(2, 6) if name in (product, convolution) else luck.uniform(0.1, 1.2) for name in order
    ]
    return [(name, (1 - idle) * weight / sum(weights)) for name, weight in zip(order, weights, strict=True)]


def _table(spans: list[tuple[str, float]], call_us: float, *, gpu: bool) -> Profile:
    shares: dict[str, list[float]] = {}
    for name, share in spans:
        shares.setdefault(name, []).append(share)
    busy = sum(share for _, share in spans)
    idle = call_us * (1 - busy)
    gaps = idle * (len(spans) - 1) / len(spans) if gpu else 0.0
    whole = busy if gpu else 1.0
    rows = [_row(name, found, call_us, whole) for name, found in shares.items()]
    return Profile(
        schema=PROFILE_SCHEMA,
        device="cuda" if gpu else "cpu",
        calls=_CALLS,
        call_us=round(call_us, 3),
        rest_us=round(idle - gaps, 3),
        rows=tuple(sorted(rows, key=lambda row: -row.total_us)),
        device_us=round(call_us * busy, 3) if gpu else None,
        gap_us=round(gaps, 3) if gpu else None,
    )


def _row(name: str, shares: list[float], call_us: float, whole: float) -> ProfileRow:
    calls, share = _CALLS * len(shares), sum(shares)
    total = _CALLS * call_us * share
    return ProfileRow(name, calls, round(total, 3), round(total / calls, 3), round(share / whole, 5))


def _trace(spans: list[tuple[str, float]], call_us: float, *, gpu: bool) -> bytes:
    place, kind = ({"pid": 10, "tid": 7}, "kernel") if gpu else ({"pid": 1, "tid": 1}, "cpu_op")
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "args": {"name": name}, "pid": number, "tid": 1}
        for number, name in ((1, "artifact"), (10, "GPU 0"))[: 1 + gpu]
    ]
    for number in range(_CALLS):
        at = number * call_us * 1.02
        note = {"name": "pt2hub: call", "cat": "user_annotation", "pid": 1, "tid": 1}
        events.append({"ph": "X", **note, "ts": round(at, 3), "dur": round(call_us, 3)})
        gap = call_us * (1 - sum(share for _, share in spans)) / len(spans)
        for name, share in spans:
            event = {"ph": "X", "cat": kind, "name": name, **place}
            events.append(event | {"ts": round(at + gap / 2, 3), "dur": round(share * call_us, 3)})
            at += gap + share * call_us
    document = {"displayTimeUnit": "ms", "traceEvents": events}
    return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 6, mtime=0)
