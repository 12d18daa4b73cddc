"""`pt2hub demo`: publishes a model and retrained weights and measures both, in a temporary home."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pt2hub.cli.operations.temporary_server import TemporaryServer, temporary_home
from pt2hub.errors import InternalError, NotMeasured
from pt2hub.rendering import speeds
from pt2hub.system.interrupts import Interrupts
from pt2hub.wire.problems import from_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pt2hub.client.builds.events import BuildEvent
    from pt2hub.client.client import Client
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.artifacts import ArtifactView
    from pt2hub.wire.responses import BuildView

SPEC: dict[str, Any] = {
    "model": "vision/resnet18",
    "source": {"factory": "torchvision.models:resnet18", "kwargs": {}, "seed": 0},
    "inputs": [
        {"name": "x", "shape": ["batch", 3, 224, 224], "dtype": "float32", "generate": {"normal": {}}}
    ],
    "dims": {"batch": {"min": 1, "max": 32, "example": 2}},
    "targets": ["auto"],
    "checks": {"tolerance": 1.0e-3},
}
FIRST, SECOND = "vision/resnet18@1", "vision/resnet18@2"
SHAPES = '{"x": [2, 3, 224, 224]}'
"""Shapes of the example inputs, for a process that loads the artifact without having seen its signature."""
NO_COMPILER = {"PT2HUB_BUILD_ENV": "CXX=/bin/false"}
"""Gives builds a compiler that always fails, to prove that code is reused."""
_SHOWN = frozenset(("latency_p50", "throughput", "load_time", "first_inference", "eager", "torch.compile"))
"""Rows of the table: metrics of the artifact, and the baselines."""
_IMPLEMENTATIONS = {"artifact": "aot", "eager": "eager", "torch_compile": "torch_compile"}
"""Implementations, by their names in the result."""


def run(say: Callable[[str], None]) -> dict[str, Any]:
    """Run the demo.

    Returns:
        The measurements.

    Raises:
        Pt2hubError: A step failed; nothing is left running.
        Interrupted: A signal arrived; nothing is left running.
    """
    interrupts = Interrupts()
    with interrupts.install(), temporary_home("pt2hub-demo-") as folder:
        server = TemporaryServer(folder)
        try:
            return interrupts.call(partial(_run, server, folder, say))
        finally:
            server.end()


def _run(server: TemporaryServer, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    weights = folder / "retrained.safetensors"
    say("pt2hub up: PostgreSQL, API and a worker for this machine")
    with server.server() as client:
        results = publish_first(client, say)
        results |= load_in_fresh_process(server, FIRST, say)
        server.child("retrain", FIRST, str(weights))
        results |= publish_retrained(client, weights, say)
        results |= load_in_fresh_process(server, SECOND, say)
        return results | measurements(client, (FIRST, SECOND), say)


def publish_first(client: Client, say: Callable[[str], None], spec: dict[str, Any] = SPEC) -> dict[str, Any]:
    """Publish the model for the first time; return its timings."""
    say("publish torchvision's resnet18, batch 1 to 32")
    build, seconds = publish(client, spec, say)
    return {
        "first_publish_s": round(seconds, 3),
        "first_publish_steps": step_seconds(build),
        "artifact_digest": _digest(build),
        "target": build.target,
    }


def publish_retrained(
    client: Client, weights: Path, say: Callable[[str], None], spec: dict[str, Any] = SPEC
) -> dict[str, Any]:
    """Publish the same graph with other weights; return its timings and what was reused."""
    say("publish retrained weights")
    before = client.artifacts.get(client.artifacts.resolve(FIRST).artifacts[0].digest).manifest["layers"][0]
    started = time.monotonic()
    build, _ = publish(client, {**spec, "weights": client.blobs.upload(weights)}, say)
    seconds = time.monotonic() - started
    second = client.artifacts.get(_digest(build))
    (code, layer), provenance = second.manifest["layers"], second.provenance
    return {
        "retrained_publish_s": round(seconds, 3),
        "retrained_publish_steps": step_seconds(build),
        "compiler_processes_retrained": len(provenance["compiler_processes"]),
        "code_reused": provenance["code_reused_from"] == before["digest"] == code["digest"],
        "code_digest": code["digest"],
        "retrained_artifact_digest": _digest(build),
        "code_bytes": code["size"],
        "weights_bytes": layer["size"],
    }


def load_in_fresh_process(
    server: TemporaryServer, reference: str, say: Callable[[str], None]
) -> dict[str, float]:
    """Pull, load and call a version in a fresh process; return the time taken in milliseconds."""
    name = f"{'first' if reference == FIRST else 'retrained'}_call_ms"
    seconds = float(server.child("artifact", reference, SHAPES)["milliseconds"])
    say(f"  pulled, loaded and called in a fresh process: {seconds:.0f} ms after import torch")
    return {name: round(seconds, 3)}


def measurements(client: Client, references: Sequence[str], say: Callable[[str], None]) -> dict[str, Any]:
    """Wait for the measurements of each version, and show them.

    Raises:
        NotMeasured: A measuring job failed or was cancelled.
    """
    say("wait for the measurements of both versions")
    started = time.monotonic()
    versions = [_wait_until_measured(client, reference, say) for reference in references]
    results: dict[str, Any] = {"measurements_s": round(time.monotonic() - started, 3)}
    for reference, build in zip(references, versions, strict=True):
        view = client.artifacts.get(_digest(build))
        say(f"  {reference}")
        for metric, value, note in speeds.rows(view.measurements):
            if metric in _SHOWN:
                say(f"    {metric:24} {value:>12}  {note}".rstrip())
        results |= _medians(view) if reference == FIRST else {}
    return results


def _wait_until_measured(client: Client, reference: str, say: Callable[[str], None]) -> BuildView:
    """Wait until a version's artifact is measured; return its build."""
    number = int(reference.rpartition("@")[2])
    version = client.versions.follow(
        client.versions.get(SPEC["model"], number),
        progress=False,
        until="measured",
        on_event=_step_printer(say, "measure"),
    )
    build = version.builds[0]
    status = build.measurement
    if status is None or status.state != "measured":
        raise NotMeasured(
            f"{reference} was not measured: {status.reason if status else 'no measuring job is known'}"
        )
    return build


