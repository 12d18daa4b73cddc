"""Autotuning's measurements, as Inductor really reports them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._inductor.select_algorithm

from pt2hub_workers.inside.builds.compile.autotune import Tuning
from pt2hub_workers.inside.builds.compile.autotune_candidates import BUDGET_REASON
from pt2hub_workers.inside.builds.compile.compiler import compile_program
from support.tiny_models import Mlp

if TYPE_CHECKING:
    from pathlib import Path

TUNED_ONLY = {
    "max_autotune": True,
    "max_autotune_gemm_backends": "ATEN,CPP",
    "aot_inductor.package_cpp_only": True,
    "aot_inductor.precompile_headers": False,
}
"""Every candidate is compiled and timed; of the chosen ones only the sources are kept, which nothing here runs."""


@pytest.mark.usefixtures("aoti")  # its precompiled headers
@pytest.mark.compiles
def test_every_candidate_is_recorded_with_its_time_and_the_chosen_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    # One product: each candidate is compiled, and the test below has two.
    model = torch.nn.Linear(8, 64).eval().requires_grad_(False)
    program = torch.export.export(model, (torch.randn(32, 8),))
    begun: list[str] = []
    tuning = Tuning(on_begin=lambda: begun.append("alone"))

    compile_program(program, TUNED_ONLY, tmp_path / "package.pt2", tuning)

    choices = tuning.choices
    assert begun == ["alone"]
    assert tuning.made == len({f"{c['op']}{c['shapes']}" for c in choices})
    assert tuning.skipped == 0
    by_operation: dict[str, list[dict[str, object]]] = {}
    for choice in choices:
        by_operation.setdefault(f"{choice['op']}{choice['shapes']}", []).append(choice)
    assert by_operation
    for candidates in by_operation.values():
        assert [c["rank"] for c in candidates] == list(range(1, len(candidates) + 1))
        assert [c["chosen"] for c in candidates] == [True] + [False] * (len(candidates) - 1)
        assert all(float(str(c["milliseconds"])) > 0 for c in candidates)
        assert all(str(c["dtypes"]).count("float32") >= 2 for c in candidates)
        assert all(len(c["strides"]) == len(c["shapes"]) for c in candidates)  # type: ignore[arg-type]
        assert all(float(str(c["benchmark_seconds"])) > 0 for c in candidates)
    kernels = {choice["template"]: choice["parameters"] for choice in choices}
    assert kernels.pop("extern: addmm") == {}
    ((template, parameters),) = kernels.items()
    assert template.startswith("cpp_")
    assert not template[-1].isdigit()
    assert sorted(parameters) == ["block_k", "block_m", "block_n"]


@pytest.mark.usefixtures("aoti")  # its precompiled headers
@pytest.mark.compiles
def test_a_candidate_that_fails_is_kept_with_its_reason_and_the_taken_one_is_said_to_be_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    before = torch._inductor.select_algorithm.ExternKernelCaller.benchmark
    bad: list[object] = []

    def benchmark(self: Any, *args: Any, out: torch.Tensor) -> float:
        if self.name == "addmm":
            bad.append(self)
            raise RuntimeError("out of resource: shared memory")
        return before(self, *args, out=out)

    monkeypatch.setattr(torch._inductor.select_algorithm.ExternKernelCaller, "benchmark", benchmark)
    model = torch.nn.Linear(8, 80).eval().requires_grad_(False)  # a size of its own: the process keeps times
    program = torch.export.export(model, (torch.randn(32, 8),))
    tuning = Tuning()
    compile_program(program, TUNED_ONLY, tmp_path / "package.pt2", tuning)
    assert bad
    timed = [choice for choice in tuning.choices if choice["milliseconds"] is not None]
    (failed,) = (choice for choice in tuning.choices if choice["milliseconds"] is None)
    assert (failed["template"], failed["reason"]) == (
        "extern: addmm",
        "RuntimeError: out of resource: shared memory",
    )
    assert [choice["chosen"] for choice in (*timed, failed)] == [True] + [False] * len(timed)


@pytest.mark.usefixtures("aoti")  # its precompiled headers
@pytest.mark.compiles
def test_once_its_budget_is_used_up_nothing_more_is_timed_and_the_rest_takes_the_librarys_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    program = torch.export.export(Mlp(48).eval().requires_grad_(False), (torch.randn(32, 8),))
    options = {
        "max_autotune": True,
        "max_autotune_gemm_backends": "CPP,ATEN",
        "aot_inductor.precompile_headers": False,  # of these options there are none yet
    }
    tuning = Tuning(budget=1e-6)  # over as soon as the first candidate of the first operation is timed

    compile_program(program, options, tmp_path / "package.pt2", tuning)

    assert [(item["rank"], item["chosen"]) for item in tuning.choices] == [(1, True), (2, False)]
    assert [item["reason"] for item in tuning.choices] == ["", BUDGET_REASON]
    assert (tuning.made, tuning.skipped) == (1, 1)
    assert "1 skipped in favour of the default: the budget of 1e-06 s was used up" in str(tuning)
    model = torch._inductor.aoti_load_package(str(tmp_path / "package.pt2"))
    x = torch.randn(32, 8)
    assert torch.allclose(model(x), program.module()(x), atol=1e-5)


def test_a_budget_of_nothing_lets_nothing_be_timed() -> None:
    tuning = Tuning(budget=0.0, on_begin=lambda: pytest.fail("nothing is to be timed"))
    with tuning.watch():
        selector = torch._inductor.select_algorithm.get_algorithm_selector_cache()
        default = selector.do_autotuning("mm", [], None, None, "key", ["first", "second"], None)
        before_compiling: Any = selector.preprocessing_fns[-1]
        assert before_compiling(["first", "second"]) == ["first"]
    assert default == {"first": 0.0}
    assert tuning.summary() == {"seconds": 0.0, "budget": 0.0, "choices": 0, "left_to_default": 2}


def test_after_the_compile_inductor_is_as_it_was() -> None:
    selector = torch._inductor.select_algorithm.AlgorithmSelectorCache
    before = dict(vars(selector))
    with Tuning().watch():
        assert dict(vars(selector)) != before
    assert dict(vars(selector)) == before
