"""Profiler traces from processes that run unverified code, rebuilt event by event before they are stored.

Nothing is copied unchecked: names lose paths and invisible characters, numbers are validated, threads and processes
get new numbers, times begin at the first call, and unknown events are left out.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from pt2hub.domain.performance.profiles import MAX_ROWS, PROFILE_SCHEMA, Profile, ProfileRow, fit_name
from pt2hub.errors import OutputRefused
from pt2hub_workers.inside.operations.files import CALL_NAME, MAX_TRACE_BYTES, STEM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_Raw: TypeAlias = dict[str, Any]
MAX_EVENTS = 60_000
"""Events of a stored trace, some megabytes packed; of a larger one only the last call is kept."""
MAX_PACKED_BYTES = 8 << 20
_MAX_US = 1e16
_MAX_CALLS = 16
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_ON_HOST = frozenset({"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"})
_LINKS = "ac2g"
"""Category of the arrows from a launch to its kernel."""
_ARGS = frozenset(
    (
        "External id",
        "correlation",
        "device",
        "stream",
        "grid",
        "block",
        "registers per thread",
        "shared memory",
        "blocks per SM",
        "warps per SM",
        "est. achieved occupancy %",
        "bytes",
        "memory bandwidth (GB/s)",
    )
)
_MAX_PARTS = 8
_PATH = re.compile(r"(?:/[^\s/:;,()<>\"']+){2,}")
_PACKAGE = re.compile(rf"{re.escape(STEM)}_(?=triton_)")
_HOST, _DEVICES = 1, 10
"""Process numbers in stored traces: the host, and the first device."""


@dataclass(frozen=True, slots=True)
class Event:
    """Event of a trace.

    Attributes:
        process: `_HOST`, or a device's number.
        begin: Microseconds since the first call began.
        length: Microseconds.
    """

    category: str
    name: str
    process: int
    thread: int
    begin: float
    length: float
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """End of the event, in microseconds since the first call began."""
        return self.begin + self.length

    def within(self, other: Event) -> bool:
        """Return whether the event began during another one."""
        return other.begin <= self.begin < other.end


@dataclass(frozen=True, slots=True)
class Trace:
    """Trace of some calls.

    Attributes:
        plain_us: Microseconds of a call without the profiler, in the same process; None if unknown.
    """

    device: str
    calls: tuple[Event, ...]
    events: tuple[Event, ...]
    links: tuple[_Raw, ...] = ()
    batch: int | None = None
    plain_us: float | None = None

    def pack(self) -> bytes | None:
        """Return the trace as viewers read it, if necessary only its last call; None if that is too large as well."""
        kept = self if len(self.events) + len(self.links) <= MAX_EVENTS else self._last()
        if len(kept.events) + len(kept.links) > MAX_EVENTS:
            return None
        document = {"displayTimeUnit": "ms", "traceEvents": list(kept.documents())}
        data = gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 6, mtime=0)
        return data if len(data) <= MAX_PACKED_BYTES else None

    def profile(self) -> Profile:
        """Return the profile table of the trace."""
        on_device = self.device == "cuda"
        spent = _on_device(self.events) if on_device else _self_times(self.events, self.calls)
        whole = sum(call.length for call in self.calls)
        inside = math.fsum(time for times in spent.values() for time in times)
        rows = [_row(name, times, inside if on_device else whole) for name, times in spent.items()]
        rows.sort(key=lambda row: (-row.total_us, row.name))
        count = len(self.calls)
        busy, gaps = self._on_timeline() if on_device else (inside, 0.0)
        rest = max(0.0, whole - busy - gaps)
        return Profile(
            schema=PROFILE_SCHEMA,
            device=self.device,
            calls=count,
            call_us=round(whole / count, 3),
            rest_us=round(rest / count, 3),
            rows=tuple(rows[:MAX_ROWS]),
            left_out=max(0, len(rows) - MAX_ROWS),
            batch=self.batch,
            device_us=round(busy / count, 3) if on_device else None,
            gap_us=round(gaps / count, 3) if on_device else None,
            plain_us=self.plain_us,
        )

    def _on_timeline(self) -> tuple[float, float]:
        """Return microseconds in which a device was busy during the calls, and those in which it waited for a launch."""
        busy = gaps = 0.0
        work = [item for item in self.events if item.category in _ON_DEVICE]
        for call in self.calls:
            until: float | None = None
            for item in work:  # by their beginnings
                if not item.within(call):
                    continue
                gaps += max(0.0, item.begin - until) if until is not None else 0.0
                until = item.begin if until is None else until
                busy += max(0.0, item.end - max(item.begin, until))
                until = max(until, item.end)
        return busy, gaps

    def _last(self) -> Trace:
        last = self.calls[-1]
        events = tuple(item for item in self.events if item.within(last))
        links = tuple(item for item in self.links if last.begin <= item["ts"] < last.end)
        return replace(self, calls=(last,), events=events, links=links)

    def documents(self) -> Iterator[_Raw]:
        """Yield the events as viewers read them."""
        for process, thread in sorted({(item.process, item.thread) for item in self.events}):
            on_host = process == _HOST
            named = "artifact" if on_host else f"GPU {process - _DEVICES}"
            label = f"thread {thread}" if on_host else f"stream {thread}"
            ids = {"ph": "M", "pid": process, "tid": thread}
            yield {**ids, "name": "process_name", "args": {"name": named}}
            yield {**ids, "name": "thread_name", "args": {"name": label}}
        for item in self.events:
            yield {
                "ph": "X",
                "cat": item.category,
                "name": item.name,
                "pid": item.process,
                "tid": item.thread,
                "ts": item.begin,
                "dur": item.length,
                "args": item.args,
            }
        yield from self.links


def read_trace(path: Path, device: str) -> Trace:
    """Read a trace of torch's profiler."""
    with path.open("rb") as file:
        data = file.read(MAX_TRACE_BYTES + 1)
    if len(data) > MAX_TRACE_BYTES:
        raise _output_refused(f"larger than {MAX_TRACE_BYTES >> 20} MiB")
    try:
        found = json.loads(data, parse_constant=_refuse)["traceEvents"]
        raw = [item for item in found if isinstance(item, dict)]
        return _rebuild(raw, device)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise _output_refused(f"{type(error).__name__}: {error}"[:200]) from error


