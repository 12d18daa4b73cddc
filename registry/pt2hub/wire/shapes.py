"""What the API answers, as frozen dataclasses; `domain.codec` turns them into JSON and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pt2hub.domain.digests import Digest


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of a build.

    Attributes:
        name: One of `domain.builds.STEPS`.
        state: `running`, `done` or `failed`.
        started_at: ISO 8601, UTC.
        seconds: Wall time, None while it runs.
        detail: A short line of progress or result, or None.
    """

    name: str
    state: str
    started_at: str
    seconds: float | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class BuildView:
    """A build.

    Attributes:
        id: The build's id.
        model: The model's name.
        number: The version's number.
        target: The target's name.
        state: One of `domain.builds.BuildState`.
        attempt: Attempts begun so far.
        created_at: ISO 8601, UTC, as all times here.
        started_at: When the latest attempt began, or None.
        finished_at: When it reached a final state, or None.
        steps: Steps of the latest attempt, in order.
        error: The error as `Pt2hubError.as_dict` writes it, or None.
        artifact: Manifest digest of the result, or None.
        note: Why it waits ("no live worker offers this target"), or None.
    """

    id: str
    model: str
    number: int
    target: str
    state: str
    attempt: int
    created_at: str
    started_at: str | None = None
    finished_at: str | None = None
    steps: tuple[StepView, ...] = ()
    error: dict[str, Any] | None = None
    artifact: Digest | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class VersionView:
    """A version and its builds.

    Attributes:
        model: The model's name.
        number: The version's number.
        identity: Digest of the canonical spec.
        readiness: One of `domain.builds.Readiness`.
        created_at: ISO 8601, UTC.
        spec: The canonical spec.
        pins: What the submission resolved to digests and versions.
        builds: One build per target, in the order submitted.
        weights: Digest of the weights blob, None until the first build recorded it.
        golden: Digest of the golden inputs and outputs, likewise.
        created: On a submission: whether it made the version (False: the same content was there already).
    """

    model: str
    number: int
    identity: Digest
    readiness: str
    created_at: str
    spec: dict[str, Any]
    pins: dict[str, Any]
    builds: tuple[BuildView, ...]
    weights: Digest | None = None
    golden: Digest | None = None
    created: bool = False


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """One target's artifact of a resolved version.

    Attributes:
        target: The target's name.
        digest: Manifest digest.
        created_at: ISO 8601, UTC.
    """

    target: str
    digest: Digest
    created_at: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a reference names.

    Attributes:
        reference: As asked.
        model: The model's name.
        number: The version's number.
        artifacts: Its artifacts, one per succeeded target.
    """

    reference: str
    model: str
    number: int
    artifacts: tuple[ArtifactRef, ...]


@dataclass(frozen=True, slots=True)
class LogView:
    """A line of a build's log.

    Attributes:
        seq: Position, from 1; ask for lines after the last one seen.
        at: Seconds since the epoch.
        step: The step that wrote it.
        level: `info`, `warning`, `error` or `compiler`.
        text: The line.
    """

    seq: int
    at: float
    step: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class TargetView:
    """A target that workers offer or offered.

    Attributes:
        name: The target's name.
        live_workers: Workers with a fresh heartbeat.
    """

    name: str
    live_workers: int
