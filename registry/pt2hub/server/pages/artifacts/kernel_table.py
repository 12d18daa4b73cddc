"""Table of an artifact's kernels with their times, the largest first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.digests import Digest
from pt2hub.domain.fusion import FusedKernel
from pt2hub.domain.performance.profile_rows import KernelIndex
from pt2hub.domain.performance.profiles import Profile, ProfileRow
from pt2hub.rendering.kernels import format_operations, has_resources, reused_lines
from pt2hub.wire.kernels import KernelsView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHOWN = 20
_GENERATED = re.compile(r"(?:triton|cpp|aoti_torch)_[A-Za-z0-9_]{1,250}")
"""Names in the generated sources: kernels, and operations that the wrapper calls."""
FINDABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,260}")
"""Names that the sources can be searched for."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Time of a kernel in the profiled calls.

    Attributes:
        share: Its share, from 0 to 1: on a GPU of the busy time, on a CPU of the calls' time.
        per_call_us: Time per call in microseconds.
        runs: Runs per call.
    """

    share: float
    per_call_us: float
    runs: float


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel.

    Attributes:
        kernel: Its record; None if it ran and the compiler recorded no such kernel, as for copies.
        lines: Lines of the model with their operations.
        generated: Its name in the generated sources; may be empty.
        time: None if the profiler did not see it or there is no profile.
        is_repeated: Whether its time is part of that of the first row of the same name.
        operator: The operator that launches a kernel without a record; may be empty.
    """

    name: str
    kernel: FusedKernel | None
    lines: tuple[tuple[str, str], ...] = ()
    generated: str = ""
    time: KernelTime | None = None
    is_repeated: bool = False
    operator: str = ""


@dataclass(frozen=True, slots=True)
class KernelTable:
    """The kernels of an artifact, the largest first; without a profile in the order of their first call.

    Attributes:
        view: The record of the compiler; None if there is none.
        profile: Where the times come from; None if there is none.
        recorded: Number of kernels in the record.
        unrecorded: Number of rows of the profile that are no recorded kernel.
        has_resources: Whether registers, shared memory or spills of any kernel are known.
        reused: A line for each part whose kernels another artifact has, with that artifact.
    """

    view: KernelsView | None
    profile: Profile | None
    shown: tuple[KernelRow, ...]
    others: tuple[KernelRow, ...]
    recorded: int
    unrecorded: int
    has_resources: bool
    reused: tuple[tuple[str, Digest | None], ...] = ()

    @property
    def largest(self) -> KernelRow | None:
        """The kernel that takes longest, None if no time is known."""
        return next((row for row in self.shown if row.time), None)

    @property
    def on_device(self) -> bool:
        """Whether the times are of a GPU."""
        return self.profile is not None and self.profile.device == "cuda"

    @property
    def unseen_share(self) -> float | None:
        """Share of the calls' time in which the profiler sees no row: on a CPU, generated kernels run in it."""
        if self.profile is None or self.on_device or not self.profile.call_us:
            return None
        return min(1.0, self.profile.rest_us / self.profile.call_us)

    @property
    def is_mostly_unseen(self) -> bool:
        """Whether kernels that the profiler does not see may take more time than the largest one that it sees."""
        largest = self.largest.time.share if self.largest and self.largest.time else 0.0
        is_untimed = any(row.kernel and not row.time for row in (*self.shown, *self.others))
        return is_untimed and (self.unseen_share or 0.0) > largest


def tabulate(view: KernelsView | None, profile: Profile | None = None) -> KernelTable:
    """Return the table of an artifact's kernels.

    Args:
        view: The kernels that the compiler recorded; None if there is no record.
        profile: The profile of the artifact's calls, which has the kernels' times.
    """
    rows = sorted(_rows(view, profile), key=lambda row: -row.time.per_call_us if row.time else 1.0)
    return KernelTable(
        view,
        profile,
        tuple(rows[:SHOWN]),
        tuple(rows[SHOWN:]),
        len(view.kernels) if view else 0,
        sum(row.kernel is None for row in rows),
        has_resources(view.kernels) if view else False,
        tuple(reused_lines(view)) if view else (),
    )


def _rows(view: KernelsView | None, profile: Profile | None) -> Iterator[KernelRow]:
    """Yield the recorded kernels, then what else ran."""
    ran, unrecorded = _match(view, profile)
    calls = profile.calls if profile else 1
    seen: set[str] = set()
    for kernel, lines in format_operations(view) if view else ():
        name = kernel.name
        time = _sum(ran[name], calls) if name in ran else None
        generated = name if FINDABLE.fullmatch(name) else ""
        # Parts that are compiled apart number their kernels alike, and the profiler sees one name.
        is_repeated = time is not None and name in seen
        yield KernelRow(name, kernel, tuple(lines), generated, time, is_repeated=is_repeated)
        seen.add(name)
    for row in unrecorded:
        time, operator = _sum([row], calls), row.operator or ""
        yield KernelRow(row.name, None, (), generated_name(row), time, operator=operator)


def _match(
    view: KernelsView | None, profile: Profile | None
) -> tuple[dict[str, list[ProfileRow]], list[ProfileRow]]:
    """Return the profile's rows of each recorded kernel, by its name, and the rows of no such kernel."""
    index = KernelIndex(view.kernels if view else ())
    ran: dict[str, list[ProfileRow]] = {}
    unrecorded = []
    for row in profile.rows if profile else ():
        kernel = index.find(row)
        if kernel is None:
            unrecorded.append(row)
        else:
            ran.setdefault(kernel.name, []).append(row)
    return ran, unrecorded


def generated_name(row: ProfileRow) -> str:
    """Return the name in the generated sources of a row whose kernel is not recorded; empty if there is none."""
    return row.name if _GENERATED.fullmatch(row.name) else ""


def _sum(rows: Sequence[ProfileRow], calls: int) -> KernelTime:
    return KernelTime(
        min(1.0, sum(row.share for row in rows)),
        sum(row.total_us for row in rows) / calls,
        sum(row.calls for row in rows) / calls,
    )
