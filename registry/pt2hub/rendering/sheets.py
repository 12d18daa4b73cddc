"""Sheets of API responses for Python prompts and notebooks: title, table and next steps.

Names, log lines and errors are untrusted and may contain markup or escape sequences, which are removed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pt2hub.domain.builds import BuildKind, name_kind
from pt2hub.domain.publishing.compile_modes import DEFAULT_MODE, MODES, ModeSettings
from pt2hub.errors import INVISIBLE_CHARACTERS
from pt2hub.renderable import Sheet
from pt2hub.rendering import speeds
from pt2hub.rendering.profiles import gap_causes
from pt2hub.rendering.promotions import yank_text
from pt2hub.rendering.quantities import (
    format_age,
    format_bounded,
    format_bytes,
    format_duration,
    format_share,
    quantity,
)
from pt2hub.rendering.regions import region_lines
from pt2hub.rendering.states import format_state
from pt2hub.rendering.steps import remark
from pt2hub.rendering.waits import format_note
from pt2hub.wire.problems import from_dict
from pt2hub.wire.responses import MAX_COUNTED_VERSIONS

if TYPE_CHECKING:
    from pt2hub.wire.artifacts import ArtifactView
    from pt2hub.wire.resolution import ArtifactRef, ResolvedReference
    from pt2hub.wire.responses import (
        AliasMove,
        AliasMoves,
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
"""Length of a shortened digest: `sha256:` and 12 digits."""
_HUNDRED = 100
_SPENT = 3
"""Number of operations and kernels listed for a call."""
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_RIGHT_SECONDS = 2.0
"""Minimum clock skew that is shown, in seconds."""
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


def state_text(build: BuildView) -> str:
    """Format a build's state with its position in the queue: `queued 3rd`."""
    if build.state == "queued" and build.position:
        return f"queued {ordinal(build.position)}"
    return build.state


def build_title(build: BuildView) -> str:
    """Return a build's title, as the subject of a sentence."""
    return (
        f"{name_kind(build.kind).capitalize()} {build.id} of {build.model}@{build.number} for {build.target}"
    )


def measures(build: BuildView) -> str:
    """Return what a measuring job times, and its baseline."""
    return f"measures {build.measures}" + (f", baseline {build.baseline}" if build.baseline else "")


def measurement_state(state: str) -> str:
    """Format a measurement state: `waiting to be measured`, `measuring`."""
    return _MEASUREMENTS.get(state, format_state(state))


def measurement(status: MeasurementStatus | None) -> str:
    """Return a note on an artifact's measurement and its job; empty if it is measured."""
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


def measurement_suffix(state: str | None) -> str:
    """Return a measurement state after a comma; empty if it is measured."""
    return "" if state in (None, "measured") else f", {measurement_state(state)}"


def ordinal(number: int) -> str:
    """Format an ordinal: 1st, 2nd, 11th, 23rd."""
    teens = number % _HUNDRED // 10 == 1
    return f"{number}{'th' if teens else _ENDINGS.get(number % 10, 'th')}"


def circumstances(build: BuildView) -> str:
    """Return why a build waits or who ended it, its current or next attempt, and how the previous one ended."""
    return "; ".join(part for part in (format_note(build), attempts(build)) if part)


def attempts(build: BuildView) -> str:
    """Return an open build's current or next attempt and how the previous one ended; empty for the first."""
    if build.state not in ("queued", "running"):
        return ""
    number = build.attempt + (build.state == "queued")
    if number == 1:
        return ""
    before = next((item for item in reversed(build.attempts) if item.outcome and item.number < number), None)
    return f"attempt {number}, {_outcome_text(before)}" if before else f"attempt {number}"


def _outcome_text(attempt: AttemptView) -> str:
    words = _OUTCOMES.get(attempt.outcome or "", f"ended: {attempt.outcome}")
    return f"attempt {attempt.number} {words}" + (f" ({attempt.code})" if attempt.code else "")


def isolation_text(isolation: str) -> str:
    """Format a worker's isolation."""
    return _CONFINED.get(isolation, isolation)


def provenance_rows(view: ArtifactView) -> tuple[tuple[str, str], ...]:
    """Return facts of an artifact's build: where its weights are, its regions and its isolation."""
    form = "baked into the code" if view.weights_form == "baked" else "split from the code"
    isolation = view.provenance.get("isolation")
    spent = _spent_fields(view)
    mode = compile_text(view)
    compiled = (("compiled", mode),) if mode else ()
    return (
        ("weights", form),
        *compiled,
        *(("" if at else "regions", line) for at, line in enumerate(region_lines(view.regions))),
        ("isolated", isolation_text(isolation) if isolation else "unknown"),
        *spent,
    )


