"""Profiler traces from processes that run unverified code, rebuilt event by event before they are stored.

Nothing is copied unchecked: names lose paths and invisible characters, numbers are validated, threads and processes
get new numbers, times begin at the first call, and unknown events are left out.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from pt2hub.domain.performance.profiles import fit_name
from pt2hub.errors import OutputRefused
from pt2hub_workers.inside.operations.files import CALL_NAME, MAX_TRACE_BYTES, STEM
from pt2hub_workers.performance.trace_events import DEVICES, HOST, ON_DEVICE, ON_HOST, Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_Raw: TypeAlias = dict[str, Any]
MAX_EVENTS = 60_000
"""Events of a stored trace, some megabytes packed; of a larger one only the last call is kept."""
MAX_PACKED_BYTES = 8 << 20
_MAX_US = 1e16
_MAX_CALLS = 16
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

    def _last(self) -> Trace:
        last = self.calls[-1]
        events = tuple(item for item in self.events if item.within(last))
        links = tuple(item for item in self.links if last.begin <= item["ts"] < last.end)
        return replace(self, calls=(last,), events=events, links=links)

    def documents(self) -> Iterator[_Raw]:
        """Yield the events as viewers read them."""
        for process, thread in sorted({(item.process, item.thread) for item in self.events}):
            on_host = process == HOST
            named = "artifact" if on_host else f"GPU {process - DEVICES}"
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
    known = [item for item in raw if item.get("ph") == "X" and item.get("cat") in ON_DEVICE | ON_HOST]
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
    if device == "cuda" and not any(item.category in ON_DEVICE for item in kept):
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
            return DEVICES + _small(item.get("pid")), _small(item.get("tid"))
        return HOST, self._threads.setdefault(str(item.get("tid"))[:40], len(self._threads) + 1)


def _event(item: _Raw, origin: float, ids: _TraceIds) -> Event:
    category = item["cat"]
    process, thread = ids.of(item, on_device=category in ON_DEVICE)
    args = item.get("args")
    return Event(
        category=category,
        name=_kernel(item) if category in ON_DEVICE else _name(item.get("name")),
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


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"invalid number {name}")


def _output_refused(why: str) -> OutputRefused:
    return OutputRefused(f"invalid profiler trace: {why}", where="measure")
