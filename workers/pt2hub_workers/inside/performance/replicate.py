"""One replicate: a fresh process that times an artifact, and another artifact in turns with it. No source runs here.

Each action is announced before it starts, so that a crash or a hang is reported with the action.
"""

from __future__ import annotations

import contextlib
import gc
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.client.artifacts.call_contract import call_with
from pt2hub.client.artifacts.loader import LoadedModel, load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub.domain.publishing.spec import Spec
from pt2hub_workers.inside.builds.export import inputs
from pt2hub_workers.inside.builds.verify.tensor_conversions import convert_to_declared
from pt2hub_workers.inside.operations import files
from pt2hub_workers.inside.performance.timer import Clock, make_clock, time_alternating

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pt2hub_workers.inside.operations.channel import Channel

_STATUS = Path("/proc/self/status")
_RESET_PEAK = "5"
"""Value for `clear_refs` that resets the peak of the resident memory: see proc(5)."""


def run_replicate(job: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Load the implementations in their order and time them in turns.

    Args:
        job: `spec`; `examples`, files by input name; `batches`, each a size of the spec's batch dimension or None for
            the example; `seconds` of each implementation at each of them; `implementations` in the order to load them, each with
            `name`, `config`, `code` and `weights`; `profile`, the index of the batch size whose calls are
            traced if nothing is timed after it, None for no trace.

    Returns:
        `threads`, and `implementations` as `measurements.ImplementationTimes` has them.
    """
    gc.freeze()  # the collector skips imported objects during the timing
    channel.send("progress", text="make inputs")
    spec = Spec.from_canonical(job["spec"])
    examples = {name: Path(path) for name, path in job["examples"].items()}
    given = [inputs.make_inputs(spec, _point_at(spec, batch), examples) for batch in job["batches"]]
    sizes = [inputs.batch_size(spec, tensors) for tensors in given]
    with torch.inference_mode():
        loaded = [
            _load(item, given, sizes, channel, first=not place)
            for place, item in enumerate(job["implementations"])
        ]
        for number, size in enumerate(sizes):
            channel.send("progress", text=f"time at batch {size}")
            _time_batch(loaded, number, size, job["seconds"])
        found = {"threads": torch.get_num_threads(), "implementations": [item.times for item in loaded]}
        # The measurements are sent before profiling, so that a failing profiler cannot lose them.
        if job.get("profile") is not None and channel.ask("last", figures=found):
            _profile(next(item for item in loaded if item.times["name"] == "artifact"), job, channel)
    return found


def _profile(artifact: _Loaded, job: dict[str, Any], channel: Channel) -> None:
    """Trace a few calls."""
    from pt2hub_workers.inside.performance.call_trace import trace_calls

    channel.send("progress", text="trace some calls of the artifact")
    into = Path(job["directory"]) / files.TRACE
    place = job["profile"]
    pace = artifact.times["batches"][place]["p50"] / 1000
    device = artifact.model.config.signature.device
    if why := trace_calls(artifact.make_call(place), artifact.clock, device=device, pace=pace, into=into):
        channel.log(f"calls were not traced: {why}", "warning")


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A loaded implementation and its times."""

    model: LoadedModel
    calls: list[dict[str, Any]]
    clock: Clock
    times: dict[str, Any]

    def make_call(self, number: int) -> Callable[[], object]:
        """Return the call at one of the sizes."""
        return partial(self.model, **self.calls[number])


def _load(
    item: dict[str, Any],
    given: Sequence[inputs.Tensors],
    sizes: Sequence[int | None],
    channel: Channel,
    *,
    first: bool,
) -> _Loaded:
    name = item["name"]
    config = decode(ArtifactConfig, item["config"])
    calls = [_call(config, tensors) for tensors in given]
    clock = make_clock(config.signature.device)
    clock.wait()
    meter = _MemoryMeter(config.signature.device)
    channel.send("progress", text=f"load the {name}")
    began = time.perf_counter()
    model = load_artifact(LocalArtifact.from_files(config, Path(item["code"]), Path(item["weights"])))
    clock.wait()
    load_ms = (time.perf_counter() - began) * 1000
    channel.send("progress", text=f"call the {name} for the first time")
    began = time.perf_counter()
    model(**calls[0])
    clock.wait()
    first_ms = (time.perf_counter() - began) * 1000
    largest = max(range(len(sizes)), key=lambda number: sizes[number] or 0)
    channel.send("progress", text=f"call the {name} at batch {sizes[largest]}")
    model(**calls[largest])
    clock.wait()
    times: dict[str, Any] = {"name": name, "batches": []}
    if first:  # for the second implementation the process is no longer fresh
        times |= {"load_ms": load_ms, "first_ms": first_ms, **meter.read_growth()}
    return _Loaded(model, calls, clock, times)


def _time_batch(loaded: Sequence[_Loaded], number: int, size: int | None, seconds: float) -> None:
    found = time_alternating([item.make_call(number) for item in loaded], loaded[0].clock, seconds=seconds)
    for item, timed in zip(loaded, found, strict=True):
        item.times["batches"].append(timed.as_dict(size))


def _point_at(spec: Spec, batch: int | None) -> inputs.Point:
    sizes = {name: dim.example for name, dim in spec.dims.items()}
    if batch is None or spec.batch_dim is None:
        return inputs.Point("example", sizes)
    return inputs.Point(f"batch{batch}", {**sizes, spec.batch_dim: batch})


def _call(config: ArtifactConfig, tensors: inputs.Tensors) -> dict[str, Any]:
    signature = config.signature
    device = torch.device(signature.device)
    return call_with(
        signature,
        {item.name: convert_to_declared(tensors[item.name], item, device) for item in signature.inputs},
    )


class _MemoryMeter:
    """Measures the growth of memory use in the process and on the device."""

    def __init__(self, device: str) -> None:
        self._on_device = device == "cuda"
        self._host: int | None = None
        with contextlib.suppress(OSError):  # without a reset the peak may be that of the imports
            Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
            self._host = _read_status("VmRSS")
        self._device = 0
        if self._on_device:
            torch.cuda.reset_peak_memory_stats()
            self._device = torch.cuda.memory_allocated()

    def read_growth(self) -> dict[str, int | None]:
        """Return the growth up to the peak in bytes; None if unknown."""
        peak = _read_status("VmHWM")
        host = None if peak is None or self._host is None else peak - self._host
        device = torch.cuda.max_memory_allocated() - self._device if self._on_device else None
        return {"host_bytes": host, "device_bytes": device}


def _read_status(name: str) -> int | None:
    """Read a line of /proc/self/status, which is in KiB, as bytes; return None if there is no such line."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None