def compile_text(view: ArtifactView) -> str:
    """Return an artifact's compile mode, options and what the mode means for calls; empty if there are none."""
    found = view.provenance.get("compile")
    if not isinstance(found, dict):
        return ""
    mode, options = str(found.get("mode") or DEFAULT_MODE), found.get("options")
    settings = MODES.get(mode, ModeSettings())
    given = options.items() if isinstance(options, dict) else ()
    parts = [
        *([f"mode {mode}"] if mode != DEFAULT_MODE else []),
        *(f"{name}={json.dumps(value)}" for name, value in given),
        *(["calls CUDA graphs by default"] if settings.is_graphed and view.device == "cuda" else []),
    ]
    return ", ".join(parts).translate(INVISIBLE_CHARACTERS)


def _spent_fields(view: ArtifactView) -> tuple[tuple[str, str], ...]:
    """Return the time breakdown of a call; on a GPU its kernels and its idle time."""
    found, profile = _spent(view), view.profile
    if not found or profile is None:
        return ()
    if profile.device != "cuda":
        return (("time in", found),)
    own, idle, added = profile.plain_us, profile.idle_us, profile.profiler_us
    rows = [("GPU time in", found)]
    if own is not None and idle is not None and added is not None:
        text = f"{quantity(idle, 'us')} of a call of {quantity(own, 'us')}; the profiler adds {quantity(added, 'us')}"
        rows.append(("GPU idle", text))
    return (*rows, *((("GPU gaps", causes),) if (causes := gap_causes(profile)) else ()))


def _spent(view: ArtifactView) -> str:
    """Return the operations that take most of a call's time; empty without a profile."""
    if view.profile is None:
        return ""
    first = [f"{row.name} {format_share(row.share, digits=2)}" for row in view.profile.rows[:_SPENT]]
    others = len(view.profile.rows) + view.profile.left_out - len(first)
    return ", ".join([*first, *([f"{others} more"] if others > 0 else [])]).translate(INVISIBLE_CHARACTERS)


def skew(view: WorkerView) -> str:
    """Format a worker's clock skew; empty if it is negligible."""
    if abs(view.clock_skew) <= _RIGHT_SECONDS:
        return ""
    return f"clock {format_age(abs(view.clock_skew))} {'ahead' if view.clock_skew > 0 else 'behind'}"


def version(
    view: VersionView,
    *,
    wait: str = "Client().follow(version), or pt2hub publish SPEC --wait.",
    measured: str = 'Client().follow(version, until="measured"), or pt2hub publish SPEC --wait measured.',
) -> Sheet:
    """Return a version: the state of each target, and what to do next."""
    name = f"{view.model}@{view.number}"
    rows = tuple((build.target, state_text(build), _remark(build)) for build in view.builds)
    failed = [note for build in view.builds for note in _failure(build)]
    if view.readiness == "pending":
        following: tuple[str, ...] = (f"To wait for it: {wait}",)
    else:
        following = (*_next(view, name), *_measuring(view, measured))
    yanked = (yank_text(view.yanked),) if view.yanked else ()
    return Sheet(f"{name}  {view.readiness}", rows, (*yanked, *failed, *view.notes, *following))


def build(view: BuildView) -> Sheet:
    """Return a build: its steps, and its result or error."""
    steps = tuple(
        (
            step.state,
            step.name,
            format_duration(step.seconds) if step.seconds is not None else "",
            remark(step),
        )
        for step in view.steps
    )
    title = f"{view.id}  {view.model}@{view.number} for {view.target}  {state_text(view)}"
    title += f": {_remark(view)}" if view.error else ""
    result = [f"artifact {view.artifact}"] if view.artifact else []
    result += [measures(view)] if view.measures else []
    result += [f"rebuilds {view.rebuilds}, whose files are damaged"] if view.rebuilds else []
    result += [found] if (found := measurement(view.measurement)) else []
    notes = (circumstances(view),) if circumstances(view) else ()
    return Sheet(title, steps, (*notes, *result, *_failure(view)))


def model(view: ModelView) -> Sheet:
    """Return a model: its number of versions and its aliases."""
    count = (
        f"{format_bounded(view.versions, MAX_COUNTED_VERSIONS)} version{'' if view.versions == 1 else 's'}"
    )
    ready = f"newest ready {view.newest_ready}" if view.newest_ready else "none ready"
    title = f"{view.name}  {count}" + (f", {ready}" if view.versions else "")
    aliases = "".join(
        f", {name} is {number}{' (damaged)' * (name in view.damaged)}"
        for name, number in sorted(view.aliases.items())
    )
    return Sheet(title + aliases, notes=(view.description,) if view.description else ())


