"""How values look at a Python prompt and in a notebook: a title, a small table, and what to do next.

Names, log lines and errors come from elsewhere and may hold markup or escape sequences: both are taken out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import UNSEEN
from pt2hub.printed import Sheet
from pt2hub.rendering import speeds
from pt2hub.rendering.quantities import quantity
from pt2hub.rendering.steps import remark
from pt2hub.wire.problems import from_dict

if TYPE_CHECKING:
    from pt2hub.wire.artifacts import ArtifactView
    from pt2hub.wire.resolution import ArtifactRef, Resolved
    from pt2hub.wire.shapes import (
        AliasMove,
        AliasView,
        AttemptView,
        BuildView,
        LogView,
        MeasurementStatus,
        ModelView,
        TargetView,
        VersionSummary,
        VersionView,
    )
    from pt2hub.wire.workers import WorkerBuild, WorkerView

_SHORT = 19
"""Characters of a shortened digest: `sha256:` and 12 digits."""
_HUNDRED = 100
_SPENT = 3
"""Operations and kernels that are named of a call."""
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_RIGHT_SECONDS = 2.0
"""By how much a worker's clock may be wrong before anybody is told."""
_OUTCOMES = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "was cancelled",
    "retried": "failed",
    "lost": "lost its worker",
    "handed_back": "was handed back",
    "postponed": "was postponed for a build",
}

_MEASUREMENTS = {
    "not_measured": "not measured yet",
    "waiting": "waiting to be measured",
    "failed": "measuring failed",
}
_CONFINED = {"sandbox": "in a sandbox", "process": "without a sandbox", "none": "runs no models"}


def standing(build: BuildView) -> str:
    """A build's state in words, with its place in the queue: `queued 3rd`."""
    if build.state == "queued" and build.position:
        return f"queued {ordinal(build.position)}"
    return build.state


def named(build: BuildView) -> str:
    """What a build is and what it is of, as the subject of a sentence."""
    kind = "Measuring job" if build.kind == "measure" else "Build"
    return f"{kind} {build.id} of {build.model}@{build.number} for {build.target}"


def measures(build: BuildView) -> str:
    """What a measuring job times, and beside what."""
    return f"measures {build.measures}" + (f", beside {build.beside}" if build.beside else "")


def measurement_state(state: str) -> str:
    """Return a measurement state in words: `waiting to be measured`, `measuring`."""
    return _MEASUREMENTS.get(state, state.replace("_", " "))


def measurement(status: MeasurementStatus | None) -> str:
    """Return what is left to say of an artifact's measurement, with its job; empty where it is measured."""
    if status is None:
        return ""
    measures_again = status.job_state in ("queued", "running")
    if status.state == "measured":
        return f"measured; job {status.job} measures it again" if measures_again else ""
    words, reason = measurement_state(status.state), f": {status.reason}" if status.reason else ""
    if measures_again:
        return f"{words}: pt2hub logs -f {status.job}"
    again = f"; pt2hub retry {status.job} tries again" if status.job else ""
    return f"{words}{reason}{again}"


def unmeasured(state: str | None) -> str:
    """Return a measurement state in words behind a comma; empty where there is nothing to say."""
    return "" if state in (None, "measured") else f", {measurement_state(state)}"


def ordinal(number: int) -> str:
    """A place in an order: 1st, 2nd, 11th, 23rd."""
    teens = number % _HUNDRED // 10 == 1
    return f"{number}{'th' if teens else _ENDINGS.get(number % 10, 'th')}"


def circumstances(build: BuildView) -> str:
    """Why a build waits or who ended it, which attempt comes or runs, and how the one before it ended."""
    return "; ".join(part for part in (build.note, attempts(build)) if part)


def attempts(build: BuildView) -> str:
    """Which attempt of an open build comes or runs, and how the one before ended; empty for a first one."""
    if build.state not in ("queued", "running"):
        return ""
    number = build.attempt + (build.state == "queued")
    if number == 1:
        return ""
    before = next((item for item in reversed(build.attempts) if item.outcome and item.number < number), None)
    return f"attempt {number}, {_ended(before)}" if before else f"attempt {number}"


def _ended(attempt: AttemptView) -> str:
    words = _OUTCOMES.get(attempt.outcome or "", f"ended: {attempt.outcome}")
    return f"attempt {attempt.number} {words}" + (f" ({attempt.code})" if attempt.code else "")


def confined(isolation: str) -> str:
    """How a worker confines what it runs for others, in words."""
    return _CONFINED.get(isolation, isolation)


