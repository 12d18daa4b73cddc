"""Profiles of traces: what a call's time was spent on."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any

from pt2hub.domain import artifacts
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import canonical_json
from pt2hub.domain.performance.profiles import MAX_ROWS, PROFILE_SCHEMA, Gaps, Profile, ProfileRow
from pt2hub_workers.builds.publication import ReferrerContent
from pt2hub_workers.inside.operations.files import CALL_NAME
from pt2hub_workers.performance.gaps import HostCalls, follow_device
from pt2hub_workers.performance.trace_events import HOST, ON_DEVICE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pt2hub_workers.performance.trace_events import Event
    from pt2hub_workers.performance.traces import Trace


def make_profile(trace: Trace, implementation: str = "artifact") -> Profile:
    """Return the profile of a trace.

    Args:
        implementation: Whose calls were traced.
    """
    on_device = trace.device == "cuda"
    spent = _on_device(trace.events) if on_device else _self_times(trace.events, trace.calls)
    whole = sum(call.length for call in trace.calls)
    inside = math.fsum(time for times in spent.values() for time in times)
    operators = _operators(trace.events) if on_device else {}
    shares_of = inside if on_device else whole
    rows = [_row(name, times, shares_of, operators.get(name)) for name, times in spent.items()]
    rows.sort(key=lambda row: (-row.total_us, row.name))
    count = len(trace.calls)
    busy, gaps = _on_timeline(trace) if on_device else (inside / count, None)
    idle = gaps.total_us if gaps else 0.0
    return Profile(
        schema=PROFILE_SCHEMA,
        device=trace.device,
        calls=count,
        call_us=round(whole / count, 3),
        rest_us=round(max(0.0, whole / count - busy - idle), 3),
        rows=tuple(rows[:MAX_ROWS]),
        left_out=max(0, len(rows) - MAX_ROWS),
        batch=trace.batch,
        device_us=round(busy, 3) if on_device else None,
        gap_us=round(idle, 3) if on_device else None,
        plain_us=trace.plain_us,
        gaps=gaps,
        implementation=implementation,
    )


def profile_referrers(trace: Trace, packed: bytes | None) -> tuple[ReferrerContent, ...]:
    """Return the contents to keep of an artifact's trace: its profile, which pages show, and the packed trace.

    Args:
        packed: Result of `Trace.pack`; None if the trace is too large.
    """
    table = canonical_json(encode(make_profile(trace)))
    found = (ReferrerContent(table, artifacts.PROFILE_TYPE, "profile.json"),)
    return (*found, ReferrerContent(packed, artifacts.TRACE_TYPE, "trace.json.gz")) if packed else found


def baseline_referrers(trace: Trace, implementation: str) -> tuple[ReferrerContent, ...]:
    """Return the contents to keep of a baseline's trace: its profile."""
    table = canonical_json(encode(make_profile(trace, implementation)))
    return (ReferrerContent(table, artifacts.BASELINE_PROFILE_TYPE, f"profile-{implementation}.json"),)


def _on_timeline(trace: Trace) -> tuple[float, Gaps]:
    """Return the time in which a device was busy in a call, and its gaps, both in microseconds per call."""
    lines = [follow_device(call, trace.events) for call in trace.calls]
    causes: Counter[str] = Counter()
    for line in lines:
        causes.update(line.gaps)
    means = {f"{cause}_us": round(time / len(lines), 3) for cause, time in causes.items()}
    return sum(line.busy for line in lines) / len(lines), Gaps(**means)


def _self_times(events: Iterable[Event], calls: Sequence[Event]) -> dict[str, list[float]]:
    """Return the self times of the calling thread's operations, by name."""
    spent: dict[str, list[float]] = {}
    open_ones: list[list[Any]] = []  # event, and the time of its nested events

    def close(until: float) -> None:
        while open_ones and open_ones[-1][0].end <= until:
            item, inside = open_ones.pop()
            if item.name != CALL_NAME:
                spent.setdefault(item.name, []).append(max(0.0, item.length - inside))

    threads = {call.thread for call in calls}
    for item in events:
        if item.process != HOST or item.thread not in threads:
            continue
        close(item.begin)
        if open_ones:
            open_ones[-1][1] += item.length
        open_ones.append([item, 0.0])
    close(math.inf)
    return spent


def _on_device(events: Iterable[Event]) -> dict[str, list[float]]:
    spent: dict[str, list[float]] = {}
    for item in events:
        if item.category in ON_DEVICE:
            spent.setdefault(item.name, []).append(item.length)
    return spent


def _operators(events: Sequence[Event]) -> Mapping[str, str]:
    """Return the operator (`aten::convolution`) that launches each kernel, where one does; most often, if several do."""
    host, outermost = HostCalls(events), _outermost_operators(events)
    found: dict[str, Counter[str]] = {}
    for item in events:
        launch = host.launch_of(item) if item.category in ON_DEVICE else None
        if launch is None:
            continue
        begins, operators = outermost.get(launch.thread, ([], []))
        place = bisect_right(begins, launch.begin) - 1
        if place >= 0 and launch.within(operators[place]):
            found.setdefault(item.name, Counter())[operators[place].name] += 1
    return {name: counts.most_common(1)[0][0] for name, counts in found.items()}


def _outermost_operators(events: Iterable[Event]) -> dict[int, tuple[list[float], list[Event]]]:
    """Return the operators of each thread that no other one called, with their beginnings."""
    found: dict[int, tuple[list[float], list[Event]]] = {}
    for item in events:  # by their beginnings, the longest first
        if item.category != "cpu_op" or "::" not in item.name:
            continue
        begins, operators = found.setdefault(item.thread, ([], []))
        if not operators or item.begin >= operators[-1].end:
            begins.append(item.begin)
            operators.append(item)
    return found


def _row(name: str, times: Sequence[float], whole: float, operator: str | None) -> ProfileRow:
    total = math.fsum(times)
    share = min(1.0, total / whole) if whole else 0.0
    mean = round(total / len(times), 3)
    return ProfileRow(name, len(times), round(total, 3), mean, round(share, 5), operator)
