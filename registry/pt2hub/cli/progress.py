"""How builds look while they run: a live table on a terminal, one line per finished step elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, Self

from pt2hub.cli.output import console
from pt2hub.domain.builds import BuildState
from pt2hub.errors import from_dict

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

    from pt2hub.client.publishing import BuildEvent
    from pt2hub.wire.shapes import BuildView, StepView

_MARKS = {"done": "[green]✓[/]", "failed": "[red]✗[/]", "running": "[yellow]…[/]"}


class Progress(Protocol):
    """Takes the events of builds while it is entered."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def __call__(self, event: BuildEvent) -> None:
        """Shows an event."""


def progress(*, quiet: bool) -> Progress:
    """The display that fits where stderr goes.

    Args:
        quiet: Show nothing, for programs.
    """
    if quiet:
        return _Silence()
    out = console(stderr=True)
    return _Live(out) if out.is_terminal else _Lines(out)


class _Silence:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __call__(self, event: BuildEvent) -> None:
        pass


class _Lines(_Silence):
    """One line per finished step and per change of state; nothing moves."""

    def __init__(self, out: Console) -> None:
        self._out = out

    def __call__(self, event: BuildEvent) -> None:
        build, step = event.build, event.step
        if step is None:
            self._print(build, build.state, build.note or "")
        elif step.state != "running":
            failed = " failed" if step.state == "failed" else ""
            self._print(build, step.name + failed, f"{seconds(step.seconds):>9}  {step.detail or ''}")

    def _print(self, build: BuildView, what: str, detail: str) -> None:
        self._out.print(f"{build.target}  {what:<9} {detail}".rstrip(), markup=False)


class _Live(_Silence):
    """Every step of every build, the running one counting."""

    def __init__(self, out: Console) -> None:
        from rich.live import Live

        self._builds: dict[str, BuildView] = {}
        self._begun: dict[tuple[str, int, str], float] = {}
        self._live = Live(console=out, get_renderable=self._render, refresh_per_second=10)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.refresh()
        self._live.stop()

    def __call__(self, event: BuildEvent) -> None:
        build = event.build
        self._builds[build.id] = build
        for step in build.steps:
            self._begun.setdefault((build.id, build.attempt, step.name), time.monotonic())

    def _render(self) -> Group:
        from rich.console import Group

        return Group(*(self._table(build) for build in self._builds.values()))

    def _table(self, build: BuildView) -> Table:
        from rich.markup import escape
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        table.add_row("", f"[bold]{build.target}[/]", state_markup(build.state), escape(build.note or ""))
        for step in build.steps:
            table.add_row(
                _MARKS.get(step.state, " "), step.name, self._time(build, step), escape(step.detail or "")
            )
        return table

    def _time(self, build: BuildView, step: StepView) -> str:
        if step.seconds is not None:
            return seconds(step.seconds)
        # By our own clock: the server's may differ.
        return seconds(time.monotonic() - self._begun[build.id, build.attempt, step.name])


def seconds(value: float | None) -> str:
    """A duration for people."""
    if value is None:
        return ""
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def state_markup(state: str) -> str:
    """A build's state in its colour."""
    colours = {BuildState.SUCCEEDED: "green", BuildState.FAILED: "red", BuildState.RUNNING: "yellow"}
    colour = colours.get(BuildState(state), "default")
    return f"[{colour}]{state}[/]"


def print_build(out: Console, build: BuildView) -> None:
    """A build with its steps and its error."""
    out.print(
        f"[bold]{build.target}[/]  {state_markup(build.state)}  build {build.id}  attempt {build.attempt}"
    )
    if build.note:
        out.print(f"  {build.note}", markup=False)
    for step in build.steps:
        line = f"  {step.state:<8} {step.name:<8} {seconds(step.seconds):>10}  {step.detail or ''}"
        out.print(line.rstrip(), markup=False)
    if build.artifact:
        out.print(f"  artifact {build.artifact}", markup=False)
    if build.error:
        error = from_dict(build.error)
        out.print(*str(error).splitlines(), f"  [{error.code}]", sep="\n  ", markup=False, style="red")
