"""Publications of succeeded builds, and code reused from earlier ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.artifacts import ArtifactConfig, Descriptor, Manifest
from pt2hub.domain.performance.measurements import MeasurementRun


@dataclass(frozen=True, slots=True)
class AutotuneChoice:
    """A kernel candidate for an operation, identified by its template and parameters.

    Attributes:
        op: The operation.
        shapes: Shapes of the inputs.
        dtypes: Dtypes of the inputs.
        candidate: The compiler's display name. Its number counts the templates of the whole compilation
            (`triton_mm_17`), so the same kernel has different names in different builds.
        milliseconds: Its time; None if it could not be timed.
        rank: Rank among the candidates, from 1; those without a time come last.
        chosen: Whether the compiler chose it.
        template: Template of the kernel: `triton_mm`, `cpp_CppMicroGemmFP32Vec`; `extern: addmm` for library kernels.
        parameters: Parameters of the template: tile sizes, stages, warps.
        reason: Why it has no time; empty if it has one.
        strides: Strides of the inputs.
        operation: Number of the operation in the compilation, from 1, since operations may be equal.
        precompile_seconds: Time spent compiling the operation's candidates.
        benchmark_seconds: Time spent timing the operation's candidates.
    """

    op: str
    shapes: list[Any]
    dtypes: list[Any]
    candidate: str
    milliseconds: float | None
    rank: int
    chosen: bool
    template: str = ""
    parameters: dict[str, Any] | None = None
    reason: str = ""
    strides: list[Any] = field(default_factory=list)
    operation: int = 0
    precompile_seconds: float | None = None
    benchmark_seconds: float | None = None


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
