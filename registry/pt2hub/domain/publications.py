"""What a worker hands over when a build succeeded, and what it may take from an earlier one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.artifacts import ArtifactConfig, Descriptor, Manifest
from pt2hub.domain.measurements import MeasurementRun


@dataclass(frozen=True, slots=True)
class AutotuneChoice:
    """A candidate for an operation. Its template and its parameters say which kernel it is.

    Attributes:
        op: The operation.
        shapes: Shapes of its inputs.
        dtypes: Their dtypes.
        candidate: The compiler's name of the candidate, for display: its number counts the templates of a whole compile
            (`triton_mm_17`), so that the same kernel has another name in another build.
        milliseconds: Its time; None for one that could not be timed.
        rank: Place among the candidates, from 1; those without a time come last.
        chosen: Whether the compiler took it.
        template: What the kernel is made from: `triton_mm`, `cpp_CppMicroGemmFP32Vec`; `extern: addmm` for a library's.
        parameters: What the template was given: tile sizes, stages, warps. None where an older pt2hub did not keep them.
        reason: Why there is no time; empty where there is one.
        strides: Strides of the inputs.
        operation: Number of the operation in its compile, from 1: operations may be alike.
        precompile_seconds: What the compiler waited for the candidates of the operation to be compiled.
        benchmark_seconds: What timing them took.
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

    @property
    def kernel(self) -> str:
        """What the candidate is: its template, or its name where an older pt2hub kept no more."""
        return self.template or self.candidate


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
