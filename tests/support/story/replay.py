"""Replays the story through the services: people publish and promote, workers build and measure, a year passes."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import CODE_TYPE
from pt2hub.domain.builds import BuildFilter, BuildKind
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.tokens import Actor
from pt2hub.errors import InvalidInput, PromotionCheckFailed
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.blob_writes import BlobChunk
from pt2hub.server.services.blobs.documents import read_manifest
from support.story import contents
from support.story.attempts import Attempts, Job
from support.story.clock import Clock
from support.story.evaluations import evaluate, rules
from support.story.failures import FAILURES
from support.story.origins import attached, labels
from support.story.plot import (
    DAYS,
    EMBEDDER,
    KEYWORDS,
    MODELS,
    NEWER,
    ORDERED,
    RANKER,
    RESNET,
    chance,
    machine,
)

if TYPE_CHECKING:
    from pt2hub.domain.targets import Target
    from pt2hub.server.container import Container
    from support.story.plot import Model

_DAY = 86400.0
_LATENCY = {"alias": "prod", "metric": "latency_p50", "max_worse": 0.05, "missing": "pass"}
_POLICIES: dict[tuple[str, int], dict[str, Any]] = {
    (RESNET, 12): {"checks": [_LATENCY], "metrics": rules(RESNET)},
    (EMBEDDER, 4): {"checks": [_LATENCY], "metrics": rules(EMBEDDER)},
    (RANKER, 5): {"checks": [_LATENCY], "metrics": rules(RANKER)},
}
"""Policies, by the model and the version after which they are set."""
_OWNERS = {
    "demo-vision": "vision team",
    "demo-text": "language team",
    "demo-ranking": "ranking team",
    "demo-audio": "audio team",
}
"""Whom to ask, by team."""
_FORCED = (EMBEDDER, 5)
"""A version that an admin puts on `prod` although the policy refuses it."""
_UNMEASURED = (KEYWORDS, 2)
"""A version whose measuring job still waits."""
_REASONS = ("passed the shadow run", "weekly release", "offline test: +0.3 points", "trained with newer data")
_ADA = Actor("ada", admin=True)
_CI = Actor("ci")


def seed(services: Container) -> int:
    """Fill a server with the story, whose last day is today; return the number of artifacts.

    Raises:
        InvalidInput: There are models already.
    """
    if found := services.catalog.models(limit=1).models:
        raise InvalidInput(
            "This server has models already",
            where=found[0].name,
            hint="Seed a server of its own: set PT2HUB_HOME to another directory.",
        )
    with tempfile.TemporaryDirectory(prefix="pt2hub-story-") as folder:
        return _Replay(services, Path(folder)).run()


class _Replay:
    def __init__(self, services: Container, folder: Path) -> None:
        self._services = services
        self._clock = Clock(services)
        self._attempts = Attempts(services, self._clock, folder)
        self._built: dict[tuple[str, str], list[tuple[int, Digest]]] = defaultdict(list)
        self._aliases: dict[tuple[str, str], int] = {}

    def run(self) -> int:
        """Replay everything."""
        chapters = [(model, number) for model in MODELS for number in range(1, model.versions + 1)]
        for model, number in sorted(chapters, key=lambda chapter: chapter[0].day(chapter[1])):
            self._publish(model, number)
        self._today()
        self._clock.date_back()
        return sum(map(len, self._built.values()))

    def _at(self, model: Model, number: int, hours: float = 0.0) -> float:
        """Return a time after the submission of a version, in seconds since the epoch."""
        at = self._clock.start - (DAYS - model.day(number)) * _DAY + hours * 3600
        return min(at, self._clock.start - 900)

    def _publish(self, model: Model, number: int) -> None:
        """Submit a version, build and measure it, and move aliases to it."""
        at = self._at(model, number)
        self._clock.set(at)
        version = self._services.publish.submit(self._spec(model, number), by=_CI)
        if number == 1:
            owner = {"owner": _OWNERS[model.name.split("/", maxsplit=1)[0]]}
            self._services.labels.change(model.name, None, put=owner, remove=[], expected={}, by=_ADA)
        for place, (arch, build) in enumerate(zip(model.speeds, version.builds, strict=True)):
            self._build(Job(build.id, model, number, arch), at + 20 * place)
        if found := list(evaluate(model, number)):
            self._services.evaluations.report({"evaluations": found}, by=_CI)
        if any(0 <= number - changed <= 3 for changed in model.changes):
            self._compare()
        if any(number == built for arch in model.speeds for built, _ in self._built[model.name, arch][-1:]):
            self._promote(model, number)
        if policy := _POLICIES.get((model.name, number)):
            self._services.policies.put(model.name, policy, revision=0, by=_ADA)

    def _compare(self) -> None:
        while self._services.comparisons.examine():
            pass

    def _spec(self, model: Model, number: int) -> dict[str, Any]:
        program, weights = model.program(number), self._upload(contents.weights(model, number))
        files = {name: self._upload(data) for name, data in attached(model).items()}
        return {
            "model": model.name,
            "source": {**model.source, **({"seed": program} if program > 1 else {})},
            "weights": weights,
            **({"files": files} if files else {}),
            "inputs": model.inputs,
            "dims": {"batch": {"max": 64, "example": model.batches[-1]}},
            "measure": {"batches": list(model.batches)},
            "compile": {"options": {"max_autotune": True}, "debug": ["fusion", "graph"]},
            "targets": [model.machine(number, arch).target.name for arch in model.speeds],
            "labels": labels(model, number),
        }

    def _upload(self, data: bytes) -> Digest:
        digest = digest_bytes(data)
        self._services.blobs.store([BlobChunk(StorageKey.blob(digest), len(data), data)], holder="upload:ada")
        return digest

    def _build(self, job: Job, at: float) -> None:
        """Let a build end as the plot says."""
        match job.model.failures.get((job.number, job.arch)):
            case None:
                self._succeed(job, at)
            case "waits":
                pass
            case "runs":
                self._attempts.begin(job, self._clock.start - 130)
            case "cancelled":
                self._services.builds.cancel(job.id, Actor("mary"))
            case kind:
                ended = self._attempts.fail(job, at, kind)
                if FAILURES[kind].again:
                    self._clock.end_pause(job.id)
                    self._succeed(job, ended + 60)

    def _succeed(self, job: Job, at: float) -> None:
        """Build an artifact and do the measuring job that its publication queued."""
        artifact = self._attempts.build(job, at)
        built = self._built[job.model.name, job.arch]
        # An artifact of an older torch does not run beside one of a newer.
        before = next((item for item in built[-1:] if self._line(job, item[0]) == job.machine.target), None)
        built.append((job.number, artifact))
        if (job.model.name, job.number) == _UNMEASURED:
            return
        wanted = BuildFilter(
            job.model.name, job.number, target=job.machine.target.name, kind=BuildKind.MEASURE
        )
        (waiting,) = self._services.catalog.builds(wanted).builds
        same = before is not None and self._code(before[1]) == self._code(artifact)
        self._attempts.measure(replace(job, id=waiting.id), at + 400, before, same_code=same)

    @staticmethod
    def _line(job: Job, number: int) -> Target:
        return job.model.machine(number, job.arch).target

    def _code(self, artifact: Digest) -> object:
        return read_manifest(self._services.storage, artifact).layer(CODE_TYPE)

    def _promote(self, model: Model, number: int) -> None:
        """Move `staging` to a version, and `prod` where its policy lets it."""
        before = self._aliases.get((model.name, "prod"))
        self._move(model, number, 2, "staging", number, "newest ready version")
        reason = chance(model.name, number).choice(_REASONS)
        try:
            self._move(model, number, 9, "prod", number, reason)
        except PromotionCheckFailed:
            if (model.name, number) == _FORCED:
                self._services.aliases.force(
                    model.name, "prod", number, expected=before, reason=reason, by=_ADA
                )
                self._aliases[model.name, "prod"] = number
        if before and number in model.rolled_back:
            self._move(model, number, 15, "prod", before, model.rolled_back[number])

    def _move(self, model: Model, number: int, hours: float, alias: str, to: int, reason: str) -> None:
        self._clock.set(self._at(model, number, hours))
        by = chance(alias, number).choice(("ada", "mary", "kofi"))
        expected = self._aliases.get((model.name, alias))
        self._services.aliases.move(model.name, alias, to, expected=expected, reason=reason, by=Actor(by))
        self._aliases[model.name, alias] = to

    def _today(self) -> None:
        """Ask for measurements, wait for GPUs that are ordered; some workers have left."""
        self._clock.set(self._clock.start - 600)
        model = next(model for model in MODELS if model.name == RANKER)
        self._services.measuring_jobs.measure(f"{RANKER}@{model.versions}", by=Actor("mary"), repeat=3)
        spec = self._spec(model, model.versions)
        self._services.publish.submit({**spec, "targets": [*spec["targets"], ORDERED]}, by=_CI)
        self._compare()
        alive = {machine(arch, NEWER).device for arch in ("sm90", "x86_64_v4")}
        self._attempts.leave(alive, self._clock.start)
