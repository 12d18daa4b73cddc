"""One fresh process that times an artifact, and its baseline beside it. No model's source runs here.

Everything is announced before it is done, so that a crash or a hang is reported with what it was at.
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

from pt2hub.client.contract import call_with
from pt2hub.client.loader import LoadedModel, load_artifact
from pt2hub.client.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub.domain.specs import Spec
from pt2hub_workers.inside import files, inputs
from pt2hub_workers.inside.tensors import as_declared
from pt2hub_workers.inside.timing import Clock, Timed, alternate, clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pt2hub_workers.inside.channel import Channel

_STATUS = Path("/proc/self/status")
_RESET_PEAK = "5"
"""What one writes to `clear_refs` to have the peak of the resident memory forgotten: see proc(5)."""


def run(job: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Loads the subjects in their order and times them in turns.

    Args:
        job: `spec`; `examples`, files by input name; `batches`, each a size of the spec's batch dimension or None for
            the example; `seconds` of each subject at each of them; `subjects` in the order to load them, each with
            `name`, `config`, `code` and `weights`; `profile`, the place of the batch size whose calls are
            traced if nothing is timed after it, None for no trace.
        channel: For progress, and for that question.

    Returns:
        `threads`, and `subjects` as `figures.SubjectTimes` has them.
    """
    gc.freeze()  # what was imported is not gone through while something is timed
    channel.send("progress", text="make inputs")
    spec = Spec.from_canonical(job["spec"])
    examples = {name: Path(path) for name, path in job["examples"].items()}
    given = [inputs.make(spec, _point(spec, batch), examples) for batch in job["batches"]]
    sizes = [inputs.batch_of(spec, tensors) for tensors in given]
    with torch.inference_mode():
        loaded = [
            _load(item, given, sizes, channel, first=not place) for place, item in enumerate(job["subjects"])
        ]
        for number, size in enumerate(sizes):
            channel.send("progress", text=f"time at batch {size}")
            _time(loaded, number, size, job["seconds"])
        found = {"threads": torch.get_num_threads(), "subjects": [item.told for item in loaded]}
        # The figures are safe before the profiler is let near: whatever it does to this process costs no more than it.
        if job.get("profile") is not None and channel.ask("last", figures=found):
            _profile(next(item for item in loaded if item.told["name"] == "artifact"), job, channel)
    return found


def _profile(artifact: _Loaded, job: dict[str, Any], channel: Channel) -> None:
    """Watches a few calls."""
    from pt2hub_workers.inside.profiling import trace

    channel.send("progress", text="watch some calls of the artifact")
    into = Path(job["directory"]) / files.TRACE
    place = job["profile"]
    pace = artifact.told["batches"][place]["p50"] / 1000
    device = artifact.model.config.signature.device
    if why := trace(artifact.called(place), artifact.clock, device=device, pace=pace, into=into):
        channel.log(f"there is no trace of its calls: {why}", "warning")


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A subject, and what is told of it."""

    model: LoadedModel
    calls: list[dict[str, Any]]
    clock: Clock
    told: dict[str, Any]

    def called(self, number: int) -> Callable[[], object]:
        """The call at one of the sizes."""
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
    clock = clock_of(config.signature.device)
    clock.wait()
    meter = _Meter(config.signature.device)
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
    told: dict[str, Any] = {"name": name, "batches": []}
    if first:  # the process of whoever comes second is not fresh any more
        told |= {"load_ms": load_ms, "first_ms": first_ms, **meter.grown()}
    return _Loaded(model, calls, clock, told)


def _time(loaded: Sequence[_Loaded], number: int, size: int | None, seconds: float) -> None:
    found = alternate([item.called(number) for item in loaded], loaded[0].clock, seconds=seconds)
    for item, timed in zip(loaded, found, strict=True):
        item.told["batches"].append(_told(timed, size))


def _told(timed: Timed, size: int | None) -> dict[str, Any]:
    return {
        "batch": size,
        "calls": timed.calls,
        "seconds": timed.seconds,
        "p50": timed.quantile(0.50),
        "p95": timed.quantile(0.95),
        "p99": timed.quantile(0.99),
        "samples": timed.thinned(),
    }


def _point(spec: Spec, batch: int | None) -> inputs.Point:
    sizes = {name: dim.example for name, dim in spec.dims.items()}
    if batch is None or spec.batch_dim is None:
        return inputs.Point("example", sizes)
    return inputs.Point(f"batch{batch}", {**sizes, spec.batch_dim: batch})


def _call(config: ArtifactConfig, tensors: inputs.Tensors) -> dict[str, Any]:
    signature = config.signature
    device = torch.device(signature.device)
    return call_with(
        signature, {item.name: as_declared(tensors[item.name], item, device) for item in signature.inputs}
    )


class _Meter:
    """How much memory the process and the device have come to use since it was made."""

    def __init__(self, device: str) -> None:
        self._on_device = device == "cuda"
        self._host: int | None = None
        with contextlib.suppress(OSError):  # without it the peak may be that of the imports
            Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
            self._host = _status("VmRSS")
        self._device = 0
        if self._on_device:
            torch.cuda.reset_peak_memory_stats()
            self._device = torch.cuda.memory_allocated()

    def grown(self) -> dict[str, int | None]:
        """Bytes at the peak, beyond those at the beginning; None is not known."""
        peak = _status("VmHWM")
        host = None if peak is None or self._host is None else peak - self._host
        device = torch.cuda.max_memory_allocated() - self._device if self._on_device else None
        return {"host_bytes": host, "device_bytes": device}


def _status(name: str) -> int | None:
    """Bytes of a line of /proc/self/status, which the kernel writes in KiB; None where there is no such line."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None
