"""What people look at of an artifact: everything in it, each part bounded; nothing of it was trusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.digests import Digest
from pt2hub.wire.artifacts import ArtifactView
from pt2hub.wire.shapes import BuildView


@dataclass(frozen=True, slots=True)
class FigureRun:
    """One of the figures behind a `FigureView`.

    Attributes:
        value: The figure.
        low: Lowest of its processes, the figure itself where there are none.
        high: Likewise the highest.
        measured_at: When it was taken, ISO 8601, UTC.
        source: `build`, `again` (a measuring job) or `report`.
        environment: The machine's fingerprint.
        job: The build or measuring job that took it; empty for a report.
        beside: Number of the version whose artifact that job was for, where it is another one's; else None.
        reporter: Who reported it; empty for a job's.
    """

    value: float
    low: float
    high: float
    measured_at: str
    source: str
    environment: dict[str, Any]
    job: str = ""
    beside: int | None = None
    reporter: str = ""


@dataclass(frozen=True, slots=True)
class FigureView:
    """What all measurements of one kind say of the artifact.

    Attributes:
        metric: What was measured (`latency_p50`).
        unit: Its unit (`ms`).
        subject: `artifact`, or `eager` or `torch_compile` beside it.
        value: The figure of its latest run; where there are reports only, the median of the latest 200.
        low: Lowest replicate of the latest 200 figures, or lowest figure where there are no replicates.
        high: Likewise the highest.
        count: How many figures there are, 200 at most.
        measured_at: When the latest run was, or the latest report; ISO 8601, UTC.
        class_digest: The environment class that it was measured in.
        batch: Batch size, or None where there is none.
        runs: The latest five figures that it is of, and the latest run, newest first.
    """

    metric: str
    unit: str
    subject: str
    value: float
    low: float
    high: float
    count: int
    measured_at: str
    class_digest: Digest
    batch: int | None = None
    runs: tuple[FigureRun, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A JSON document of the storage, made fit to be shown.

    Attributes:
        digest: Its digest.
        size: Its length in bytes, 0 where it was not read.
        value: What it holds, long lists cut; None where it cannot be shown.
        problem: Why it cannot be shown, a sentence; else None.
    """

    digest: Digest
    size: int = 0
    value: Any = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class KeptSources:
    """Where the sources of an artifact's code are kept.

    Attributes:
        artifact: The artifact that was compiled from them: the one asked for, or the one whose code it reuses.
        model: That artifact's model.
        number: The number of its version.
        referrer: Digest of the manifest that names them.
    """

    artifact: Digest
    model: str
    number: int
    referrer: Digest


@dataclass(frozen=True, slots=True)
class InspectionView:
    """An artifact, opened up.

    Attributes:
        artifact: Its facts and lists, the lists bounded; without measurements, manifest and config.
        manifest: Its manifest.
        config: Its config.
        parsed: The config with its first constants, where it is one of pt2hub's.
        constants: How many constants it has.
        figures: What was measured of it.
        environments: Fields of the environment classes of `figures`, by digest.
        sources: Where its sources are kept, None where nobody keeps them.
        before: Artifact of the newest earlier version for the same target, or None.
        jobs: Its newest measuring jobs, newest first.
        tuned: The artifact whose candidates are shown: this one, or the one that its code was compiled for; None where
            none are kept.
        untuned: Why none are, a sentence; else empty.
        tuned_next: What `tuned_after` must be for the candidates that follow, None at their end.
        more: Which lists hold more than is shown: `members`, `figures`, `referrers`.
        profile_problem: Why the table of where its calls' time goes cannot be shown, a sentence; else None.
    """

    artifact: ArtifactView
    manifest: StoredDocument
    config: StoredDocument
    parsed: ArtifactConfig | None = None
    constants: int = 0
    figures: tuple[FigureView, ...] = ()
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: KeptSources | None = None
    before: Digest | None = None
    jobs: tuple[BuildView, ...] = ()
    tuned: Digest | None = None
    untuned: str = ""
    tuned_next: int | None = None
    more: frozenset[str] = frozenset()
    profile_problem: str | None = None


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A generated source.

    Attributes:
        name: Its name.
        size: Its length in bytes.
    """

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class SourceText:
    """Some lines of a generated source.

    Attributes:
        name: The file's name.
        size: Its length in bytes.
        lines: The lines; very long ones are cut, characters that would not be seen are replaced.
        first: Number of the first of them, from 1.
        total: How many lines the file has.
        commented: Whether the first of them lies within a block comment of C that began before.
    """

    name: str
    size: int
    lines: tuple[str, ...]
    first: int
    total: int
    commented: bool = False

    @property
    def last(self) -> int:
        """Number of the last line shown."""
        return self.first + len(self.lines) - 1


@dataclass(frozen=True, slots=True)
class SourcesView:
    """The generated sources of an artifact.

    Attributes:
        digest: The artifact that was asked for.
        model: The model's name.
        number: The version's number.
        target: The target's name.
        kept: Where they are kept, None where nobody keeps them.
        files: What there is, by name.
        text: The chosen file, None where there is none.
        problem: Why they cannot be shown, a sentence; else None.
    """

    digest: Digest
    model: str
    number: int
    target: str
    kept: KeptSources | None = None
    files: tuple[SourceFile, ...] = ()
    text: SourceText | None = None
    problem: str | None = None
