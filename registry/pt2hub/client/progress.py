"""How builds look while they run: a live table where text can move, one line per finished step elsewhere."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol, Self

from pt2hub.client import watching
from pt2hub.rendering.printing import attempts, measurement, measures, standing
from pt2hub.rendering.steps import remark
from pt2hub.wire.problems import from_dict

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

    from pt2hub.client.publishing import BuildEvent
    from pt2hub.wire.shapes import BuildView, StepView

_MARKS = {"done": "[green]✓[/]", "failed": "[red]✗[/]", "running": "[yellow]…[/]"}
_COLOURS = {"succeeded": "green", "failed": "red", "cancelled": "red", "running": "yellow"}
_MOST_ATTEMPTS = 20
_SILENCE_SECONDS = 15.0
"""How long a log stays without a line while something runs."""
_NOBODY = "start one on such a machine with `pt2hub up` or `pt2hub worker`"


class Progress(Protocol):
    """Takes the events of builds while it is entered."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def __call__(self, event: BuildEvent) -> None:
        """Shows an event."""


def progress(*, quiet: bool = False) -> Progress:
    """The display that fits where stderr goes, for the command line.

    Args:
        quiet: Show nothing, for programs.
    """
    if quiet:
        return Silence()
    out = watching.stderr()
    return LiveTable(out) if watching.moves(out) else Lines(out)


def automatic(wanted: bool | None) -> Progress:
    """The display of a call from a program.

    Args:
        wanted: None shows it where somebody watches, in a terminal or a notebook.
    """
    return progress(quiet=not (watching.watched() if wanted is None else wanted))


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __call__(self, event: BuildEvent) -> None:
        """Shows nothing."""


class Lines:
    """One line per finished step and per change of state, and one now and then while nothing ends."""

    def __init__(self, out: Console, *, silence: float = _SILENCE_SECONDS) -> None:
        """Prepares the display.

        Args:
            out: Where the lines go.
            silence: Seconds without a line after which a build that is not over says where it is.
        """
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
        """Prints what ended."""
        build, step = event.build, event.step
        with self._lock:
            self._clock.see(build)
            told = time.monotonic()
            if step is None and self._is_news(build):
                self._print(build, standing(build), _note(build))
            elif step is None:
                told = self._open[build.id][1]
            elif step.state != "running":
                ended = "" if step.state == "done" else f" {_plain(step.state)}"
                self._print(build, step.name + ended, f"{seconds(step.seconds):>9}  {remark(step)}")
            elif build.id in self._open:
                told = self._open[build.id][1]
            self._open[build.id] = build, told

    def _is_news(self, build: BuildView) -> bool:
        """Whether more changed than its place in the queue, of which the reminders say enough."""
        said = build.state, build.attempt, build.note
        news = self._said.get(build.id) != said
        self._said[build.id] = said
        return news

    def _remind(self) -> None:
        while not self._over.wait(self._silence / 5):
            with self._lock:
                for build, told in list(self._open.values()):
                    if time.monotonic() - told >= self._silence and build.state in ("queued", "running"):
                        self._say_where(build)
                        self._open[build.id] = build, time.monotonic()

    def _say_where(self, build: BuildView) -> None:
        running = [step for step in build.steps if step.state == "running"]
        if build.state == "running" and running:
            so_far = seconds(self._clock.of(build, running[-1]))
            self._print(build, running[-1].name, f"{so_far:>9}  so far  {running[-1].detail or ''}")
        else:
            so_far = seconds(self._clock.of(build))
            self._print(build, standing(build), f"{so_far:>9}  so far  {_note(build)}")

    def _print(self, build: BuildView, what: str, detail: str) -> None:
        self._out.print(f"{build.target}  {what:<9} {detail}".rstrip(), markup=False)


class LiveTable:
    """Every step of every build, the running one counting."""

    def __init__(self, out: Console) -> None:
        """Prepares the display.

        Args:
            out: A place where text moves.
        """
        self._builds: dict[str, BuildView] = {}
        self._clock = _Clock()
        self._live = watching.live(out, self._frame)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.__exit__(None, None, None)

    def __call__(self, event: BuildEvent) -> None:
        """Takes the build's new state over."""
        self._clock.see(event.build)
        self._builds[event.build.id] = event.build

    def _frame(self) -> Group:
        from rich.console import Group

        return Group(*(self._table(build) for build in list(self._builds.values())))

    def _table(self, build: BuildView) -> Table:
        from rich.markup import escape
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        table.add_row("", f"[bold]{escape(build.target)}[/]", state_markup(build), escape(_note(build)))
        for step in build.steps:
            taken = seconds(self._clock.of(build, step) if step.seconds is None else step.seconds)
            table.add_row(
                _MARKS.get(step.state, "[yellow]-[/]"), escape(step.name), taken, escape(remark(step))
            )
        return table


class _Clock:
    """When builds and their steps were first seen, by our own clock: the server's may differ."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int, str], float] = {}

    def see(self, build: BuildView) -> None:
        for name in (build.state, *(f"step {step.name}" for step in build.steps)):
            self._begun.setdefault((build.id, build.attempt, name), time.monotonic())

    def of(self, build: BuildView, step: StepView | None = None) -> float:
        name = f"step {step.name}" if step else build.state
        return time.monotonic() - self._begun[build.id, build.attempt, name]


def _note(build: BuildView) -> str:
    why = f"{build.note}; {_NOBODY}" if lonely(build) else build.note
    return "; ".join(part for part in (why, attempts(build)) if part)


def lonely(build: BuildView) -> bool:
    """Whether a build waits for a worker that nobody runs; else a note says until when, or who ended it."""
    return build.state == "queued" and bool(build.note) and not build.not_before


def _plain(state: str) -> str:
    return state.replace("_", " ")


def seconds(value: float | None) -> str:
    """A duration for people."""
    if value is None:
        return ""
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def state_markup(build: BuildView) -> str:
    """A build's state in its colour; a state of a newer server is shown as it is."""
    from rich.markup import escape

    return f"[{_COLOURS.get(build.state, 'default')}]{escape(standing(build))}[/]"


def print_build(out: Console, build: BuildView) -> None:
    """A build with its steps and its error."""
    from rich.markup import escape

    title = f"[bold]{escape(build.target)}[/]  {state_markup(build)}"
    priority = f"  priority {build.priority}" if build.priority else ""
    out.print(f"{title}  build {escape(build.id)}  attempt {build.attempt}{priority}")
    if note := _note(build):
        out.print(f"  {note}", markup=False)
    if len(build.attempts) > _MOST_ATTEMPTS:
        out.print(f"  {len(build.attempts) - _MOST_ATTEMPTS} earlier attempts are not shown; --json has all")
    for item in build.attempts[-_MOST_ATTEMPTS:] if len(build.attempts) > 1 else ():
        line = f"  attempt {item.number:<2} {item.outcome or 'running':<11}  {item.code or '-':<22}  {item.worker}"
        out.print(line, markup=False)
    for step in build.steps:
        line = f"  {_plain(step.state):<9} {step.name:<8} {seconds(step.seconds):>10}  {remark(step)}"
        out.print(line.rstrip(), markup=False)
    if build.artifact:
        out.print(f"  artifact {build.artifact}", markup=False)
    if found := measurement(build.measurement):
        out.print(f"  {found}", markup=False)
    if build.measures:
        out.print(f"  {measures(build)}", markup=False)
    if build.error:
        error = from_dict(build.error)
        out.print(*str(error).splitlines(), f"  [{error.code}]", sep="\n  ", markup=False, style="red")
