"""What was published when and for what, and how each build went: the story before it becomes rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pt2hub.domain.builds import BuildState, Outcome
from pt2hub.domain.compiling import TargetSpec
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.specs import Spec
from pt2hub.errors import Pt2hubError
from pt2hub.server.demo import language, machines, ranking, speech, vision
from pt2hub.server.demo.failures import KINDS
from pt2hub.server.demo.machines import Machine
from pt2hub.server.demo.models import DAYS, Model, chance

if TYPE_CHECKING:
    from collections.abc import Iterator


MODELS: tuple[Model, ...] = (*vision.MODELS, *language.MODELS, *speech.MODELS, *ranking.MODELS)
WAITS, RUNS = "waits", "runs"
"""Kinds of failures that are none: the build is not over."""
_WORK_BEGINS, _WORK_HOURS = 8.0, 9.5
_SATURDAY = 5
_HICCUP = 0.03
"""Share of builds of which an attempt was lost or given back, and the next one went well."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a build.

    Attributes:
        number: From 1.
        worker: Who had it.
        began: When.
        steps: Name and seconds of each step; the last one is that which failed, where one did.
        outcome: How it ended, None where it runs.
        error: What it ended with, or None.
        kind: The failure's name in `failures.KINDS`; empty where it went well.
    """

    number: int
    worker: str
    began: datetime
    steps: tuple[tuple[str, float], ...]
    outcome: Outcome | None
    error: Pt2hubError | None = None
    kind: str = ""

    @property
    def ended(self) -> datetime:
        """When it was over."""
        return self.began + timedelta(seconds=sum(seconds for _, seconds in self.steps))


@dataclass(frozen=True, slots=True)
class Build:
    """A build of a version.

    Attributes:
        id: Its id.
        arch: What it builds for.
        machine: Where.
        position: Its place among its version's.
        request: What was asked for.
        queued: When.
        day: The same as a day of the story.
        state: How it stands.
        attempts: First to last.
        reuses: Whether it takes the code of an earlier one.
        key: Digest of its program key.
    """

    id: str
    arch: str
    machine: Machine
    position: int
    request: dict[str, Any]
    queued: datetime
    day: float
    state: BuildState
    attempts: tuple[Attempt, ...]
    reuses: bool
    key: Digest

    @property
    def target(self) -> str:
        """The target's name."""
        return self.machine.target.name

    @property
    def finished(self) -> datetime:
        """When its last attempt was over."""
        return self.attempts[-1].ended

    @property
    def succeeded(self) -> bool:
        """Whether it has an artifact."""
        return self.state is BuildState.SUCCEEDED


@dataclass(frozen=True, slots=True)
class Version:
    """A version.

    Attributes:
        model: Of which model.
        number: Its number.
        day: When it was submitted, as a day of the story.
        at: The same as a time.
        spec: The canonical spec.
        settings: Its `limits` and `measure`.
        identity: Its digest.
        pins: What the submission resolved.
        weights: Digest of its weights.
        golden: Digest of its golden values.
        builds: One for each target.
    """

    model: Model
    number: int
    day: float
    at: datetime
    spec: dict[str, Any]
    settings: dict[str, Any]
    identity: Digest
    pins: dict[str, Any]
    weights: Digest
    golden: Digest
    builds: tuple[Build, ...] = field(default=())

    @property
    def ready_at(self) -> datetime | None:
        """When all of its builds had succeeded; None where one did not."""
        done = [build.finished for build in self.builds if build.succeeded]
        return max(done) if len(done) == len(self.builds) else None


def stories(now: datetime) -> Iterator[list[Version]]:
    """The versions of each model, oldest first.

    Args:
        now: The last moment of the story.
    """
    for model in MODELS:
        compiled: set[Digest] = set()
        found = []
        for number, day in enumerate(_days(model), 1):
            version = _version(model, number, day, now)
            version = replace(version, builds=tuple(_builds(version, compiled, now)))
            compiled |= {build.key for build in version.builds if build.succeeded}
            found.append(version)
        yield found


def made_up(what: str) -> Digest:
    """A digest of bytes that there never were."""
    return digest_bytes(f"pt2hub demo: {what}".encode())


