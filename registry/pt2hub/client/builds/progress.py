"""Build progress: a live table on a terminal or in a notebook, one line per finished step elsewhere."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol, Self

from pt2hub.client import output
from pt2hub.rendering.quantities import format_duration
from pt2hub.rendering.sheets import attempts, measurement, measures, state_text
from pt2hub.rendering.states import choose_colour, format_state
from pt2hub.rendering.steps import remark
from pt2hub.rendering.waits import format_note, is_lonely
from pt2hub.wire.problems import from_dict

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

    from pt2hub.client.builds.events import BuildEvent
    from pt2hub.wire.responses import BuildView, StepView

_MARKS = {"done": ("✓", "green"), "failed": ("✗", "red"), "running": ("…", "yellow")}
_MAX_ATTEMPTS_SHOWN = 20
_REMINDER_INTERVAL_S = 15.0
"""Longest time without a line while a build runs."""
_START_WORKER = "to start one on a matching machine: pt2hub up, or pt2hub worker"


class Progress(Protocol):
    """A display of build events while it is entered."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def __call__(self, event: BuildEvent) -> None:
        """Show an event."""


def progress(*, quiet: bool = False) -> Progress:
    """Return the display that fits stderr, for the command line."""
    if quiet:
        return NoProgress()
    out = output.stderr()
    return LiveTable(out) if output.moves(out) else Lines(out)


def automatic(wanted: bool | None) -> Progress:
    """Return the display for a call from Python.

    Args:
        wanted: Whether to show it; None for only on a terminal or in a notebook.
    """
    return progress(quiet=not (output.is_watched() if wanted is None else wanted))


class NoProgress:
    """A display that shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __call__(self, event: BuildEvent) -> None:
        """Show nothing."""


class Lines:
    """One line per finished step and state change, with reminders in between.

    Args:
        out: Where the lines go.
        silence: Seconds without a line before a reminder of a build's state.
    """

    def __init__(self, out: Console, *, silence: float = _REMINDER_INTERVAL_S) -> None:
        self._out = out
        self._silence = silence
        self._open: dict[str, tuple[BuildView, float]] = {}
        self._said: dict[str, tuple[str, int, str | None]] = {}
        self._clock = _Clock()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._remind, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def __call__(self, event: BuildEvent) -> None:
        """Print a finished step or a state change."""
        build, step = event.build, event.step
        with self._lock:
            self._clock.see(build)
            printed = time.monotonic()
            if step is None and self._is_news(build):
                self._print(build, state_text(build), _note(build))
            elif step is None:
                printed = self._open[build.id][1]
            elif step.state != "running":
                ended = "" if step.state == "done" else f" {format_state(step.state)}"
                self._print(build, step.name + ended, f"{_taken(step.seconds):>11}  {remark(step)}")
            elif build.id in self._open:
                printed = self._open[build.id][1]
            self._open[build.id] = build, printed

    def _is_news(self, build: BuildView) -> bool:
        """Return whether more changed than the position in the queue, which reminders show."""
        status = build.state, build.attempt, format_note(build)
        changed = self._said.get(build.id) != status
        self._said[build.id] = status
        return changed

    def _remind(self) -> None:
        while not self._over.wait(self._silence / 5):
            with self._lock:
                for build, printed in list(self._open.values()):
                    if time.monotonic() - printed >= self._silence and build.state in ("queued", "running"):
                        self._say_where(build)
                        self._open[build.id] = build, time.monotonic()

    def _say_where(self, build: BuildView) -> None:
        running = [step for step in build.steps if step.state == "running"]
        if build.state == "running" and running:
            so_far = format_duration(self._clock.of(build, running[-1]))
            self._print(build, running[-1].name, f"{so_far:>11}  so far  {running[-1].detail or ''}")
        else:
            so_far = format_duration(self._clock.of(build))
            self._print(build, state_text(build), f"{so_far:>11}  so far  {_note(build)}")

    def _print(self, build: BuildView, what: str, detail: str) -> None:
        self._out.print(f"{build.target}  {what:<9} {detail}".rstrip())


class LiveTable:
    """A table of all steps of all builds, with running times.

    Args:
        out: A console that can redraw text.
    """

    def __init__(self, out: Console) -> None:
        self._builds: dict[str, BuildView] = {}
        self._clock = _Clock()
        self._live = output.live(out, self._frame)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.__exit__(None, None, None)

    def __call__(self, event: BuildEvent) -> None:
        """Show the build's new state."""
        self._clock.see(event.build)
        self._builds[event.build.id] = event.build

    def _frame(self) -> Group:
        from rich.console import Group

        return Group(*(self._table(build) for build in list(self._builds.values())))

    def _table(self, build: BuildView) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        table.add_row("", Text(build.target, "bold"), _state(build), _note(build))
        for step in build.steps:
            taken = _taken(self._clock.of(build, step) if step.seconds is None else step.seconds)
            table.add_row(Text(*_MARKS.get(step.state, ("-", "yellow"))), step.name, taken, remark(step))
        return table


class _Clock:
    """Times since builds and steps were first seen, by the local clock, which may differ from the server's."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int, str], float] = {}

    def see(self, build: BuildView) -> None:
        for name in (build.state, *(f"step {step.name}" for step in build.steps)):
            self._begun.setdefault((build.id, build.attempt, name), time.monotonic())

    def of(self, build: BuildView, step: StepView | None = None) -> float:
        name = f"step {step.name}" if step else build.state
        return time.monotonic() - self._begun[build.id, build.attempt, name]


def _note(build: BuildView) -> str:
    why = f"{format_note(build)}; {_START_WORKER}" if is_lonely(build) else format_note(build)
    return "; ".join(part for part in (why, attempts(build)) if part)


def _taken(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)


def _state(build: BuildView) -> Text:
    """Return a build's state in its colour."""
    from rich.text import Text

    return Text(state_text(build), choose_colour(build.state))


def print_build(out: Console, build: BuildView) -> None:
    """Print a build with its steps and its error."""
    from rich.text import Text

    priority = f"  priority {build.priority}" if build.priority else ""
    rest = f"  build {build.id}  attempt {build.attempt}{priority}"
    out.print(Text.assemble((build.target, "bold"), "  ", _state(build), rest))
    if note := _note(build):
        out.print(f"  {note}")
    if len(build.attempts) > _MAX_ATTEMPTS_SHOWN:
        out.print(
            f"  {len(build.attempts) - _MAX_ATTEMPTS_SHOWN} earlier attempts are hidden. To show them: --json"
        )
    for item in build.attempts[-_MAX_ATTEMPTS_SHOWN:] if len(build.attempts) > 1 else ():
        line = f"  attempt {item.number:<2} {item.outcome or 'running':<11}  {item.code or '-':<22}  {item.worker}"
        out.print(line)
    for step in build.steps:
        line = f"  {format_state(step.state):<9} {step.name:<8} {_taken(step.seconds):>11}  {remark(step)}"
        out.print(line.rstrip())
    if build.artifact:
        out.print(f"  artifact {build.artifact}")
    if found := measurement(build.measurement):
        out.print(f"  {found}")
    if build.measures:
        out.print(f"  {measures(build)}")
    if build.error:
        error = from_dict(build.error)
        out.print(*str(error).splitlines(), f"  [{error.code}]", sep="\n  ", style="red")
