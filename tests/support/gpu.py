"""What every build on a GPU machine must show."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from pt2hub.cli.operations import demo

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.responses import BuildView

LEVEL = os.environ.get("PT2HUB_ISOLATION", "sandbox")
"""How the worker confines builds in this run."""
UNMEASURED: dict[str, Any] = {"processes": 0}
"""Measure settings of versions whose times no test looks at: the device is needed for the next test."""
MEASURED_S = 240.0
"""Longest that a measuring job may take, those before it included."""


def check_confined(client: Client, build: BuildView) -> None:
    """Prints and checks where a build ran."""
    assert "cu" in build.target
    assert build.artifact is not None, build.error
    provenance = client.artifacts.get(build.artifact).provenance
    print(json.dumps({key: provenance[key] for key in ("isolation", "isolation_profile")}))
    assert provenance["isolation"] == LEVEL
    assert (provenance["isolation_profile"] is None) == (LEVEL == "process")


def publish(client: Client, spec: dict[str, Any]) -> str:
    """Publishes a spec, checks that it was confined, and returns the version's reference."""
    build, seconds = demo.publish(client, spec, print)
    told = {
        "model": spec["model"],
        "target": build.target,
        "seconds": seconds,
        "steps": demo.step_seconds(build),
    }
    print(json.dumps(told))
    check_confined(client, build)
    return f"{spec['model']}@{build.number}"


def await_measured(client: Client, reference: str) -> Digest:
    """Waits until a version's only artifact is measured, and returns the artifact's digest."""
    resolved = client.artifacts.resolve(reference)
    version = client.versions.follow(
        client.versions.get(resolved.model, resolved.number), timeout=MEASURED_S, until="measured"
    )
    (build,) = version.builds
    assert build.artifact is not None
    assert build.measurement is not None
    assert build.measurement.state == "measured", build.measurement
    figures = client.artifacts.get(build.artifact).measurements
    print(
        json.dumps(
            {reference: {f"{m.metric} {m.implementation}": m.value for m in figures if "latency" in m.metric}}
        )
    )
    return build.artifact
