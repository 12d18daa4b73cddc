"""The judge of the publish gate: reads what the artifact computed and what it should have, and decides.

Neither the model's code nor the artifact's ever runs in its process, and torch is not loaded: numpy and two files,
of which one was written by code that nobody trusts.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors

from pt2hub.domain.codec import decode
from pt2hub.errors import ArtifactWrong, BadResponse, Detail, NoPower, OutputRefused, ToleranceMissed
from pt2hub_workers.inside.allowances import EAGER_FACTOR, Allowance
from pt2hub_workers.inside.trial import (
    EVERYTHING,
    EXAMPLE,
    EXPECTED,
    FOUND,
    Run,
    is_floating,
    plan,
    stored_as,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pt2hub_workers.inside.channel import Channel

NEAR_MISS = 4.0
"""An error within this many times what is allowed counts as a missed tolerance, beyond it as a wrong artifact."""
MAX_THREADS = 4096
_WORST = 20
"""Comparisons that an error lists."""


@dataclass(frozen=True, slots=True)
class Responded:
    """What passes under one group of perturbed constants.

    Attributes:
        name: The group.
        allowances: Per output.
    """

    name: str
    allowances: list[Allowance]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the build wrote for the judge, beside the expected outputs.

    Attributes:
        points: Labels of the points.
        base: What passes at the golden weights, per output, by point.
        groups: What passes under perturbed constants.
        dtypes: Dtypes of the model's own outputs, by point.
        again: Whether the model's second call on the example gives something else than its first, by its buffers.
    """

    points: list[str]
    base: dict[str, list[Allowance]]
    groups: list[Responded]
    dtypes: dict[str, list[str]]
    again: bool = False

    def __post_init__(self) -> None:
        """Refuses what no comparison could be made with.

        Raises:
            BadResponse: It has a number that is none, or lacks a point's allowances or dtypes.
        """
        for label in {EXAMPLE, *self.points}:
            if len(self.base.get(label, ())) != len(self.dtypes.get(label, ())) or label not in self.base:
                raise BadResponse(f"it says nothing, or too little, of {label}")
        if any(len(group.allowances) != len(self.base[EXAMPLE]) for group in self.groups):
            raise BadResponse("a group of constants has another number of outputs")
        allowances = [*self.base.values(), *(group.allowances for group in self.groups)]
        numbers = [(a.signal, a.eager_error, a.allowed) for part in allowances for a in part]
        if not all(math.isfinite(number) for part in numbers for number in part):
            raise BadResponse("an allowance is not finite")

    def of(self, run: Run) -> tuple[str, list[Allowance], list[str]]:
        """Where a run's expected outputs stand, what passes, and their dtypes."""
        if run.call > 1 and self.again:
            return "again", self.base[run.point], self.dtypes[run.point]
        if run.group is None:
            return f"golden/{run.point}", self.base[run.point], self.dtypes[run.point]
        return f"group/{run.number}", self.groups[run.number].allowances, self.dtypes[run.point]


