"""Time breakdown of a call: a row with a bar for each operation or kernel, beside torch.compile's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.fusion import group_by_line, sources_of
from pt2hub.domain.performance.profile_rows import KernelIndex, PairedRow, pair_rows
from pt2hub.domain.performance.profiles import Profile, ProfileRow
from pt2hub.rendering.kernels import format_lines
from pt2hub.rendering.profiles import batches_differ, compare_whole_calls
from pt2hub.server.pages.artifacts.kernel_table import FINDABLE, generated_name

if TYPE_CHECKING:
    from pt2hub.wire.kernels import KernelsView

SHOWN = 20
WIDTH = 120.0
"""Length of the longest bar, in SVG units."""


@dataclass(frozen=True, slots=True)
class TimeShare:
    """An operation or a kernel.

    Attributes:
        name: The profiler's name for it.
        row: As the artifact ran it; None if torch.compile alone did.
        other: As torch.compile ran it; None if the artifact alone did.
        each: Runs per call of the artifact.
        per_call: Time per call of the artifact, microseconds.
        width: Length of its bar, of `WIDTH`.
        generated: Its name in the generated sources; may be empty.
        lines: Lines of the model that it computes, with their operations.
    """

    name: str
    row: ProfileRow | None
    other: ProfileRow | None
    each: float
    per_call: float
    width: float
    generated: str
    lines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TimeBreakdown:
    """The time breakdown of a profile.

    Attributes:
        other: The profile of torch.compile, or None.
        rest_share: Share of the time outside all rows on a CPU; None for a GPU, where shares are of its busy time.
        other_rest_share: That of torch.compile.
        whole: Parts of a whole call, with the microseconds of the artifact and of torch.compile.
        batches_differ: Whether both were traced at different batch sizes.
    """

    profile: Profile
    other: Profile | None
    shown: tuple[TimeShare, ...]
    others: tuple[TimeShare, ...]
    rest_share: float | None
    other_rest_share: float | None
    rest_width: float
    whole: tuple[tuple[str, float | None, float | None], ...] = ()
    batches_differ: bool = False

    @property
    def on_device(self) -> bool:
        """Whether the rows are of a GPU."""
        return self.profile.device == "cuda"


def break_down(
    profile: Profile, other: Profile | None = None, kernels: KernelsView | None = None
) -> TimeBreakdown:
    """Return the time breakdown of a profile.

    Args:
        other: The profile of torch.compile.
        kernels: The kernels of the artifact's code, to which rows belong.
    """
    rest = _rest_share(profile)
    longest = max([rest or 0.0, *(min(1.0, row.share) for row in profile.rows)]) or 1.0
    origins = _Origins(kernels)
    rows = tuple(
        _time_share(row, profile.calls, WIDTH / longest, origins) for row in pair_rows(profile, other)
    )
    return TimeBreakdown(
        profile,
        other,
        rows[:SHOWN],
        rows[SHOWN:],
        rest,
        _rest_share(other) if other else None,
        round((rest or 0.0) * WIDTH / longest, 1),
        compare_whole_calls(profile, other),
        batches_differ(profile, other),
    )


def _rest_share(profile: Profile) -> float | None:
    if profile.device == "cuda":
        return None
    return min(1.0, profile.rest_us / profile.call_us) if profile.call_us else 0.0


class _Origins:
    """What rows of the artifact's profile compute."""

    def __init__(self, kernels: KernelsView | None) -> None:
        self._index = KernelIndex(kernels.kernels if kernels else ())
        self._lines = sources_of(kernels.graph) if kernels else {}

    def of(self, row: ProfileRow) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Return a row's name in the generated sources, and its lines of the model with their operations."""
        kernel = self._index.find(row)
        if kernel is None:
            return generated_name(row), ()
        name = kernel.name if FINDABLE.fullmatch(kernel.name) else ""
        return name, tuple(format_lines(group_by_line(kernel, self._lines)))


def _time_share(pair: PairedRow, calls: int, scale: float, origins: _Origins) -> TimeShare:
    row = pair.artifact
    if row is None:
        return TimeShare(pair.name, None, pair.torch_compile, 0.0, 0.0, 0.0, "")
    width = round(min(1.0, row.share) * scale, 1)
    generated, lines = origins.of(row)
    each, per_call = row.calls / calls, row.total_us / calls
    return TimeShare(pair.name, row, pair.torch_compile, each, per_call, width, generated, lines)
