"""The verifier: compares the artifact's outputs with the expected ones and decides whether it may be published.

Neither the model's code nor the artifact's ever runs in this process, and torch is not loaded. It reads two files with
numpy; one of them was written by untrusted code.
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
from pt2hub_workers.inside.builds.verify.run_order import (
    EVERYTHING,
    EXAMPLE,
    EXPECTED_KEY,
    OUTPUTS_KEY,
    VerificationRun,
    is_floating,
    plan_runs,
    stored_dtype,
)
from pt2hub_workers.inside.builds.verify.tolerances import EAGER_FACTOR, Allowance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pt2hub_workers.inside.operations.channel import Channel

NEAR_MISS_FACTOR = 4.0
"""An error within this many times the allowance counts as a missed tolerance, a larger one as a wrong artifact."""
MAX_THREADS = 4096
_MAX_COMPARISONS = 20
"""Maximum number of comparisons that an error lists."""


@dataclass(frozen=True, slots=True)
class ExpectedResponse:
    """Allowances under one group of perturbed constants."""

    name: str
    allowances: list[Allowance]


@dataclass(frozen=True, slots=True)
class Expected:
    """The build's document for the verifier, in addition to the expected outputs.

    Attributes:
        base: Allowances at the golden weights, per output, by point.
        again: Whether the model's buffers make its second call on the example differ from the first.
    """

    points: list[str]
    base: dict[str, list[Allowance]]
    groups: list[ExpectedResponse]
    dtypes: dict[str, list[str]]
    again: bool = False

    def __post_init__(self) -> None:
        """Refuse a document that cannot be compared with.

        Raises:
            BadResponse: A number is not finite, or a point's allowances or dtypes are missing.
        """
        for label in {EXAMPLE, *self.points}:
            if len(self.base.get(label, ())) != len(self.dtypes.get(label, ())) or label not in self.base:
                raise BadResponse(f"allowances or dtypes of {label} are missing")
        if any(len(group.allowances) != len(self.base[EXAMPLE]) for group in self.groups):
            raise BadResponse("a group of constants has a different number of outputs")
        allowances = [*self.base.values(), *(group.allowances for group in self.groups)]
        numbers = [(a.signal, a.eager_error, a.allowed) for part in allowances for a in part]
        if not all(math.isfinite(number) for part in numbers for number in part):
            raise BadResponse("an allowance is not finite")

    def find_expectation(self, run: VerificationRun) -> tuple[str, list[Allowance], list[str]]:
        """Return the name of a run's expected outputs, their allowances and their dtypes."""
        if run.call > 1 and self.again:
            return "again", self.base[run.point], self.dtypes[run.point]
        if run.group is None:
            return f"golden/{run.point}", self.base[run.point], self.dtypes[run.point]
        return f"group/{run.number}", self.groups[run.number].allowances, self.dtypes[run.point]