def moment(now: datetime, day: float) -> datetime:
    """A day of the story as a time."""
    return (now - timedelta(days=DAYS - day)).replace(microsecond=0)


def _days(model: Model) -> Iterator[float]:
    """Working hours of working days, spread from the model's first day to the last of the story."""
    luck = chance(model.name, "days")
    span = DAYS - 0.6 - model.began
    last = 0.0
    for number in range(model.versions):
        even = model.began + span * number / max(1, model.versions - 1)
        day = even + luck.uniform(-0.35, 0.35) * span / model.versions
        last = max(last + 0.15, min(DAYS - 0.4, day))
        yield last


def _at(model: Model, number: int, day: float, now: datetime) -> datetime:
    """A day as a time at which people work; the newest versions are as they are."""
    at = moment(now, day)
    if DAYS - day < 7:  # noqa: PLR2004  # days of a week: those are known to the hour
        return at
    if at.weekday() >= _SATURDAY:
        at -= timedelta(days=at.weekday() - _SATURDAY + 1)
    hour = _WORK_BEGINS + _WORK_HOURS * chance(model.name, number, "hour").random()
    return at.replace(hour=0, minute=0, second=0) + timedelta(hours=hour)


def _version(model: Model, number: int, day: float, now: datetime) -> Version:
    spec = Spec.model_validate(_document(model, number, day))
    weights = made_up(f"weights of {model.name}@{number}")
    archs = _archs(model, day)
    line = _lines(model, day)[-1]
    packages = {"torch": machines.machine(archs[0], line, day).toolchain.torch, "pt2hub": "0.1.0"}
    blobs = {"weights": {"digest": weights, "size": model.weights_bytes}}
    if code := spec.canonical()["source"].get("code"):
        blobs["source.code"] = {"digest": code, "size": 18_000 + 700 * model.program(number)}
    targets = [request.target for request in spec.requests()]
    origin = {"weights_from": model.weights_from} if model.weights_from and number == 1 else {}
    return Version(
        model=model,
        number=number,
        day=day,
        at=_at(model, number, day, now),
        spec=spec.canonical(),
        settings=spec.settings(),
        identity=spec.identity(),
        pins={"packages": dict.fromkeys(targets, packages), "blobs": blobs, "targets": targets, **origin},
        weights=weights,
        golden=made_up(f"golden values of {model.name}@{number}"),
    )


def _document(model: Model, number: int, day: float) -> dict[str, Any]:
    """The spec as its author wrote it."""
    program = model.program(number)
    source = dict(model.source)
    if "code" in source:
        source["code"] = made_up(f"archive of {model.name}, program {program}")
    elif program > 1:
        source["seed"] = program - 1
    return {
        "model": model.name,
        "source": source,
        "weights": made_up(f"weights of {model.name}@{number}"),
        "inputs": model.inputs,
        "dims": model.dims,
        "measure": {"batches": list(model.batches)},
        "targets": list(_targets(model, day)),
        "compile": {"options": {"max_autotune": True}},
        **model.extra,
    }


def _archs(model: Model, day: float) -> list[str]:
    return [arch for arch in model.speeds if model.joined.get(arch, 0.0) <= day]


def _lines(model: Model, day: float) -> tuple[str, ...]:
    """The lines of torch that a model is built with: for a while both."""
    if day < model.upgraded:
        return (machines.OLDER,)
    both = day < model.upgraded + 14
    return (machines.OLDER, machines.NEWER) if both else (machines.NEWER,)


def _targets(model: Model, day: float) -> Iterator[dict[str, Any]]:
    for line in _lines(model, day):
        for arch in _archs(model, day):
            half = {"sm75": "float16"}.get(arch, "bfloat16") if arch.startswith("sm") else None
            dtype = {"dtype": half} if half and model.halves else {}
            yield {"target": machines.target_name(arch, line), **dtype}


