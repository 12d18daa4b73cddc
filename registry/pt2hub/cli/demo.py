"""`pt2hub demo`: the main job from the first publish to a retrained one, in a home of its own, measured."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pt2hub.cli.trial import Trial, temporary_home
from pt2hub.errors import InternalError
from pt2hub.server.interrupts import Interrupts
from pt2hub.wire.problems import from_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pt2hub.client.client import Client
    from pt2hub.client.publishing import BuildEvent
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.shapes import BuildView

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
FIRST = "vision/resnet18@1"
SHAPES = '{"x": [2, 3, 224, 224]}'
"""Of the example inputs, for a process that is to load the artifact before it knows anything of it."""
NO_COMPILER = {"PT2HUB_BUILD_ENV": "CXX=/bin/false"}
"""Builds get a compiler that always fails, so that reuse is shown and not said."""
REPEATS = 3
"""Fresh processes per first-inference figure, except torch.compile with cold caches; the median is reported."""


def run(say: Callable[[str], None]) -> dict[str, Any]:
    """Runs the demo.

    Args:
        say: Shows a line of what happens.

    Returns:
        The measured figures.

    Raises:
        Pt2hubError: A step failed; nothing is left running.
        Interrupted: A signal came; nothing is left running.
    """
    interrupts = Interrupts()
    with interrupts.installed(), temporary_home("pt2hub-demo-") as folder:
        trial = Trial(folder)
        try:
            return interrupts.call(partial(_run, trial, folder, say))
        finally:
            trial.end()


def _run(trial: Trial, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    weights = folder / "retrained.safetensors"
    say("pt2hub up: PostgreSQL, API and a worker for this machine")
    with trial.server() as client:
        figures = publish_first(client, say)
        figures |= first_inferences(trial, folder, say)
        figures |= latencies(trial, say)
        trial.child("retrain", FIRST, str(weights))
    say("pt2hub up again on the same home; this worker's builds have CXX=/bin/false")
    with trial.server(NO_COMPILER) as client:
        return figures | publish_retrained(client, weights, say)


def publish_first(client: Client, say: Callable[[str], None], spec: dict[str, Any] = SPEC) -> dict[str, Any]:
    """The first publish: export, compile, prove, measure, store."""
    say("publish torchvision's resnet18, batch 1 to 32")
    build, seconds = publish(client, spec, say)
    return {
        "first_publish_s": round(seconds, 3),
        "first_publish_steps": steps_of(build),
        "artifact_digest": _digest(build),
        "target": build.target,
    }


def publish_retrained(
    client: Client, weights: Path, say: Callable[[str], None], spec: dict[str, Any] = SPEC
) -> dict[str, Any]:
    """The same graph with other weights."""
    say("publish retrained weights")
    before = client.artifact(client.resolve(FIRST).artifacts[0].digest).manifest["layers"][0]
    started = time.monotonic()
    build, _ = publish(client, {**spec, "weights": client.upload_file(weights)}, say)
    seconds = time.monotonic() - started
    second = client.artifact(_digest(build))
    (code, layer), provenance = second.manifest["layers"], second.provenance
    return {
        "retrained_publish_s": round(seconds, 3),
        "retrained_publish_steps": steps_of(build),
        "compiler_processes_retrained": len(provenance["compiler_processes"]),
        "code_reused": provenance["code_reused_from"] == before["digest"] == code["digest"],
        "code_digest": code["digest"],
        "retrained_artifact_digest": _digest(build),
        "code_bytes": code["size"],
        "weights_bytes": layer["size"],
    }


def first_inferences(trial: Trial, folder: Path, say: Callable[[str], None]) -> dict[str, float]:
    """Milliseconds from `import torch` to the first result, each in a fresh process."""
    say("first inference in fresh processes, after import torch")
    trial.child("artifact", FIRST, SHAPES)  # fills the client's cache
    caches = folder / "caches"
    caches.mkdir()
    own = {"TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"), "TMPDIR": str(caches)}

    def median(what: str, environ: dict[str, str] | None = None, repeats: int = REPEATS) -> float:
        values = sorted(_first_milliseconds(trial, what, environ, repeats))
        return round(values[repeats // 2], 3)

    figures = {
        "aot_first_inference_ms": median("artifact"),
        "eager_first_inference_ms": median("eager"),
        "torch_compile_cold_ms": median("torch_compile", own, repeats=1),
        "torch_compile_warm_ms": median("torch_compile", own),
    }
    for name, value in figures.items():
        say(f"  {name:26} {value:10.1f} ms")
    return figures


def latencies(trial: Trial, say: Callable[[str], None]) -> dict[str, Any]:
    """p50 latency of the three forms, interleaved in one process."""
    say("steady latency, batch 2, interleaved in one process")
    found = trial.child("latencies", FIRST)
    figures = {f"{name}_p50_ms": round(value, 3) for name, value in found["p50_ms"].items()}
    for name, value in figures.items():
        say(f"  {name:26} {value:10.1f} ms on {found['threads']} threads")
    return figures | {"relative_error": found["relative_error"], "threads": found["threads"]}


def publish(client: Client, spec: dict[str, Any], say: Callable[[str], None]) -> tuple[BuildView, float]:
    """Publishes and waits; returns the build and its wall time in seconds.

    Raises:
        Pt2hubError: The build failed, with its own error.
    """

    def show(event: BuildEvent) -> None:
        if event.step and event.step.state == "done":
            say(f"  {event.step.name:26} {event.step.seconds or 0:10.2f} s")

    started = time.monotonic()
    version = client.publish(spec, wait=True, on_event=show)
    seconds = time.monotonic() - started
    build = version.builds[0]
    if build.error:
        raise from_dict(build.error)
    say(f"  {version.model}@{version.number} for {build.target}: proven and stored in {seconds:.1f} s")
    return build, seconds


def steps_of(build: BuildView) -> dict[str, float]:
    """Seconds of each step of a build."""
    return {step.name: round(step.seconds or 0.0, 3) for step in build.steps}


def _first_milliseconds(
    trial: Trial, what: str, environ: dict[str, str] | None, repeats: int
) -> Iterator[float]:
    arguments = (FIRST, SHAPES) if what == "artifact" else (FIRST,)
    for _ in range(repeats):
        yield float(trial.child(what, *arguments, environ=environ)["milliseconds"])


def _digest(build: BuildView) -> Digest:
    if build.artifact is None:
        raise InternalError(f"build {build.id} ended as {build.state} without an artifact")
    return build.artifact
