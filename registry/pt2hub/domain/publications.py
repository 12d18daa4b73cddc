"""Publications of succeeded builds, and code reused from earlier ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pt2hub.domain.artifacts import ArtifactConfig, Descriptor, Manifest, Region
from pt2hub.domain.performance.measurements import MeasurementRun


@dataclass(frozen=True, slots=True)
class Publication:
    """A verified artifact. Its blobs and manifests are already in the storage: blobs come first, rows second.

    Attributes:
        manifest: The artifact.
        config: Its config blob, decoded.
        referrers: Referrers of the artifact.
        autotune: Autotune choices (`AutotuneChoice` as JSON), the content of the `AUTOTUNE_TYPE` referrer.
        runs: Benchmark runs, the content of the `MEASUREMENT_RUN_TYPE` referrers.
    """

    manifest: Manifest
    config: ArtifactConfig
    referrers: tuple[Manifest, ...] = ()
    autotune: tuple[dict[str, Any], ...] | list[dict[str, Any]] = ()
    runs: tuple[MeasurementRun, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Result of a measuring job, already stored as a referrer of the artifact.

    Attributes:
        manifest: The referrer.
        run: Content of the referrer.
        exhibits: Further referrers, such as a trace.
    """

    manifest: Manifest
    run: MeasurementRun
    exhibits: tuple[Manifest, ...] = ()

    @property
    def referrers(self) -> tuple[Manifest, ...]:
        """All referrers of the artifact."""
        return (self.manifest, *self.exhibits)


@dataclass(frozen=True, slots=True)
class ReusableCode:
    """Compiled code of an earlier artifact with the same program key.

    Attributes:
        code: The code layer.
        config: That artifact's config.
    """

    code: Descriptor
    config: ArtifactConfig


@dataclass(frozen=True, slots=True)
class ReusableRegion:
    """Compiled code of a part of an earlier artifact, which may be of another model.

    Attributes:
        code: The code layer with the part's files.
        region: The part as that artifact's config describes it.
    """

    code: Descriptor
    region: Region
