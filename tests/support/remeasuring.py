"""What a worker hands over of a measuring job, without timing anything."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import MANIFEST_TYPE, Descriptor
from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.measurements import RUN_SCHEMA, Measurement, MeasurementRun
from pt2hub.domain.tokens import Actor
from pt2hub.server.services.blobs.documents import read_manifest
from pt2hub_workers.builds.publication import compose_run
from support.registry import ENVIRONMENT

if TYPE_CHECKING:
    from pt2hub.domain.builds import Claim
    from pt2hub.domain.publications import MeasuredRun
    from pt2hub.wire.responses import VersionView
    from support.registry import Registry


def a_later_run(claim: Claim, number: int = 1, value: float = 10.0, **changes: Any) -> MeasurementRun:
    """The run of a measuring job."""
    values: dict[str, Any] = {
        "schema": RUN_SCHEMA,
        "id": f"{claim.build}:{claim.attempt}:{number}",
        "source": "again",
        "measured_at": f"2026-11-22T10:00:{number:02}+00:00",
        "environment": ENVIRONMENT,
        "conditions": {"processes": 2},
        "measurements": [
            Measurement("latency_p50", value, "ms", "artifact", 2, replicates=[value, value + 0.5])
        ],
    }
    return MeasurementRun(**(values | changes))


def measured(registry: Registry, claim: Claim, *runs: MeasurementRun) -> list[MeasuredRun]:
    """Runs as a worker stores them before it records them."""
    services, artifact = registry.services, Digest(claim.request["artifact"])
    manifest = read_manifest(services.storage, artifact)
    subject = Descriptor(MANIFEST_TYPE, artifact, len(manifest.as_bytes()))
    found = []
    for run in runs:
        told, pieces = compose_run(subject, run)
        services.blobs.store(pieces, holder=claim.holder)
        found.append(told)
    return found


def remeasure(registry: Registry, reference: str, **changes: Any) -> Claim:
    """Does a measuring job, from its order to its end."""
    (job,) = registry.services.measuring_jobs.measure(reference, by=Actor("ci")).builds
    claim = registry.claim(job.id)
    registry.services.measuring_jobs.record(claim, measured(registry, claim, a_later_run(claim, **changes)))
    return claim


def published_unmeasured(registry: Registry, version: VersionView | None = None, **changes: Any) -> Digest:
    """Publishes the first build of a version as it is when it is proven and nobody has measured it yet.

    Whether the publication queues a measuring job is left to it.
    """
    view = version or registry.submit()
    claim = registry.claim(view.builds[0].id)
    publication = replace(registry.publication(claim, **changes), runs=())
    registry.services.builds.publish(claim, publication)
    return publication.manifest.digest


def the_job(registry: Registry, artifact: Digest) -> str:
    """The measuring job that an artifact waits for, queued if there is none."""
    (job,) = registry.services.measuring_jobs.measure(f"vision/resnet18@{artifact}", by=Actor("ci")).builds
    return job.id


def measure_now(registry: Registry, job: str, **changes: Any) -> None:
    """Does a measuring job that is queued."""
    claim = registry.claim(job)
    registry.services.measuring_jobs.record(claim, measured(registry, claim, a_later_run(claim, **changes)))