def summary(view: VersionSummary) -> Sheet:
    """Return a version in a list."""
    aliases = f"  ({', '.join(view.aliases)})" if view.aliases else ""
    targets = ", ".join(
        f"{name} {state}{measurement_suffix(view.measurements.get(name))}"
        for name, state in view.targets.items()
    )
    state = f"{view.readiness}{'  yanked' * bool(view.yanked)}{'  damaged' * bool(view.damaged)}"
    return Sheet(f"{view.model}@{view.number}  {state}{aliases}  {targets}".rstrip())


def alias(view: AliasView) -> Sheet:
    """Return an alias: its version, who moved it, and earlier moves."""
    place = f"is {view.model}@{view.number}" if view.number else "was removed"
    rows = tuple(map(_move_row, view.history))
    last = view.last
    notes = (f"by {last.by}, {last.at}: {last.reason}", *forced_move_lines(last), *view.notes)
    return Sheet(f"{view.model}@{view.name} {place}", rows, notes)


def alias_moves(view: AliasMoves) -> Sheet:
    """Return where an alias is, and the moves that somebody waited for."""
    place = f"is {view.model}@{view.number}" if view.number else "does not exist"
    return Sheet(f"{view.model}@{view.name} {place}", tuple(map(_move_row, view.moves)))


def _move_row(move: AliasMove) -> tuple[str, ...]:
    return f"{move.before or '-'} -> {move.after or '-'}", move.at, move.by, move.reason


def forced_move_lines(move: AliasMove) -> tuple[str, ...]:
    """Return the failed checks that a forced move overrode, one line each."""
    refused = (move.forced or {}).get("refused") or ()
    return tuple(f"forced past: {check.get('message')}" for check in refused if isinstance(check, dict))


def reference_sheet(view: ResolvedReference) -> Sheet:
    """Return a resolved reference: the version and its artifacts, pinned by digest."""
    rows = tuple((item.target, item.digest) for item in view.artifacts)
    notes = (yank_text(view.yanked),) if view.yanked else ()
    return Sheet(f"{view.reference} is {view.model}@{view.number}", rows, notes)


def artifact(view: ArtifactRef) -> Sheet:
    """Return an artifact of a resolved version."""
    return Sheet(f"{view.target} {view.digest}")


def whole_artifact(view: ArtifactView) -> Sheet:
    """Return a summary of an artifact: sizes, and its speed on the machine that built it."""
    sizes = (
        ("code", format_bytes(view.code_bytes), view.code),
        ("weights", format_bytes(view.weights_bytes), view.weights),
        ("model.pt2", format_bytes(view.single_file_bytes), view.single_file),
    )
    title = f"{view.model}@{view.number} for {view.target}  {view.digest}"
    said = tuple((*row, "") for row in provenance_rows(view))
    return Sheet(
        title,
        (*sizes, *speeds.rows(view.measurements), *said),
        (
            f"torch {view.torch}, build {view.build}, {view.created_at}",
            *filter(None, (measurement(view.measurement),)),
        ),
    )


def target(view: TargetView) -> Sheet:
    """Return a target and its number of live workers."""
    workers = {0: "no live worker", 1: "1 live worker"}.get(
        view.live_workers, f"{view.live_workers} live workers"
    )
    counts = [
        f"{count} {name}" for name, count in (("queued", view.queued), ("running", view.running)) if count
    ]
    return Sheet(f"{view.name}  {', '.join((workers, *counts))}")


def worker(view: WorkerView) -> Sheet:
    """Return a worker: its machine and its current builds."""
    rows = tuple(
        (item.id, doing(item), f"{item.step or ''} {item.detail or ''}".strip()) for item in view.builds
    )
    title = f"{view.id}  {view.state}  {view.target}  {len(view.builds)} of {view.concurrency}"
    return Sheet(f"{title}  {isolation_text(view.isolation)}  {skew(view)}".rstrip(), rows)


def doing(build: WorkerBuild) -> str:
    """Return a worker's build for a list: the version, and the kind of a job that is no build."""
    job = f" ({name_kind(build.kind)})" if build.kind != BuildKind.BUILD else ""
    return f"{build.model}@{build.number}{job}"


def log(view: LogView) -> Sheet:
    """Return a line of a log."""
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
        return f"{build.artifact[:_SHORT]}...{measurement_suffix(build.measurement.state if build.measurement else None)}"
    running = [step for step in build.steps if step.state == "running"]
    if running and build.state == "running":
        return f"{running[-1].name} {running[-1].detail or ''}".rstrip()
    return circumstances(build)


def _measuring(view: VersionView, wait: str) -> tuple[str, ...]:
    """Return how to wait for a version's measurements; empty if none are pending."""
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