def judge(job: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Decides about an artifact.

    Args:
        job: `expected` and `found` (paths), `runs` (what the gate's process returned), `device`, and `accept`
            (verdicts that the spec allows).
        channel: For progress.

    Returns:
        The report: verdict, every comparison, what had no power.

    Raises:
        ArtifactWrong: A comparison is far off, or an output is missing, misshapen or of another kind.
        ToleranceMissed: A comparison is just off.
        NoPower: The gate could not have failed, and the spec does not accept that.
        OutputRefused: What the build's process wrote cannot be compared with.
    """
    expected, tensors = _read_expected(Path(job["expected"]))
    powerless = _powerless(expected)
    if powerless and "no_power" not in job["accept"]:
        raise NoPower(
            "the gate cannot tell a right artifact from a wrong one on this model",
            where="checks",
            details=tuple(powerless),
            hint="Give weights at which the output depends on inputs and layers (a trained file instead of a "
            "random initialisation), or write checks: {accept: [no_power]} to publish unproven.",
        )
    channel.send("progress", text="compare")
    runs = _runs(expected, job["runs"], job["device"])
    found = _Found.open(Path(job["found"]), runs, expected)
    rows = [
        row for number, run in enumerate(runs) for row in _compared(number, run, expected, tensors, found)
    ]
    _decide(rows)
    repeated = None if expected.again else _repeated(runs, expected, found, job["accept"])
    return {
        "verdict": "no_power" if powerless else "passed",
        "comparisons": rows,
        "repeated": repeated,
        "no_power": [item.path + ": " + item.message for item in powerless],
        "relative_error": max(
            (r["error"] / r["signal"] for r in rows if r["signal"] and not r["group"]), default=None
        ),
    }


class _Tensors:
    """The tensors of a file, read one at a time."""

    def __init__(self, path: Path) -> None:
        self._file = safetensors.safe_open(path, framework="numpy")
        self.names = frozenset(self._file.keys())
        self.metadata: dict[str, str] = self._file.metadata() or {}

    def get(self, name: str) -> NDArray[Any]:
        tensor: NDArray[Any] = self._file.get_tensor(name)
        return tensor


class _Found:
    """What the artifact computed, as far as it is what was asked for."""

    def __init__(self, tensors: _Tensors, dtypes: dict[str, str]) -> None:
        self._tensors = tensors
        self._dtypes = dtypes

    @classmethod
    def open(cls, path: Path, runs: list[Run], expected: Expected) -> _Found:
        try:
            tensors = _Tensors(path)
            dtypes = decode(dict[str, str], json.loads(tensors.metadata[FOUND]))
        except (
            safetensors.SafetensorError,
            OSError,
            ValueError,
            KeyError,
            RecursionError,
            BadResponse,
        ) as error:
            raise _wrong(f"its outputs cannot be read: {error}", "verify") from error
        counts = Counter(name.partition("/")[0] for name in tensors.names)
        wanted = {str(number): len(expected.of(run)[1]) for number, run in enumerate(runs)}
        for number, run in enumerate(runs):
            if counts[str(number)] != wanted[str(number)]:
                text = f"{counts[str(number)]} outputs at {run.point}, the model has {wanted[str(number)]}"
                raise _wrong(text, run.point)
        if extra := tensors.names - {f"{n}/{index}" for n, count in wanted.items() for index in range(count)}:
            raise _wrong(f"outputs that nobody asked for: {', '.join(sorted(extra)[:5])[:200]}", "verify")
        return cls(tensors, dtypes)

    def plain(self, name: str) -> NDArray[Any]:
        """An output that `get` has looked at."""
        return self._tensors.get(name)

    def get(self, name: str, dtype: str, shape: tuple[int, ...], label: str) -> NDArray[Any]:
        """An output, if it has the dtype and shape that it must have."""
        try:
            tensor = self._tensors.get(name)
        except (safetensors.SafetensorError, TypeError, AttributeError, ValueError) as error:
            raise _wrong(f"output of a dtype that numpy lacks instead of {dtype}: {error}", label) from error
        if tensor.shape != shape:
            raise _wrong(f"output of shape {list(tensor.shape)} instead of {list(shape)}", label)
        told = self._dtypes.get(name, str(tensor.dtype))
        if told != dtype or str(tensor.dtype) != stored_as(dtype):
            raise _wrong(f"output of dtype {told[:40]} instead of {dtype}", label)
        return tensor


def _read_expected(path: Path) -> tuple[Expected, _Tensors]:
    try:
        tensors = _Tensors(path)
        return decode(Expected, json.loads(tensors.metadata[EXPECTED])), tensors
    except (safetensors.SafetensorError, OSError, ValueError, KeyError, RecursionError, BadResponse) as error:
        raise _unusable(error) from error


def _runs(expected: Expected, told: Any, device: str) -> list[Run]:  # noqa: ANN401  # whatever the gate's process sent
    """The runs that must have been made, if they are those of which the gate's process tells."""
    threads = told.get("threads") if isinstance(told, dict) else None
    if type(threads) is not int or not 1 <= threads <= MAX_THREADS:
        raise _wrong("its process does not say on how many threads it ran", "verify")
    runs = plan(expected.points, [group.name for group in expected.groups], threads=threads, device=device)
    if told.get("runs") != [asdict(run) for run in runs]:
        raise _wrong(f"its process did not make the {len(runs)} runs that it was asked for", "verify")
    return runs


def _compared(
    number: int, run: Run, expected: Expected, tensors: _Tensors, found: _Found
) -> list[dict[str, Any]]:
    place, allowances, dtypes = expected.of(run)
    rows = []
    for index, (allowance, dtype) in enumerate(zip(allowances, dtypes, strict=True)):
        try:
            right = tensors.get(f"{place}/{index}")
        except (safetensors.SafetensorError, TypeError, AttributeError, ValueError) as error:
            raise _unusable(error) from error
        if is_floating(dtype) != (right.dtype.kind == "f"):
            raise _unusable(ValueError(f"{right.dtype} where {dtype} belongs"))
        left = found.get(f"{number}/{index}", dtype, right.shape, run.point)
        gap = _difference(left, right, floating=is_floating(dtype))
        where = {"point": run.point, "threads": run.threads, "group": run.group}
        rows.append({**where, "error": gap, **allowance.as_dict()})
    return rows


def _repeated(runs: list[Run], expected: Expected, found: _Found, accept: list[str]) -> float:
    """By how much two calls of the artifact on the same inputs differ, of the most that may; 0 where they are equal.

    Raises:
        ArtifactWrong: They differ by more than rounding explains, and the spec accepts no random operators.
    """
    second = next(number for number, run in enumerate(runs) if run.call > 1)
    point = runs[second].point
    first = next(number for number, run in enumerate(runs) if run == Run(point, runs[second].threads))
    _, allowances, dtypes = expected.of(runs[second])
    worst = 0.0
    for allowance, dtype in zip(allowances, dtypes, strict=True):
        name = f"{allowance.output}"
        one, other = (found.plain(f"{number}/{name}") for number in (first, second))
        gap = _difference(one, other, floating=is_floating(dtype))
        within = EAGER_FACTOR * allowance.eager_error
        if any(item.startswith("random:") for item in accept):
            within = max(within, allowance.allowed)
        if not gap <= within:
            raise _wrong(
                f"output {name} differs by {gap:.3g} between two calls on the same inputs; rounding explains {within:.3g}",
                point,
            )
        worst = max(worst, gap / within if gap else 0.0)
    return worst


def _difference(left: NDArray[Any], right: NDArray[Any], *, floating: bool) -> float:
    """As `comparing.difference`, which the allowances were found with."""
    if left.size == 0:
        return 0.0
    if not floating:
        return float(np.mean(left != right))
    with np.errstate(all="ignore"):  # what is not finite is the result
        gap = np.subtract(np.atleast_1d(left), right, dtype=np.float64)  # of two scalars it would be none
    np.abs(gap, out=gap)
    return float(gap.max()) if bool(np.isfinite(gap).all()) else math.inf


def _powerless(expected: Expected) -> list[Detail]:
    base = expected.base[EXAMPLE]
    lively = any(item.powerful for item in base)
    found = [
        Detail(
            f"outputs[{item.output}]",
            f"moves by {item.signal:.3g} when the inputs change, and differences up to {item.allowed:.3g} would pass",
        )
        for item in base
        # A constant beside lively outputs (anchors, a mask) is compared exactly and needs no power of its own.
        if not item.powerful and not (lively and item.signal == item.allowed == 0)
    ]
    for group in expected.groups:
        if not any(item.powerful for item in group.allowances):
            largest = max((item.signal for item in group.allowances), default=0.0)
            text = f"moves no output by more than {largest:.3g} when perturbed"
            found.append(Detail(f"constants {group.name}", text))
    return found


def _decide(rows: list[dict[str, Any]]) -> None:
    missed = [row for row in rows if not row["error"] <= row["allowed"]]
    if not missed:
        return
    worst = max(missed, key=_times)
    if worst["group"] == EVERYTHING:  # one group says more than all of them
        worst = max(
            (row for row in missed if row["group"] not in (None, EVERYTHING)), key=_times, default=worst
        )
    under = f" with perturbed {worst['group']}" if worst["group"] else ""
    text = (
        f"output {worst['output']} at {worst['point']} on {worst['threads']} threads{under} is off by "
        f"{worst['error']:.3g}; allowed {worst['allowed']:.3g} (signal {worst['signal']:.3g}, eager's own error "
        f"{worst['eager_error']:.3g})"
    )
    if worst["group"] is None and worst["error"] <= NEAR_MISS * worst["allowed"]:
        raise ToleranceMissed(
            text, where="verify", hint="Raise checks.tolerance if this error is acceptable to you."
        )
    raise ArtifactWrong(
        text,
        where="verify",
        hint="The compiled code computes something else than the model. This is a defect of the compiler or of "
        "pt2hub: please report it with the build's log and sources.",
        context={"comparisons": [_finite(row) for row in missed[:_WORST]]},
    )


def _times(row: dict[str, Any]) -> float:
    """How many times what passes a comparison is off."""
    return float(row["error"] / (row["allowed"] or 1e-300))


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """A comparison as JSON: it has no infinity."""
    return row if math.isfinite(row["error"]) else {**row, "error": None}


def _wrong(what: str, where: str) -> ArtifactWrong:
    return ArtifactWrong(
        what,
        where=where,
        hint="The compiled code does something else than the model. It was not published; the build's log has its last "
        "output.",
    )


def _unusable(error: Exception) -> OutputRefused:
    return OutputRefused(
        f"the expected outputs of the build's process cannot be compared with: {error}",
        where="verify",
        hint="A model must leave the files of its build alone.",
    )
