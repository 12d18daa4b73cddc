"""View models of an artifact's page: its contents, within size bounds and untrusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.digests import Digest
from pt2hub.wire.artifacts import ArtifactView
from pt2hub.wire.responses import BuildView


class InspectionPart(StrEnum):
    """Part of an inspected artifact that is loaded on request.

    `config` and `manifest` are read from storage, and so are the profiles of `profiles`, which need `referrers`. `code`
    locates generated sources and debug logs; `before` is the artifact of the previous version.
    """

    MEMBERS = "members"
    CONFIG = "config"
    MANIFEST = "manifest"
    MEASUREMENTS = "measurements"
    JOBS = "jobs"
    REFERRERS = "referrers"
    PROFILES = "profiles"
    AUTOTUNE = "autotune"
    CODE = "code"
    BEFORE = "before"


@dataclass(frozen=True, slots=True)
class MeasurementRunView:
    """A run or report behind a `MetricView`.

    Attributes:
        value: The figure.
        low: Lowest of its processes, the figure itself where there are none.
        high: Highest value, as for `low`.
        measured_at: When it was taken, ISO 8601, UTC.
        source: `build`, `again` (a measuring job) or `report`.
        environment: The machine's fingerprint.
        job: The build or measuring job that took it; empty for a report, and for a job of a model that may not be read.
        baseline: Number of the version that the job benchmarked, if another one; else None.
        reporter: Who reported it; empty for a job's.
    """

    value: float
    low: float
    high: float
    measured_at: str
    source: str
    environment: dict[str, Any]
    job: str = ""
    baseline: int | None = None
    reporter: str = ""


@dataclass(frozen=True, slots=True)
class MetricView:
    """The measurements of one metric of an artifact.

    Attributes:
        metric: What was measured (`latency_p50`).
        unit: Its unit (`ms`).
        implementation: `artifact`, `eager` or `torch_compile`.
        value: The figure of its latest run; where there are reports only, the median of the latest 200.
        low: Lowest replicate of the latest 200 measurements, or the lowest value without replicates.
        high: Highest value, as for `low`.
        count: How many figures there are, 200 at most.
        measured_at: When the latest run was, or the latest report; ISO 8601, UTC.
        class_digest: The environment class that it was measured in.
        batch: Batch size, or None where there is none.
        runs: The latest five figures that it is of, and the latest run, newest first.
    """

    metric: str
    unit: str
    implementation: str
    value: float
    low: float
    high: float
    count: int
    measured_at: str
    class_digest: Digest
    batch: int | None = None
    runs: tuple[MeasurementRunView, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A stored JSON document, prepared for display.

    Attributes:
        digest: Its digest.
        size: Its length in bytes, 0 where it was not read.
        value: What it holds, long lists cut; None where it cannot be shown.
        problem: Why it cannot be shown, else None.
    """

    digest: Digest
    size: int = 0
    value: Any = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class CodeReferrer:
    """The location of a document about an artifact's code, such as its generated sources.

    Attributes:
        artifact: The artifact that the code was compiled for: the requested one, or the one that it reuses code of.
        model: That artifact's model.
        number: The number of its version.
        referrer: Digest of the manifest that names the document.
    """

    artifact: Digest
    model: str
    number: int
    referrer: Digest


@dataclass(frozen=True, slots=True)
class InspectionView:
    """An artifact with the parts of its contents that were requested; the others are empty.

    Attributes:
        artifact: Its facts and lists, the lists bounded; without measurements, manifest and config.
        latency: Its latest median latency at the smallest batch size, None where it was not measured.
        manifest: Its manifest; None if not requested.
        config: Its config; None if not requested.
        parsed: The config with its first constants, where it is one of pt2hub's.
        constants: How many constants it has.
        measurements: What was measured of it.
        environments: Fields of the environment classes of `figures`, by digest.
        sources: Where its sources are kept, None where nobody keeps them.
        debug_logs: Where the debug logs of its compile are kept, None where nobody keeps them.
        before: Artifact of the newest earlier version for the same target, or None.
        jobs: Its newest measuring jobs, newest first.
        tuned: The artifact whose candidates are shown: this one, or the one that its code was compiled for; None where
            none are kept.
        untuned: Why none are, a sentence; else empty.
        tuned_next: What `tuned_after` must be for the candidates that follow, None at their end.
        more: Which lists hold more than is shown: `members`, `figures`, `referrers`.
        profile_problem: Why the time breakdown cannot be shown, else None.
        wants_profile: Whether measuring jobs record a time breakdown, by the spec's `measure.profile`.
    """

    artifact: ArtifactView
    latency: MetricView | None = None
    manifest: StoredDocument | None = None
    config: StoredDocument | None = None
    parsed: ArtifactConfig | None = None
    constants: int = 0
    measurements: tuple[MetricView, ...] = ()
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: CodeReferrer | None = None
    debug_logs: CodeReferrer | None = None
    before: Digest | None = None
    jobs: tuple[BuildView, ...] = ()
    tuned: Digest | None = None
    untuned: str = ""
    tuned_next: int | None = None
    more: frozenset[str] = frozenset()
    profile_problem: str | None = None
    wants_profile: bool = True


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text about an artifact's code, such as a generated source.

    Attributes:
        name: Its name.
        size: Its length in bytes.
    """

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class TextWindow:
    """A range of lines of a text.

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
class TextsView:
    """The texts of one kind about an artifact's code: generated sources or debug logs.

    Attributes:
        digest: The requested artifact.
        model: The model's name.
        number: The version's number.
        target: The target's name.
        kept: Where they are kept, None where nobody keeps them.
        files: What there is, by name.
        text: The chosen file, None where there is none.
        problem: Why they cannot be shown, else None.
    """

    digest: Digest
    model: str
    number: int
    target: str
    kept: CodeReferrer | None = None
    files: tuple[TextFile, ...] = ()
    text: TextWindow | None = None
    problem: str | None = None