def made(view: ArtifactView) -> tuple[tuple[str, str], ...]:
    """What an artifact's maker says of it: where its weights are, and how the build was confined."""
    form = "baked into the code" if view.weights_form == "baked" else "split from the code"
    isolation = view.provenance.get("isolation")
    spent = _spent_fields(view)
    return (("weights", form), ("isolated", confined(isolation) if isolation else "unknown"), *spent)


def _spent_fields(view: ArtifactView) -> tuple[tuple[str, str], ...]:
    """Where the time of a call goes; on a GPU what runs there, and beside it the time in which nothing does."""
    found, profile = _spent(view), view.profile
    if not found or profile is None:
        return ()
    if profile.device != "cuda":
        return (("time in", found),)
    own, idle, added = profile.plain_us, profile.idle_us, profile.profiler_us
    if own is None or idle is None or added is None:
        return (("GPU time in", found),)
    told = f"{quantity(idle, 'us')} of a call of {quantity(own, 'us')}; the profiler adds {quantity(added, 'us')}"
    return (("GPU time in", found), ("GPU idle", told))


def _spent(view: ArtifactView) -> str:
    """What a call spends most of its time in; empty where nobody looked."""
    if view.profile is None:
        return ""
    first = [f"{row.name} {row.share * 100:.0f} %" for row in view.profile.rows[:_SPENT]]
    others = len(view.profile.rows) + view.profile.left_out - len(first)
    return ", ".join([*first, *([f"{others} more"] if others > 0 else [])]).translate(UNSEEN)


def skew(view: WorkerView) -> str:
    """How wrong a worker's clock is; empty where it is right enough."""
    if abs(view.clock_skew) <= _RIGHT_SECONDS:
        return ""
    return f"clock {_long(abs(view.clock_skew))} {'ahead' if view.clock_skew > 0 else 'behind'}"