def _builds(version: Version, compiled: set[Digest], now: datetime) -> Iterator[Build]:
    model, number = version.model, version.number
    for position, wanted in enumerate(_targets(model, version.day)):
        name = wanted["target"]
        line, arch = name.removeprefix("torch").partition("-")[0], name.rpartition("-")[2]
        machine = machines.machine(arch, line, version.day)
        key = made_up(f"key of {model.name}, program {model.program(number)}, {name}")
        kind = model.failure(number, arch) or ""
        draft = Build(
            id=made_up(f"build {model.name}@{number} {name}").removeprefix("sha256:")[:16],
            arch=arch,
            machine=machine,
            position=position,
            request=TargetSpec(**wanted).model_dump(mode="json", exclude_defaults=True),
            queued=version.at,
            day=version.day,
            state=BuildState.SUCCEEDED,
            attempts=(),
            reuses=key in compiled,
            key=key,
        )
        if kind in (WAITS, RUNS):
            yield _unfinished(version, draft, kind, now)
            continue
        attempts = tuple(_attempts(version, draft, kind))
        over = attempts[-1].outcome or Outcome.LOST
        state = BuildState(over.value if over is not Outcome.LOST else "failed")
        assert attempts[-1].ended < now, "the story is over by now"
        yield replace(draft, state=state, attempts=attempts)


def _unfinished(version: Version, build: Build, kind: str, now: datetime) -> Build:
    """A build that waits, or one that a worker began a few minutes ago."""
    if kind == WAITS:
        return replace(build, state=BuildState.QUEUED)
    *done, _ = (
        step for step in _steps(version, build, 1) if step[0] in ("fetch", "export", "key", "compile")
    )
    began = now - timedelta(seconds=sum(seconds for _, seconds in done) + 95)
    open_ = Attempt(1, build.machine.worker(1), began, (*done, ("compile", 95.0)), None)
    return replace(build, state=BuildState.RUNNING, attempts=(open_,), reuses=False)


def _attempts(version: Version, build: Build, kind: str) -> Iterator[Attempt]:
    """The attempts at a build, as its failure says; a few others had bad luck once."""
    luck = chance(build.id, "attempts")
    began = version.at + timedelta(seconds=2 + luck.expovariate(1 / 40) + 15 * build.position)
    kinds = [*KINDS[kind].before, kind] if kind else [""]
    if kind and KINDS[kind].passes:
        kinds.append("")
    if not kind and luck.random() < _HICCUP:
        kinds = [luck.choice(("worker_lost", "handed_back")), ""]
    for number, name in enumerate(kinds, 1):
        attempt = _attempt(version, build, Attempt(number, "", began, (), Outcome.SUCCEEDED, kind=name))
        yield attempt
        began = attempt.ended + timedelta(seconds=luck.uniform(5, 60))


def _attempt(version: Version, build: Build, attempt: Attempt) -> Attempt:
    worker = build.machine.worker(1 + chance(build.id, attempt.number).randrange(3))
    steps = tuple(_steps(version, build, attempt.number))
    if not attempt.kind:
        return replace(attempt, worker=worker, steps=steps)
    failure = KINDS[attempt.kind]
    names = [name for name, _ in steps]
    at = names.index(failure.step) if failure.step in names else 3
    last = (names[at], failure.seconds or steps[at][1] * 0.6)
    error = failure.error(version.model.name, version.number, build.target, worker)
    done = (*steps[:at], last)
    return replace(attempt, worker=worker, steps=done, outcome=failure.outcome, error=error)


def _steps(version: Version, build: Build, number: int) -> Iterator[tuple[str, float]]:
    """How long the steps of an attempt take that goes well."""
    luck = chance(build.id, "steps", number)
    size = version.model.weights_bytes / 1e8
    gpu = build.arch.startswith("sm")
    compiling = (38.0 + 11.0 * size) * (3.2 if gpu else 1.0) * (1.0 if gpu else 1.7)
    usual = {
        "fetch": 0.5 + 1.1 * size,
        "export": 6.0 + 4.0 * size,
        "key": 0.3 + 0.1 * size,
        **({"reuse": 0.12} if build.reuses else {"compile": compiling}),
        "pack": 0.5 + 0.9 * size,
        "verify": (5.0 if gpu else 14.0) + 3.0 * size,
        "upload": 0.4 + 0.8 * size,
        "publish": 0.03,
    }
    for name, seconds in usual.items():
        yield name, round(seconds * luck.lognormvariate(0.0, 0.09), 3)
