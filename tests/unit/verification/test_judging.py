"""What the judge of the gate makes of the files that it is given; one of them may be anything."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import torch

from pt2hub.errors import ArtifactWrong, NoPower, OutputRefused, ToleranceMissed
from pt2hub_workers.inside.builds import differences
from pt2hub_workers.inside.builds.export.inputs import Point
from pt2hub_workers.inside.builds.verify import verifier as judging
from pt2hub_workers.inside.builds.verify.eager_responses import Response
from pt2hub_workers.inside.builds.verify.golden import Golden
from pt2hub_workers.inside.builds.verify.perturbation import Group
from pt2hub_workers.inside.builds.verify.reference import save_expected
from pt2hub_workers.inside.builds.verify.run_order import OUTPUTS_KEY, VerificationRun, is_floating, plan_runs
from pt2hub_workers.inside.builds.verify.tensor_conversions import dtype_name, to_storable
from pt2hub_workers.inside.builds.verify.tolerances import Allowance
from pt2hub_workers.inside.builds.verify.verifier import _difference, verify_outputs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POINTS = (Point("example", {}), Point("example", {}, 1))
ALLOWED = 0.01
Outputs = list[torch.Tensor]


class _Silent:
    """A channel to nobody."""

    def send(self, event: str, **values: Any) -> None:
        """Drops it."""


class Case:
    """An artifact that computes what it should, until a test changes something."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(1)
        self.folder = folder
        self.golden = {p.label: [torch.randn(4, 3).to(dtype), torch.arange(5) + p.draw] for p in POINTS}
        self.response = [torch.randn(4, 3).to(dtype), torch.arange(5)]
        self.allowances = [Allowance(0, 1.0, 0.0, ALLOWED), Allowance(1, 1.0, 0.0, 0.0)]
        self.runs = plan_runs([p.label for p in POINTS], ["Linear.weight"], threads=2, device="cpu")
        self.found = {run: [*self._expected(run)] for run in self.runs}
        self.told: Any = {"threads": 2, "runs": [asdict(run) for run in self.runs]}
        self.extra: dict[str, torch.Tensor] = {}
        self.dtypes: dict[str, str] = {}
        self.accept: list[str] = []

    def _expected(self, run: VerificationRun) -> Outputs:
        return self.response if run.group else self.golden[run.point]

    def write_expected(self) -> Path:
        """What the build writes."""
        path = self.folder / "expected.safetensors"
        response = Response(Group("Linear.weight", ("w",)), self.response, self.allowances)
        base = {point.label: self.allowances for point in POINTS}
        double = {
            label: [t.double() if t.is_floating_point() else t for t in o] for label, o in self.golden.items()
        }
        golden = Golden(POINTS, {}, self.golden, double)
        save_expected([response], base, golden, self.golden, path)
        return path

    def write_found(self) -> Path:
        """What the gate's process writes."""
        path = self.folder / "found.safetensors"
        named = {f"{n}/{i}": t for n, run in enumerate(self.runs) for i, t in enumerate(self.found[run])}
        dtypes = {**{name: dtype_name(tensor) for name, tensor in named.items()}, **self.dtypes}
        stored = {name: to_storable(tensor) for name, tensor in {**named, **self.extra}.items()}
        safetensors.torch.save_file(stored, path, metadata={OUTPUTS_KEY: json.dumps(dtypes)})
        return path

    def judge(self, found: Path | None = None, expected: Path | None = None) -> dict[str, Any]:
        """The verdict."""
        job = {
            "expected": str(expected or self.write_expected()),
            "found": str(found or self.write_found()),
            "runs": self.told,
            "device": "cpu",
            "accept": self.accept,
        }
        return verify_outputs(job, _Silent())  # type: ignore[arg-type]  # what it uses of a channel


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn]
)
def test_right_outputs_of_every_dtype_pass_and_the_report_lists_each_comparison(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    report = Case(tmp_path, dtype).judge()

    assert (report["result"], report["no_power"], report["relative_error"]) == ("passed", [], 0.0)
    tried = {(row["point"], row["threads"], row["group"]) for row in report["comparisons"]}
    assert tried == {
        *(("example.0", threads, None) for threads in (2, 1, 8)),
        ("example.1", 2, None),
        ("example.0", 2, "Linear.weight"),
    }
    assert len(report["comparisons"]) == 12
    assert set(report["comparisons"][0]) == {
        *("point", "threads", "group", "error", "output", "signal", "eager_error", "allowed")
    }
    json.dumps(report, allow_nan=False)


def test_an_output_that_is_just_off_or_far_off_is_told_apart(case: Case) -> None:
    run = case.runs[1]
    case.found[run][0] = case.found[run][0] + 2 * ALLOWED
    with pytest.raises(ToleranceMissed, match=r"output 0 at example\.1 on 2 threads is off by 0\.02"):
        case.judge()
    case.found[run][0] = case.found[run][0] + 1.0
    with pytest.raises(ArtifactWrong, match=r"is off by 1\.02"):
        case.judge()


def test_two_calls_on_one_input_that_differ_within_the_tolerance_are_wrong_unless_random_operators_are_accepted(
    case: Case,
) -> None:
    (second,) = (run for run in case.runs if run.call == 2)
    assert second.point == "example.0"
    case.found[second][0] = case.found[second][0] + ALLOWED / 2
    with pytest.raises(ArtifactWrong, match="between two calls on the same inputs"):
        case.judge()
    case.accept = ["random:aten.rand_like"]
    assert case.judge()["repeated"] == pytest.approx(0.5, rel=1e-3)


def test_one_wrong_integer_and_an_output_that_does_not_follow_its_weights_are_wrong(case: Case) -> None:
    last = case.runs[-1]
    case.found[last][0] = case.golden["example.0"][0]
    with pytest.raises(ArtifactWrong, match=r"with perturbed Linear\.weight"):
        case.judge()
    case.found[last] = [*case.response]
    first = case.runs[0]
    case.found[first][1] = case.found[first][1].clone()
    case.found[first][1][2] = 7
    with pytest.raises(ArtifactWrong, match=r"output 1 at example\.0 on 2 threads is off by 0\.2"):
        case.judge()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_output_that_is_not_finite_is_wrong_and_the_error_is_still_json(case: Case, value: float) -> None:
    case.found[case.runs[2]][0] = torch.full((4, 3), value)
    with pytest.raises(ArtifactWrong, match="is off by inf") as caught:
        case.judge()
    json.dumps(caught.value.as_dict(), allow_nan=False)


def _drops_an_output(case: Case) -> None:
    case.found[case.runs[0]].pop()


def _has_another_shape(case: Case) -> None:
    case.found[case.runs[0]][0] = torch.zeros(4, 3, 1)


def _is_broadcast(case: Case) -> None:
    case.found[case.runs[0]][0] = torch.zeros(1)


def _has_another_dtype(case: Case) -> None:
    case.found[case.runs[0]][0] = case.found[case.runs[0]][0].double()


def _is_bfloat16(case: Case) -> None:
    case.found[case.runs[0]][0] = case.found[case.runs[0]][0].bfloat16()


def _lies_about_a_dtype(case: Case) -> None:
    case.found[case.runs[0]][0] = case.found[case.runs[0]][0].double()
    case.dtypes["0/0"] = "float32"


def _is_of_integers(case: Case) -> None:
    case.found[case.runs[0]][0] = torch.zeros(4, 3, dtype=torch.int32)


def _has_more(case: Case) -> None:
    case.extra["0/7"] = torch.zeros(1)


def _has_what_nobody_asked_for(case: Case) -> None:
    case.extra["golden/example.0/0"] = torch.zeros(1)


def _made_fewer_runs(case: Case) -> None:
    case.told["runs"].pop()


def _made_a_run_twice(case: Case) -> None:
    case.told["runs"][1] = case.told["runs"][0]


def _made_other_runs(case: Case) -> None:
    case.told["runs"][0] = {**case.told["runs"][0], "threads": 1}


def _says_nothing(case: Case) -> None:
    case.told = None


def _says_that_it_passed(case: Case) -> None:
    case.told = {"result": "passed", "comparisons": [], "no_power": [], "relative_error": 0.0}


def _ran_on_true_threads(case: Case) -> None:
    case.told["threads"] = True


@pytest.mark.parametrize(
    "change",
    [
        *(
            _drops_an_output,
            _has_another_shape,
            _is_broadcast,
            _has_another_dtype,
            _is_bfloat16,
            _lies_about_a_dtype,
        ),
        *(_is_of_integers, _has_more, _has_what_nobody_asked_for, _made_fewer_runs, _made_a_run_twice),
        *(_made_other_runs, _says_nothing, _says_that_it_passed, _ran_on_true_threads),
    ],
)
def test_whatever_else_an_artifact_gives_back_is_wrong_and_no_defect(
    case: Case, change: Callable[[Case], None]
) -> None:
    change(case)

    with pytest.raises(ArtifactWrong) as caught:
        case.judge()

    assert caught.value.hint


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"passed", b"\xff" * 100, b"\x02\0\0\0\0\0\0\0{}", b"\xff\xff\xff\xff\xff\xff\xff\x7f{}"),
        b"\x10\0\0\0\0\0\0\0" + b"[" * 16,
    ],
)
def test_a_file_that_is_no_safetensors_file_or_says_nothing_is_wrong(case: Case, data: bytes) -> None:
    path = case.folder / "forged"
    path.write_bytes(data)

    with pytest.raises(ArtifactWrong, match="the artifact's outputs cannot be read"):
        case.judge(found=path)


