"""The publish gate's process, and what its end means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.errors import ArtifactCrashed, ArtifactHung, Pt2hubError, WorkerLost
from pt2hub_workers.children import ChildDied, ChildHung

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub_workers.halting import Halt
    from pt2hub_workers.toolchains import Toolchain


def run_gate(
    job: dict[str, Any],
    toolchain: Toolchain,
    *,
    seconds: float,
    halt: Halt,
    on_event: Callable[[dict[str, Any]], Any],
    on_output: Callable[[str], None],
) -> dict[str, Any]:
    """Runs the publish gate in a fresh process.

    Args:
        job: See `inside.gate.check`.
        toolchain: Runs it.
        seconds: Its time limit.
        halt: Stops it.
        on_event: Called with the gate's progress.
        on_output: Called with each line it prints.

    Returns:
        The report.

    Raises:
        ArtifactCrashed: The process ended by itself, as by a signal that a fault raises.
        ArtifactHung: It did not answer in time.
        WorkerLost: It was killed from outside.
        Halted: It was told to stop.
        Pt2hubError: What the gate found.
    """
    child = toolchain.take("gate")
    try:
        report: dict[str, Any] = child.work(
            job, on_event=on_event, on_output=on_output, seconds=seconds, halt=halt
        )
    except ChildHung as hung:
        raise ArtifactHung(
            f"the artifact did not answer within {hung.seconds:g} s during: {hung.doing}",
            where="verify",
            hint="It was not published. The build's log has its last output.",
        ) from hung
    except ChildDied as died:
        raise _gate_died(died) from died
    return report


def _gate_died(died: ChildDied) -> Pt2hubError:
    if died.from_outside:
        return lost(died, "the gate's process")
    return ArtifactCrashed(
        f"the artifact's process {died.how} during: {died.doing}",
        where="verify",
        hint="It was not published. A compiler that links libstdc++ statically is one known cause: "
        "set CXX to the system's g++.",
        context={"signal": died.signal_name, "doing": died.doing},
    )


def lost(died: ChildDied, what: str) -> WorkerLost:
    """The error of a child that someone killed.

    Args:
        died: How it ended.
        what: What it was, as the subject of the sentence.
    """
    return WorkerLost(
        f"{what} was killed from outside by {died.signal_name} during {died.doing}",
        where=died.doing,
        hint="Out of memory looks like this: see the kernel's log, or run fewer builds at a time there.",
        context={"signal": died.signal_name},
    )