def _long(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def version(
    view: VersionView,
    *,
    wait: str = "Client().follow(version), or pt2hub publish SPEC --wait.",
    measured: str = 'Client().follow(version, until="measured"), or pt2hub publish SPEC --wait measured.',
) -> Sheet:
    """A version: the state of each target, and what to do next.

    Args:
        view: The version.
        wait: What waits for its builds.
        measured: What waits for its measurements.
    """
    name = f"{view.model}@{view.number}"
    rows = tuple((build.target, standing(build), _remark(build)) for build in view.builds)
    failed = [note for build in view.builds for note in _failure(build)]
    if view.readiness == "pending":
        following: tuple[str, ...] = (f"To wait for it: {wait}",)
    else:
        following = (*_next(view, name), *_measuring(view, measured))
    return Sheet(f"{name}  {view.readiness}", rows, (*failed, *following))


def build(view: BuildView) -> Sheet:
    """A build: its steps, its result or its error."""
    steps = tuple(
        (
            step.state,
            step.name,
            f"{step.seconds:.2f} s" if step.seconds is not None else "",
            remark(step),
        )
        for step in view.steps
    )
    title = f"{view.id}  {view.model}@{view.number} for {view.target}  {standing(view)}"
    title += f": {_remark(view)}" if view.error else ""
    result = [f"artifact {view.artifact}"] if view.artifact else []
    result += [measures(view)] if view.measures else []
    result += [found] if (found := measurement(view.measurement)) else []
    notes = (circumstances(view),) if circumstances(view) else ()
    return Sheet(title, steps, (*notes, *result, *_failure(view)))


def model(view: ModelView) -> Sheet:
    """A model: how many versions, and where its aliases are."""
    count = f"{view.counted} version{'s' if view.versions != 1 else ''}"
    ready = f"newest ready {view.newest_ready}" if view.newest_ready else "none ready"
    title = f"{view.name}  {count}" + (f", {ready}" if view.versions else "")
    aliases = "".join(f", {name} is {number}" for name, number in sorted(view.aliases.items()))
    return Sheet(title + aliases, notes=(view.description,) if view.description else ())


def summary(view: VersionSummary) -> Sheet:
    """A version in a list."""
    aliases = f"  ({', '.join(view.aliases)})" if view.aliases else ""
    targets = ", ".join(
        f"{name} {state}{unmeasured(view.measurements.get(name))}" for name, state in view.targets.items()
    )
    return Sheet(f"{view.model}@{view.number}  {view.readiness}{aliases}  {targets}".rstrip())


def alias(view: AliasView) -> Sheet:
    """An alias: the version it is on, who put it there, and the moves before."""
    place = f"is {view.model}@{view.number}" if view.number else "was removed"
    rows = tuple(
        (f"{move.before or '-'} -> {move.after or '-'}", move.at, move.by, move.reason)
        for move in view.history
    )
    last = view.last
    notes = (f"by {last.by}, {last.at}: {last.reason}", *forced(last), *view.notes)
    return Sheet(f"{view.model}@{view.name} {place}", rows, notes)


def forced(move: AliasMove) -> tuple[str, ...]:
    """What a forced move was made past, a line each; nothing of others."""
    refused = (move.forced or {}).get("refused") or ()
    return tuple(f"forced past: {check.get('said')}" for check in refused if isinstance(check, dict))


def resolved(view: Resolved) -> Sheet:
    """What a reference names: the version, and its artifacts pinned by digest."""
    rows = tuple((item.target, item.digest) for item in view.artifacts)
    return Sheet(f"{view.reference} is {view.model}@{view.number}", rows)


def artifact(view: ArtifactRef) -> Sheet:
    """An artifact of a resolved version."""
    return Sheet(f"{view.target} {view.digest}")


def whole_artifact(view: ArtifactView) -> Sheet:
    """Everything known of an artifact, in short: sizes, and how quick it was where it was built."""
    sizes = (
        ("code", f"{view.code_bytes:,} bytes", view.code),
        ("weights", f"{view.weights_bytes:,} bytes", view.weights),
        ("model.pt2", f"{view.single_file_bytes:,} bytes", view.single_file),
    )
    title = f"{view.model}@{view.number} for {view.target}  {view.digest}"
    said = tuple((*row, "") for row in made(view))
    return Sheet(
        title,
        (*sizes, *speeds.rows(view.measurements), *said),
        (
            f"torch {view.torch}, build {view.build}, {view.created_at}",
            *filter(None, (measurement(view.measurement),)),
        ),
    )


def target(view: TargetView) -> Sheet:
    """A target, and whether anybody builds for it now."""
    workers = {0: "no live worker", 1: "1 live worker"}.get(
        view.live_workers, f"{view.live_workers} live workers"
    )
    counts = [
        f"{count} {name}" for name, count in (("queued", view.queued), ("running", view.running)) if count
    ]
    return Sheet(f"{view.name}  {', '.join((workers, *counts))}")


def worker(view: WorkerView) -> Sheet:
    """A worker: what it is and what it has."""
    rows = tuple(
        (item.id, doing(item), f"{item.step or ''} {item.detail or ''}".strip()) for item in view.builds
    )
    title = f"{view.id}  {view.state}  {view.target}  {len(view.builds)} of {view.concurrency}"
    return Sheet(f"{title}  {confined(view.isolation)}  {skew(view)}".rstrip(), rows)


def doing(build: WorkerBuild) -> str:
    """What a worker has, in a list: the version, and whether it is only measured."""
    measured = " (measuring job)" if build.kind == "measure" else ""
    return f"{build.model}@{build.number}{measured}"


def log(view: LogView) -> Sheet:
    """A line of a log."""
    level = "" if view.level in ("info", "output", "compiler") else f"{view.level}: "
    return Sheet(f"{_clock(view.at)} {view.step:<8} {level}{view.text}")


def _clock(at: float) -> str:
    import time

    try:
        return time.strftime("%H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):  # no time that this machine knows
        return "--:--:--"


def _remark(build: BuildView) -> str:
    if build.error:
        return from_dict(build.error).message.partition("\n")[0]
    if build.artifact:
        return f"{build.artifact[:_SHORT]}...{unmeasured(build.measurement.state if build.measurement else None)}"
    running = [step for step in build.steps if step.state == "running"]
    if running and build.state == "running":
        return f"{running[-1].name} {running[-1].detail or ''}".rstrip()
    return circumstances(build)


def _measuring(view: VersionView, wait: str) -> tuple[str, ...]:
    """What waits for the measurements of a version; nothing where none is under way."""
    states = {build.measurement.state for build in view.builds if build.measurement}
    return (f"To wait for its measurements: {wait}",) if states & {"waiting", "measuring"} else ()


def _failure(build: BuildView) -> tuple[str, ...]:
    if not build.error:
        return ()
    error = from_dict(build.error)
    return (f"{build.target}: {error}\n[{error.code}]", f"The whole log: pt2hub logs {build.id}")


def _next(view: VersionView, name: str) -> tuple[str, ...]:
    if any(build.artifact for build in view.builds):
        return (f'To use it: pt2hub.load("{name}")',)
    return ()