def test_expected_outputs_that_cannot_be_compared_with_are_the_builds_fault(case: Case) -> None:
    forged = case.folder / "forged"
    safetensors.torch.save_file({"a": torch.zeros(1)}, forged, metadata={"expected": "{}"})
    with pytest.raises(OutputRefused, match="are unusable"):
        case.judge(expected=forged)
    case.allowances = [Allowance(0, math.inf, 0.0, math.inf), Allowance(1, 1.0, 0.0, 0.0)]
    with pytest.raises(OutputRefused, match="not finite"):
        case.judge()


def test_a_gate_that_could_not_have_failed_is_a_verdict_of_its_own_where_the_spec_accepts_it(
    case: Case,
) -> None:
    case.allowances = [Allowance(0, 0.0, 0.0, 0.0), Allowance(1, 0.0, 0.0, 0.0)]
    with pytest.raises(NoPower) as caught:
        case.judge()
    assert "constants Linear.weight" in {item.path for item in caught.value.details}
    case.accept = ["no_power"]
    assert case.judge()["result"] == "no_power"


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.int64, torch.bool, torch.uint8, torch.complex64]
)
def test_differences_are_those_with_which_the_allowances_were_found(dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    left, right = ((torch.randn(64) * 3).to(dtype) for _ in range(2))

    found = _difference(left.numpy(), right.numpy(), floating=is_floating(dtype_name(left)))

    expected = differences.max_difference(left, right)
    assert found == pytest.approx(expected, rel=1e-12)
    assert _difference(left[:0].numpy(), right[:0].numpy(), floating=True) == 0.0
    scalars = left[0], right[0]
    found = _difference(*(value.numpy() for value in scalars), floating=is_floating(dtype_name(left)))
    assert found == pytest.approx(differences.max_difference(*scalars), rel=1e-12)


def test_a_group_of_constants_is_named_before_all_of_them() -> None:
    row = {
        "output": 0,
        "point": "example.0",
        "threads": 2,
        "signal": 1.0,
        "eager_error": 0.0,
        "allowed": 0.01,
    }
    everything = {**row, "group": "everything", "error": 0.5}
    named = {**row, "group": "Linear.weight", "error": 0.4}
    near = {**row, "group": None, "error": 0.02}
    for rows in ([everything, named], [named, everything, near]):
        with pytest.raises(ArtifactWrong, match=r"with perturbed Linear\.weight is off by 0\.4"):
            judging._check_comparisons(rows)
    for rows in (
        [everything],
        [everything, near],
    ):  # a comparison that is just off hides none that is far off
        with pytest.raises(ArtifactWrong, match="with perturbed everything"):
            judging._check_comparisons(rows)
