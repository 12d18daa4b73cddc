"""Artifacts in API responses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from pt2hub.domain.artifacts import Member, Region, StepTiming
from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.autotune import AutotuneChoice
from pt2hub.domain.performance.profiles import Profile
from pt2hub.renderable import Renderable
from pt2hub.wire.responses import MeasurementStatus


@dataclass(frozen=True, slots=True)
class MeasurementView:
    """A measurement of the artifact or of a baseline.

    Attributes:
        metric: Name of the metric (`latency_p50`).
        value: The measured value.
        unit: The unit (`ms`).
        implementation: `artifact`, or the baseline `eager` or `torch_compile`.
        measured_at: ISO 8601, UTC.
        batch: Batch size, or None if not applicable.
        samples: Times of single calls, one list per replicate, or None.
        replicates: The value from each replicate, or None.
        source: `build`, `again` (a measuring job) or `report` (reported from outside).
        environment: Digest of the machine's fingerprint; None from older servers.
    """

    metric: str
    value: float
    unit: str
    implementation: str
    measured_at: str
    batch: int | None = None
    samples: list[Any] | None = None
    replicates: list[float] | None = None
    source: str = "build"
    environment: Digest | None = None


@dataclass(frozen=True, slots=True)
class ReferrerView:
    """A referrer of the artifact: measurements, autotune timings, generated sources, a log or a trace.

    Attributes:
        digest: Digest of the referrer's manifest.
        artifact_type: Media type.
        size: Size in bytes.
        annotations: Annotations.
    """

    digest: Digest
    artifact_type: str
    size: int
    annotations: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RegionView:
    """A part of the artifact with code of its own.

    Attributes:
        program_key: Digest of everything that shapes the part's code.
        calls: Number of calls.
        modules: Paths of the modules that are these calls, in their order; empty for a part between regions.
        code_reused_from: Code layer that its code was taken from; None if it was compiled for this artifact.
    """

    program_key: Digest
    calls: int
    modules: tuple[str, ...] = ()
    code_reused_from: Digest | None = None

    @classmethod
    def of(cls, region: Region) -> Self:
        """Return the view of a region of a config."""
        return cls(region.key.digest, region.calls, region.modules, region.code_reused_from)


@dataclass(frozen=True, slots=True)
class BlobCheck:
    """What the server found after a report that a blob is damaged.

    Attributes:
        digest: The blob's digest.
        state: `intact`, `damaged`, or `queued`: it is large, and the scrub reads it next.
    """

    digest: Digest
    state: str


@dataclass(frozen=True, slots=True)
class DamagedPart:
    """A part of an artifact whose stored bytes are damaged.

    Attributes:
        part: `manifest`, `config`, `code`, `weights`, `file` (an attached one) or `referrer`, without which it is pulled.
        digest: Digest of the blob or manifest.
        problem: `digest`, `size`, `missing` or `unreadable`.
        found_at: ISO 8601, UTC.
    """

    part: str
    digest: Digest
    problem: str
    found_at: str

    @property
    def is_needed(self) -> bool:
        """Whether the artifact cannot be pulled without it."""
        return self.part != "referrer"


@dataclass(frozen=True, slots=True, repr=False)
class ArtifactView(Renderable):
    """An artifact in full detail.

    Attributes:
        digest: Digest of the manifest, which identifies the artifact.
        model: Name of the model.
        number: Number of the version.
        target: The target's name.
        device: `cpu` or `cuda`.
        arch: CPU level or compute capability.
        build: Id of the build that produced it.
        attempt: Number of the attempt that produced it.
        created_at: ISO 8601, UTC.
        program_key: Digest of everything that shapes the code.
        code: Digest of the code layer.
        code_bytes: Size of the code layer in bytes.
        weights: Digest of the weights layer.
        weights_bytes: Size of the weights layer in bytes.
        single_file: Digest of the assembled `model.pt2`.
        single_file_bytes: Size of the assembled `model.pt2` in bytes.
        config_digest: Digest of the config blob.
        torch: Version of torch that compiled it.
        python: Python version of the worker.
        compiler: Version of the C++ compiler.
        libc: Version of the worker's C library.
        pt2hub: pt2hub release of the worker.
        weights_form: `split` from the code, or `baked` into it; then the weights layer contains no tensors.
        dtype: The target's dtype override, or None.
        triton: Version of Triton, or None for a CPU target.
        cuda: CUDA release, or None for a CPU target.
        driver: GPU driver version, or None for a CPU target.
        environment: Fingerprint of the machine that built and measured it.
        verification: The verification report.
        provenance: How it was built: isolation, compiler processes, reuse.
        steps: Wall time of each build step.
        regions: Parts with code of their own; empty for a model that was compiled as a whole.
        members: Files of the assembled `model.pt2`.
        autotune: Kernel candidates that the compiler timed.
        measurements: Measurements from the build, measuring jobs and reports.
        referrers: Referrers of the artifact.
        profile: Profile of the artifact's calls; None if it was not profiled or the profile is unreadable.
        torch_compile_profile: Profile of torch.compile's calls, made in the same measuring job; None as for `profile`.
        manifest: The manifest as stored.
        config: The config blob as stored.
        measurement: Measurement status; None from older servers.
        damaged: Parts whose stored bytes are damaged; a manifest or config among them is empty here.
    """

    digest: Digest
    model: str
    number: int
    target: str
    device: str
    arch: str
    build: str
    attempt: int
    created_at: str
    program_key: Digest
    code: Digest
    code_bytes: int
    weights: Digest
    weights_bytes: int
    single_file: Digest
    single_file_bytes: int
    config_digest: Digest
    torch: str
    python: str
    compiler: str
    libc: str
    pt2hub: str
    weights_form: str = "split"
    dtype: str | None = None
    triton: str | None = None
    cuda: str | None = None
    driver: str | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    verification: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    steps: tuple[StepTiming, ...] = ()
    regions: tuple[RegionView, ...] = ()
    members: tuple[Member, ...] = ()
    autotune: tuple[AutotuneChoice, ...] = ()
    measurements: tuple[MeasurementView, ...] = ()
    referrers: tuple[ReferrerView, ...] = ()
    profile: Profile | None = None
    torch_compile_profile: Profile | None = None
    manifest: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    measurement: MeasurementStatus | None = None
    damaged: tuple[DamagedPart, ...] = ()
