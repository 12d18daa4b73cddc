"""Artifact summaries for a version's page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.artifacts import Toolchain
from pt2hub.domain.digests import Digest


@dataclass(frozen=True, slots=True)
class Figure:
    """A latency of an artifact.

    Attributes:
        metric: What was measured.
        value: The median of the latest figures.
        low: The lowest replicate of any of them.
        high: The highest.
        unit: Their unit.
        batch: Batch size, or None where there is none.
    """

    metric: str
    value: float
    low: float
    high: float
    unit: str
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class ArtifactSummary:
    """An artifact of a version.

    Attributes:
        target: The target's name.
        digest: Digest of its manifest.
        created_at: ISO 8601, UTC.
        program_key: Digest of everything that shapes the code.
        config: Digest of its config.
        code_bytes: Length of the code layer.
        weights_bytes: Length of the weights layer.
        single_file_bytes: Length of the assembled `model.pt2`.
        weights_form: `split` from the code, or `baked` into it.
        toolchain: The releases that compiled it.
        dtype: Override of the target, or None.
        environment: The machine it was built and measured on.
        verification: The verification report.
        provenance: How it came about.
        latency: Its median latency at the example batch, None where it was not measured.
    """

    target: str
    digest: Digest
    created_at: str
    program_key: Digest
    config: Digest
    code_bytes: int
    weights_bytes: int
    single_file_bytes: int
    weights_form: str
    toolchain: Toolchain
    dtype: str | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    verification: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    latency: Figure | None = None
