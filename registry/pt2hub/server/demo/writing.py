"""The rows of versions, builds and artifacts, model by model."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import Descriptor
from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import encode
from pt2hub.domain.publications import Publication
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts import artifact_row, referrer_row
from pt2hub.server.db.stores.performance import Measured
from pt2hub.server.demo import afterwards, artifacts, promotions
from pt2hub.server.demo.artifacts import Bytes, Made
from pt2hub.server.demo.history import History
from pt2hub.server.demo.logs import lines
from pt2hub.server.demo.models import MARK
from pt2hub.server.demo.rows import Rows
from pt2hub.server.services.documents import named_by

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import Manifest
    from pt2hub.server.demo.plan import Attempt, Build, Version

_CREATED_BEFORE = timedelta(minutes=1)


@dataclass(slots=True)
class Writer:
    """Turns versions into rows and bytes.

    Attributes:
        rows: Takes the rows.
        bytes: Takes what pages read.
        history: Takes the figures.
        now: The last moment of the story.
        targets: Every target that was met.
        queued: Builds that wait, each with its target.
        made: The artifacts by model, version and target.
        logs: Blob and number of lines of the logs of artifacts, by build.
    """

    rows: Rows
    bytes: Bytes
    history: History
    now: datetime
    targets: set[str] = field(default_factory=set)
    queued: list[tuple[str, str]] = field(default_factory=list)
    made: dict[tuple[str, int, str], Made] = field(default_factory=dict)
    logs: dict[str, tuple[Descriptor, int]] = field(default_factory=dict)

    def model(self, versions: list[Version]) -> int:
        """Writes a model with all its versions; its row."""
        first = versions[0]
        model_id = self.rows.new_id("models")
        self.rows.add(
            "models",
            id=model_id,
            name=first.model.name,
            description=f"{first.model.text} ({MARK})",
            created_at=first.at - _CREATED_BEFORE,
        )
        ids = {version.number: self._version(model_id, version) for version in versions}
        promotions.write(self.rows, model_id, ids, versions, self.now)
        afterwards.write(self, model_id, ids, versions)
        return model_id

    def measured(self, made: Made, model_id: int) -> Measured:
        """What the history knows an artifact as."""
        return Measured(made.manifest.digest, model_id, made.version.number, made.build.target)

    def _version(self, model_id: int, version: Version) -> int:
        version_id = self.rows.new_id("versions")
        self.rows.add(
            "versions",
            id=version_id,
            model_id=model_id,
            number=version.number,
            identity=version.identity,
            spec=version.spec,
            settings=version.settings,
            pins=version.pins,
            weights=version.weights,
            golden=version.golden if any(build.succeeded for build in version.builds) else None,
            created_at=version.at,
        )
        for build in version.builds:
            self._build(version_id, version, build)
            if build.succeeded:
                self._artifact(model_id, version, build)
        return version_id

    def _build(self, version_id: int, version: Version, build: Build) -> None:
        self.targets.add(build.target)
        last = build.attempts[-1] if build.attempts else None
        running, waiting = build.state is BuildState.RUNNING, build.state is BuildState.QUEUED
        self.rows.add(
            "builds",
            id=build.id,
            kind="build",
            version_id=version_id,
            target=build.target,
            position=build.position,
            request=build.request,
            first_submitted=True,
            state=build.state.value,
            priority=0,
            attempt=len(build.attempts),
            failures=sum(attempt.outcome in ("lost", "retried") for attempt in build.attempts),
            worker_id=last.worker if last and running else None,
            created_at=build.queued,
            queued_at=build.queued,
            started_at=last.began if last else None,
            finished_at=None if running or waiting or not last else last.ended,
            error=_error(build),
        )
        if waiting:
            self.queued.append((build.id, build.target))
        for attempt in build.attempts:
            self._attempt(version, build, attempt)

    def _attempt(self, version: Version, build: Build, attempt: Attempt) -> None:
        over = attempt.outcome is not None
        log = artifacts.put_log(version, build, attempt, self.bytes) if over else None
        if log and attempt.outcome == "succeeded":
            self.logs[build.id] = log
        if log:
            self.refer([StorageKey.blob(log[0].digest)], f"log:{build.id}:{attempt.number}")
        if not over:
            for line in lines(version, build, attempt):
                self.rows.add("build_logs", build_id=build.id, attempt=attempt.number, **encode(line))
        self.rows.add(
            "build_attempts",
            build_id=build.id,
            attempt=attempt.number,
            worker_id=attempt.worker,
            started_at=attempt.began,
            ended_at=attempt.ended if over else None,
            outcome=attempt.outcome.value if attempt.outcome else None,
            error=attempt.error.as_dict() if attempt.error else None,
            reused=build.reuses if attempt.outcome == "succeeded" else None,
            log=log[0].digest if log else None,
            log_bytes=log[0].size if log else (0 if over else None),
            log_lines=log[1] if log else (0 if over else None),
            counted=False,
        )
        self._steps(build, attempt)

    def attempt_row(
        self, build: str, worker: str, times: tuple[datetime, datetime], log: str, length: tuple[int, int]
    ) -> None:
        """Adds the only attempt at a build, which went well.

        Args:
            build: The build.
            worker: Who had it.
            times: When it began and ended.
            log: Digest of its log.
            length: The log's bytes and lines.
        """
        self.rows.add(
            "build_attempts",
            build_id=build,
            attempt=1,
            worker_id=worker,
            started_at=times[0],
            ended_at=times[1],
            outcome="succeeded",
            error=None,
            reused=None,
            log=log,
            log_bytes=length[0],
            log_lines=length[1],
            counted=False,
        )

    def _steps(self, build: Build, attempt: Attempt) -> None:
        at = attempt.began
        for place, (name, seconds) in enumerate(attempt.steps, 1):
            last = place == len(attempt.steps)
            bad = last and attempt.outcome != "succeeded"
            state = ("running" if attempt.outcome is None else "failed") if bad else "done"
            self.rows.add(
                "build_steps",
                build_id=build.id,
                attempt=attempt.number,
                name=name,
                state=state,
                started_at=at,
                seconds=None if bad else seconds,
                detail=_detail(build, name, bad=bad),
            )
            at += timedelta(seconds=seconds)

    def _artifact(self, model_id: int, version: Version, build: Build) -> None:
        before = self.before(version, build)
        made = artifacts.make(version, build, before, self.bytes)
        self.made[version.model.name, version.number, build.target] = made
        environment, _ = self.history.environment(build.machine.environment)
        publication = Publication(made.manifest, made.config, made.referrers, made.autotune, (made.run,))
        attempt = build.attempts[-1].number
        row = artifact_row(publication) | {
            "build_id": build.id,
            "attempt": attempt,
            "environment": environment,
        }
        self.rows.add("artifacts", **row)
        self._index(made)
        self.history.add(
            made.run, self.measured(made, model_id), self.measured(before, model_id) if before else None
        )

    def _index(self, made: Made) -> None:
        digest = made.manifest.digest
        for position, member in enumerate(made.config.single_file.members):
            self.rows.add("archive_members", artifact=digest, **encode(member), position=position)
        for row in made.autotune:
            self.rows.add("autotune_choices", id=self.rows.new_id("autotune_choices"), artifact=digest, **row)
        told, count = self.logs[made.build.id]
        log = artifacts.log_referrer(made, told, count, self.bytes)
        for referrer in (*made.referrers, log):
            self.refer_to(digest, referrer)
        stored = {key for key in named_by(made.manifest, *made.referrers, log) if key in self.bytes.found}
        self.refer(sorted(stored), f"artifact:{digest}")

    def refer_to(self, artifact: str, referrer: Manifest) -> None:
        """Notes that a manifest belongs to an artifact."""
        self.rows.add("referrers", artifact=artifact, **referrer_row(referrer))

    def before(self, version: Version, build: Build) -> Made | None:
        """The artifact of the newest earlier version for the same target."""
        name = version.model.name
        numbers = range(version.number - 1, 0, -1)
        return next((found for n in numbers if (found := self.made.get((name, n, build.target)))), None)

    def refer(self, keys: list[StorageKey], owner: str) -> None:
        """Notes that something needs stored bytes."""
        for key in keys:
            self.rows.add("blob_references", kind=key.kind, digest=key.digest, owner=owner)


def _error(build: Build) -> dict[str, Any] | None:
    if build.state is BuildState.CANCELLED:
        return {"message": "cancelled by mary"}
    last = build.attempts[-1] if build.attempts else None
    return last.error.as_dict() if last and last.error and build.state is BuildState.FAILED else None


def _detail(build: Build, name: str, *, bad: bool) -> str | None:
    if name == "compile" and bad:
        return "autotuning: 11 of 20 choices made" if build.arch.startswith("sm") else None
    return {"verify": "largest error within tolerance", "reuse": "code of an earlier version"}.get(name)