def _rebuild(raw: Sequence[_Raw], device: str) -> Trace:
    known = [item for item in raw if item.get("ph") == "X" and item.get("cat") in _ON_DEVICE | _ON_HOST]
    begins = sorted(
        _time(item.get("ts")) for item in known if item.get("name") == CALL_NAME and _is_note(item)
    )
    if not 0 < len(begins) <= _MAX_CALLS:
        raise ValueError(f"expected 1 to {_MAX_CALLS} calls, found {len(begins)}")
    ids = _TraceIds()
    events = sorted(
        (_event(item, begins[0], ids) for item in known), key=lambda item: (item.begin, -item.length)
    )
    calls = tuple(item for item in events if item.name == CALL_NAME and item.category == "user_annotation")
    if len(calls) != len(begins):  # cleaned names may collide with it
        raise ValueError("another event has the name of a call")
    kept = tuple(item for item in events if any(item.within(call) for call in calls))
    if device == "cuda" and not any(item.category in _ON_DEVICE for item in kept):
        raise ValueError("no kernels of the GPU: CUPTI may lack permissions here")
    links = [
        _link(item, begins[0], ids)
        for item in raw
        if item.get("cat") == _LINKS and item.get("ph") in ("s", "f")
    ]
    return Trace(device, calls, kept, tuple(item for item in links if _falls_in(item, calls)))


def _is_note(item: _Raw) -> bool:
    return item.get("cat") == "user_annotation"


def _falls_in(link: _Raw, calls: Iterable[Event]) -> bool:
    return any(call.begin <= link["ts"] < call.end for call in calls)


class _TraceIds:
    """New numbers of processes and threads, in order of appearance."""

    def __init__(self) -> None:
        self._threads: dict[str, int] = {}

    def of(self, item: _Raw, *, on_device: bool) -> tuple[int, int]:
        """Return the process and thread numbers of an event."""
        if on_device:
            return _DEVICES + _small(item.get("pid")), _small(item.get("tid"))
        return _HOST, self._threads.setdefault(str(item.get("tid"))[:40], len(self._threads) + 1)


def _event(item: _Raw, origin: float, ids: _TraceIds) -> Event:
    category = item["cat"]
    process, thread = ids.of(item, on_device=category in _ON_DEVICE)
    args = item.get("args")
    return Event(
        category=category,
        name=_kernel(item) if category in _ON_DEVICE else _name(item.get("name")),
        process=process,
        thread=thread,
        begin=round(_time(item.get("ts")) - origin, 3),
        length=round(_time(item.get("dur")), 3),
        args=_args(args) if isinstance(args, dict) else {},
    )


def _link(item: _Raw, origin: float, ids: _TraceIds) -> _Raw:
    process, thread = ids.of(item, on_device=item["ph"] == "f")
    begin = round(_time(item.get("ts")) - origin, 3)
    event = {
        "ph": item["ph"],
        "id": _small(item.get("id"), 1 << 53),
        "pid": process,
        "tid": thread,
        "ts": begin,
    }
    return {**event, "cat": _LINKS, "name": _LINKS, **({"bp": "e"} if item["ph"] == "f" else {})}


def _args(given: _Raw) -> _Raw:
    found = {}
    for name in _ARGS & given.keys():
        value = given[name]
        parts = value[:_MAX_PARTS] if isinstance(value, list) else [value]
        if parts and all(_is_number(part) for part in parts):
            found[name] = parts if isinstance(value, list) else value
    return dict(sorted(found.items()))


def _name(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError("the name of an event must be text")
    return fit_name(_PATH.sub(lambda match: match[0].rpartition("/")[2], given[:2000])) or "(no name)"


def _kernel(item: _Raw) -> str:
    """Return a kernel's name as in the generated sources, without the package prefix of the compiler."""
    return _PACKAGE.sub("", _name(item.get("name")))


def _time(given: object) -> float:
    if not _is_number(given) or not 0 <= given <= _MAX_US:  # type: ignore[operator]  # it is a number
        raise ValueError("invalid time of an event")
    return float(given)  # type: ignore[arg-type]  # it is a number


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and abs(given) <= _MAX_US


def _small(given: object, most: int = 1 << 20) -> int:
    return given if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < most else 0


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
        if item.process != _HOST or item.thread not in threads:
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
        if item.category in _ON_DEVICE:
            spent.setdefault(item.name, []).append(item.length)
    return spent


def _row(name: str, times: Sequence[float], whole: float) -> ProfileRow:
    total = math.fsum(times)
    share = min(1.0, total / whole) if whole else 0.0
    return ProfileRow(name, len(times), round(total, 3), round(total / len(times), 3), round(share, 5))


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"invalid number {name}")


def _output_refused(why: str) -> OutputRefused:
    return OutputRefused(f"invalid profiler trace: {why}", where="measure")