def verify_outputs(job: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Compare an artifact's outputs with the expected ones.

    Args:
        job: `expected` and `found` (paths), `runs` (returned by the artifact's process), `device`, and `accept`
            (verdicts that the spec accepts).

    Returns:
        The report: verdict, all comparisons, and those without power.

    Raises:
        ArtifactWrong: A comparison is far off, or an output is missing or has a wrong shape or dtype.
        NoPower: Verification could not have failed, and the spec does not accept that.
        OutputRefused: The expected outputs are unusable.
    """
    expected, tensors = _read_expected(Path(job["expected"]))
    powerless = _find_powerless(expected)
    if powerless and "no_power" not in job["accept"]:
        raise NoPower(
            "verification cannot distinguish a correct artifact of this model from a wrong one",
            where="checks",
            details=tuple(powerless),
            hint="Provide weights with which the output depends on inputs and layers (a trained file instead of a random "
            "initialisation), or write checks: {accept: [no_power]} to publish without this proof.",
        )
    channel.send("progress", text="compare")
    runs = _check_runs(expected, job["runs"], job["device"])
    found = _ArtifactOutputs.open(Path(job["found"]), runs, expected)
    rows = [
        row for number, run in enumerate(runs) for row in _compare_run(number, run, expected, tensors, found)
    ]
    _check_comparisons(rows)
    repeated = None if expected.again else _check_repeated(runs, expected, found, job["accept"])
    return {
        "result": "no_power" if powerless else "passed",
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


class _ArtifactOutputs:
    """The artifact's outputs, checked for number, dtype and shape."""

    def __init__(self, tensors: _Tensors, dtypes: dict[str, str]) -> None:
        self._tensors = tensors
        self._dtypes = dtypes

    @classmethod
    def open(cls, path: Path, runs: list[VerificationRun], expected: Expected) -> _ArtifactOutputs:
        try:
            tensors = _Tensors(path)
            dtypes = decode(dict[str, str], json.loads(tensors.metadata[OUTPUTS_KEY]))
        except (
            safetensors.SafetensorError,
            OSError,
            ValueError,
            KeyError,
            RecursionError,
            BadResponse,
        ) as error:
            raise _artifact_wrong(f"the artifact's outputs cannot be read: {error}", "verify") from error
        counts = Counter(name.partition("/")[0] for name in tensors.names)
        wanted = {str(number): len(expected.find_expectation(run)[1]) for number, run in enumerate(runs)}
        for number, run in enumerate(runs):
            if counts[str(number)] != wanted[str(number)]:
                text = f"the artifact has {counts[str(number)]} outputs at {run.point}, the model {wanted[str(number)]}"
                raise _artifact_wrong(text, run.point)
        if extra := tensors.names - {f"{n}/{index}" for n, count in wanted.items() for index in range(count)}:
            raise _artifact_wrong(
                f"the artifact wrote unexpected outputs: {', '.join(sorted(extra)[:5])[:200]}", "verify"
            )
        return cls(tensors, dtypes)

    def read(self, name: str) -> NDArray[Any]:
        """Return an output that `read_checked` has checked."""
        return self._tensors.get(name)

    def read_checked(self, name: str, dtype: str, shape: tuple[int, ...], label: str) -> NDArray[Any]:
        """Return an output after checking its dtype and shape."""
        try:
            tensor = self._tensors.get(name)
        except (safetensors.SafetensorError, TypeError, AttributeError, ValueError) as error:
            raise _artifact_wrong(
                f"output dtype must be {dtype}, got one that numpy lacks: {error}", label
            ) from error
        if tensor.shape != shape:
            raise _artifact_wrong(f"output shape must be {list(shape)}, got {list(tensor.shape)}", label)
        reported = self._dtypes.get(name, str(tensor.dtype))
        if reported != dtype or str(tensor.dtype) != stored_dtype(dtype):
            raise _artifact_wrong(f"output dtype must be {dtype}, got {reported[:40]}", label)
        return tensor


def _read_expected(path: Path) -> tuple[Expected, _Tensors]:
    try:
        tensors = _Tensors(path)
        return decode(Expected, json.loads(tensors.metadata[EXPECTED_KEY])), tensors
    except (safetensors.SafetensorError, OSError, ValueError, KeyError, RecursionError, BadResponse) as error:
        raise _expected_unusable(error) from error


def _check_runs(expected: Expected, reported: Any, device: str) -> list[VerificationRun]:
    """Return the required runs after checking that the artifact's process reports exactly these."""
    threads = reported.get("threads") if isinstance(reported, dict) else None
    if type(threads) is not int or not 1 <= threads <= MAX_THREADS:
        raise _artifact_wrong("its process does not say on how many threads it ran", "verify")
    runs = plan_runs(
        expected.points, [group.name for group in expected.groups], threads=threads, device=device
    )
    if reported.get("runs") != [asdict(run) for run in runs]:
        raise _artifact_wrong(f"the artifact's process did not make the {len(runs)} required runs", "verify")
    return runs


def _compare_run(
    number: int, run: VerificationRun, expected: Expected, tensors: _Tensors, found: _ArtifactOutputs
) -> list[dict[str, Any]]:
    place, allowances, dtypes = expected.find_expectation(run)
    rows = []
    for index, (allowance, dtype) in enumerate(zip(allowances, dtypes, strict=True)):
        try:
            right = tensors.get(f"{place}/{index}")
        except (safetensors.SafetensorError, TypeError, AttributeError, ValueError) as error:
            raise _expected_unusable(error) from error
        if is_floating(dtype) != (right.dtype.kind == "f"):
            raise _expected_unusable(ValueError(f"dtype must be {dtype}, got {right.dtype}"))
        left = found.read_checked(f"{number}/{index}", dtype, right.shape, run.point)
        gap = _difference(left, right, floating=is_floating(dtype))
        where = {"point": run.point, "threads": run.threads, "group": run.group}
        rows.append({**where, "error": gap, **allowance.as_dict()})
    return rows


def _check_repeated(
    runs: list[VerificationRun], expected: Expected, found: _ArtifactOutputs, accept: list[str]
) -> float:
    """Return the difference between two calls of the artifact on the same inputs, as a share of the allowance.

    Raises:
        ArtifactWrong: They differ by more than rounding explains, and the spec accepts no random operators.
    """
    second = next(number for number, run in enumerate(runs) if run.call > 1)
    point = runs[second].point
    first = next(
        number for number, run in enumerate(runs) if run == VerificationRun(point, runs[second].threads)
    )
    _, allowances, dtypes = expected.find_expectation(runs[second])
    worst = 0.0
    for allowance, dtype in zip(allowances, dtypes, strict=True):
        name = f"{allowance.output}"
        one, other = (found.read(f"{number}/{name}") for number in (first, second))
        gap = _difference(one, other, floating=is_floating(dtype))
        within = EAGER_FACTOR * allowance.eager_error
        if any(item.startswith("random:") for item in accept):
            within = max(within, allowance.allowed)
        if not gap <= within:
            raise _artifact_wrong(
                f"output {name} differs by {gap:.3g} between two calls on the same inputs; rounding explains {within:.3g}",
                point,
            )
        worst = max(worst, gap / within if gap else 0.0)
    return worst


def _difference(left: NDArray[Any], right: NDArray[Any], *, floating: bool) -> float:
    """Compute `differences.max_difference`, which the allowances are based on, without torch."""
    if left.size == 0:
        return 0.0
    if not floating:
        return float(np.mean(left != right))
    with np.errstate(all="ignore"):  # a result that is not finite is handled below
        gap = np.subtract(np.atleast_1d(left), right, dtype=np.float64)  # two scalars would give no array
    np.abs(gap, out=gap)
    return float(gap.max()) if bool(np.isfinite(gap).all()) else math.inf


def _find_powerless(expected: Expected) -> list[Detail]:
    base = expected.base[EXAMPLE]
    lively = any(item.has_power for item in base)
    found = [
        Detail(
            f"outputs[{item.output}]",
            f"moves by {item.signal:.3g} when the inputs change, while differences up to {item.allowed:.3g} would pass",
        )
        for item in base
        # A constant next to outputs with power (anchors, a mask) is compared exactly and needs no power of its own.
        if not item.has_power and not (lively and item.signal == item.allowed == 0)
    ]
    for group in expected.groups:
        if not any(item.has_power for item in group.allowances):
            largest = max((item.signal for item in group.allowances), default=0.0)
            text = f"moves no output by more than {largest:.3g} when perturbed"
            found.append(Detail(f"constants {group.name}", text))
    return found


def _check_comparisons(rows: list[dict[str, Any]]) -> None:
    missed = [row for row in rows if not row["error"] <= row["allowed"]]
    if not missed:
        return
    worst = max(missed, key=_excess)
    if worst["group"] == EVERYTHING:  # one group is more informative than all of them
        worst = max(
            (row for row in missed if row["group"] not in (None, EVERYTHING)), key=_excess, default=worst
        )
    under = f" with perturbed {worst['group']}" if worst["group"] else ""
    text = (
        f"output {worst['output']} at {worst['point']} on {worst['threads']} threads{under} is off by "
        f"{worst['error']:.3g}; allowed {worst['allowed']:.3g} (signal {worst['signal']:.3g}, eager's own error "
        f"{worst['eager_error']:.3g})"
    )
    if worst["group"] is None and worst["error"] <= NEAR_MISS_FACTOR * worst["allowed"]:
        raise ToleranceMissed(
            text, where="verify", hint="Raise checks.tolerance if this error is acceptable."
        )
    raise ArtifactWrong(
        text,
        where="verify",
        hint="The compiled code computes something different from the model. This is a defect of the compiler or of "
        "pt2hub: please report it with the build's log and sources.",
        context={"comparisons": [_to_json(row) for row in missed[:_MAX_COMPARISONS]]},
    )


def _excess(row: dict[str, Any]) -> float:
    """Return the ratio of a comparison's error to its allowance."""
    return float(row["error"] / (row["allowed"] or 1e-300))


def _to_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return a comparison without infinity, which JSON lacks."""
    return row if math.isfinite(row["error"]) else {**row, "error": None}


def _artifact_wrong(what: str, where: str) -> ArtifactWrong:
    return ArtifactWrong(
        what,
        where=where,
        hint="The compiled code behaves differently from the model and was not published; the build log has its last "
        "output.",
    )


def _expected_unusable(error: Exception) -> OutputRefused:
    return OutputRefused(
        f"the expected outputs of the build's process are unusable: {error}",
        where="verify",
        hint="A model must not change the files of its build.",
    )