def _medians(view: ArtifactView) -> dict[str, float]:
    """Return the median latency of the artifact and its baselines in milliseconds, and the verified error."""
    found = {item.implementation: item.value for item in view.measurements if item.metric == "latency_p50"}
    medians = {f"{name}_p50_ms": round(found[of], 3) for of, name in _IMPLEMENTATIONS.items() if of in found}
    return {**medians, "relative_error": view.verification.get("relative_error", 0.0)}


def publish(client: Client, spec: dict[str, Any], say: Callable[[str], None]) -> tuple[BuildView, float]:
    """Publish and wait; return the build and its wall time in seconds.

    Raises:
        Pt2hubError: The build failed.
    """
    started = time.monotonic()
    version = client.publish(spec, wait="ready", on_event=_step_printer(say))
    seconds = time.monotonic() - started
    build = version.builds[0]
    if build.error:
        raise from_dict(build.error)
    say(
        f"  {version.model}@{version.number} for {build.target}: verified, stored and ready in {seconds:.1f} s"
    )
    return build, seconds


def step_seconds(build: BuildView) -> dict[str, float]:
    """Return the duration of each step of a build in seconds."""
    return {step.name: round(step.seconds or 0.0, 3) for step in build.steps}


def _step_printer(say: Callable[[str], None], kind: str = "build") -> Callable[[BuildEvent], None]:
    """Return a callback that prints each finished step of builds or of measuring jobs."""

    def show(event: BuildEvent) -> None:
        if event.step and event.step.state == "done" and event.build.kind == kind:
            say(f"  {event.step.name:26} {event.step.seconds or 0:10.2f} s")

    return show


def _digest(build: BuildView) -> Digest:
    if build.artifact is None:
        raise InternalError(f"Build {build.id} ended as {build.state} without an artifact")
    return build.artifact
