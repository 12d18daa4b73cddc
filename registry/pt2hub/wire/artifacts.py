"""Everything that the API answers of one artifact."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.artifacts import Member, StepTiming
from pt2hub.domain.digests import Digest
from pt2hub.domain.profiles import Profile
from pt2hub.domain.publications import AutotuneChoice
from pt2hub.printed import Printed
from pt2hub.wire.shapes import MeasurementStatus


@dataclass(frozen=True, slots=True)
class MeasurementView:
    """A figure of the artifact, of eager or of `torch.compile`.

    Attributes:
        metric: What was measured (`latency_p50`).
        value: The figure.
        unit: Its unit (`ms`).
        subject: `artifact`, or `eager` or `torch_compile` beside it.
        measured_at: ISO 8601, UTC.
        batch: Batch size, or None where there is none.
        samples: The single calls behind it, a list of each process, or None.
        replicates: The same figure of each fresh process, or None.
        source: `build`, `again` (a measuring job) or `report` (somebody's own).
        environment: Digest of the fingerprint of the machine, None for an older server.
    """

    metric: str
    value: float
    unit: str
    subject: str
    measured_at: str
    batch: int | None = None
    samples: list[Any] | None = None
    replicates: list[float] | None = None
    source: str = "build"
    environment: Digest | None = None


@dataclass(frozen=True, slots=True)
class ReferrerView:
    """A manifest that belongs to the artifact: measurements, autotune timings, generated sources, a trace.

    Attributes:
        digest: Digest of the manifest.
        artifact_type: Its media type.
        size: Its length in bytes.
        annotations: Its annotations.
    """

    digest: Digest
    artifact_type: str
    size: int
    annotations: dict[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class ArtifactView(Printed):
    """Everything known of an artifact.

    Attributes:
        digest: Digest of its manifest: its identity.
        model: The model's name.
        number: The version's number.
        target: The target's name.
        device: `cpu` or `cuda`.
        arch: CPU level or compute capability.
        build: Id of the build that made it.
        attempt: The build's attempt that made it.
        created_at: ISO 8601, UTC.
        program_key: Digest of everything that shapes the code.
        code: Digest of the code layer.
        code_bytes: Its length.
        weights: Digest of the weights layer.
        weights_bytes: Its length.
        single_file: Digest of the assembled `model.pt2`.
        single_file_bytes: Its length.
        config_digest: Digest of the config blob.
        torch: Release that compiled it, as are the following.
        python: See `torch`.
        compiler: See `torch`.
        libc: See `torch`.
        pt2hub: See `torch`.
        weights_form: `split` from the code, or `baked` into it; then the weights layer holds no tensors.
        dtype: Override of the target, or None.
        triton: Release, or None on a CPU.
        cuda: Release, or None on a CPU.
        driver: Release, or None on a CPU.
        environment: The machine it was measured on.
        verification: What the publish gate found.
        provenance: How it came about.
        steps: Wall time of each step of the build.
        members: Files of the assembled `model.pt2`.
        autotune: Candidates the compiler timed.
        measurements: Figures taken when it was built, and later.
        referrers: Manifests that belong to it.
        profile: Where the time of its calls goes; None where nobody looked, or what is kept of it cannot be read.
        manifest: The manifest, as stored.
        config: The config blob, as stored.
        measurement: Whether it is measured; None of an older server.
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
    members: tuple[Member, ...] = ()
    autotune: tuple[AutotuneChoice, ...] = ()
    measurements: tuple[MeasurementView, ...] = ()
    referrers: tuple[ReferrerView, ...] = ()
    profile: Profile | None = None
    manifest: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    measurement: MeasurementStatus | None = None
