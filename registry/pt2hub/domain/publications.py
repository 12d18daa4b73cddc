"""What a worker hands over when a build succeeded, and what it may take from an earlier one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pt2hub.domain.artifacts import ArtifactConfig, Descriptor, Manifest


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
class Measurement:
    """A metric, taken in the environment of the artifact's config.

    Attributes:
        metric: What was measured (`latency_p50`).
        value: The figure.
        unit: Its unit (`ms`).
        batch: Batch size, or None where there is none.
        subject: `artifact`, `eager`, `torch_compile`, or `split` beside an artifact with baked weights.
        samples: The single runs behind it, or None.
    """

    metric: str
    value: float
    unit: str
    subject: str
    batch: int | None = None
    samples: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """A proven artifact whose blobs and manifests are in the storage already: blob first, row second.

    Attributes:
        manifest: The artifact.
        config: Its config blob, decoded.
        referrers: Manifests that belong to it.
        autotune: Fields of `AutotuneChoice`, as the referrer of `AUTOTUNE_TYPE` holds them.
        measurements: Fields of `Measurement`, as the referrer of `MEASUREMENTS_TYPE` holds them.
    """

    manifest: Manifest
    config: ArtifactConfig
    referrers: tuple[Manifest, ...] = ()
    autotune: tuple[dict[str, Any], ...] | list[dict[str, Any]] = ()
    measurements: tuple[dict[str, Any], ...] | list[dict[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class ReusableCode:
    """Compiled code of an earlier artifact with the same program key.

    Attributes:
        code: The code layer.
        config: That artifact's config.
    """

    code: Descriptor
    config: ArtifactConfig
