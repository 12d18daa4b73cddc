"""What a worker hands over when a build succeeded, and what it may take from an earlier one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pt2hub.domain.artifacts import ArtifactConfig, Descriptor, Manifest
from pt2hub.domain.measurements import MeasurementRun


@dataclass(frozen=True, slots=True)
class AutotuneChoice:
    """A candidate that was timed for an operation.

    Attributes:
        op: The operation.
        shapes: Shapes of its inputs.
        dtypes: Their dtypes.
        candidate: The kernel tried.
        milliseconds: Its time.
        rank: Place among the candidates, from 1.
        chosen: Whether the compiler took it.
    """

    op: str
    shapes: list[Any]
    dtypes: list[Any]
    candidate: str
    milliseconds: float
    rank: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class Publication:
    """A proven artifact whose blobs and manifests are in the storage already: blob first, row second.

    Attributes:
        manifest: The artifact.
        config: Its config blob, decoded.
        referrers: Manifests that belong to it.
        autotune: Fields of `AutotuneChoice`, as the referrer of `AUTOTUNE_TYPE` holds them.
        runs: What was measured, as the referrers of `MEASUREMENT_RUN_TYPE` hold it.
    """

    manifest: Manifest
    config: ArtifactConfig
    referrers: tuple[Manifest, ...] = ()
    autotune: tuple[dict[str, Any], ...] | list[dict[str, Any]] = ()
    runs: tuple[MeasurementRun, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What a measuring job found, stored already as a referrer of the artifact.

    Attributes:
        manifest: The referrer.
        run: What it holds.
        exhibits: Further referrers, such as a trace of some calls.
    """

    manifest: Manifest
    run: MeasurementRun
    exhibits: tuple[Manifest, ...] = ()

    @property
    def referrers(self) -> tuple[Manifest, ...]:
        """All that refers to the artifact."""
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
