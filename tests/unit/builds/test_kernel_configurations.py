"""Configurations of a model's own autotuned kernel, as rows beside the candidates of Inductor's operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from pt2hub_workers.inside.builds.compile.autotune_kernels import describe_tuning, is_users


@dataclass
class Config:
    """Triton's, as far as it is read."""

    kwargs: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None


@dataclass(eq=False)
class Launcher:
    config: Config


@dataclass
class Tuner:
    """Inductor's, as far as it is read."""

    compile_results: list[Launcher] = field(default_factory=list)
    heuristic_type: Any = field(default_factory=lambda: SimpleNamespace(name="USER_AUTOTUNE"))
    fn: Any = field(default_factory=lambda: SimpleNamespace(__name__="silu_2"))
    precompile_time_taken_ns: int = 1_500_000_000


def test_only_kernels_of_the_model_are_recorded() -> None:
    assert is_users(Tuner())
    assert not is_users(Tuner(heuristic_type=SimpleNamespace(name="POINTWISE")))
    assert not is_users(object())


def test_each_configuration_is_a_row_and_one_that_the_gpu_cannot_launch_has_a_reason() -> None:
    small, large, huge = (Launcher(Config({"BLOCK": block})) for block in (256, 1024, 65536))
    tuner = Tuner([small, large, huge])
    given = (torch.empty(8, 64, dtype=torch.bfloat16), 512, torch.empty(8, 64))

    operation = describe_tuning(3, tuner, {small: 0.02, large: 0.01}, given, seconds=0.25)

    rows = list(operation.choices_made())
    assert [(row["parameters"]["BLOCK"], row["milliseconds"], row["chosen"]) for row in rows] == [
        (1024, 0.01, True),
        (256, 0.02, False),
        (65536, None, False),
    ]
    assert rows[2]["reason"] == "cannot be launched on this GPU: it needs more of a resource than the GPU has"
    assert rows[0]["parameters"] == {"BLOCK": 1024, "num_ctas": 1, "num_stages": 3, "num_warps": 4}
    assert {(row["op"], row["template"], row["operation"]) for row in rows} == {
        ("silu_2", "user kernel: silu_2", 3)
    }
    assert (rows[0]["shapes"], rows[0]["dtypes"]) == ([["8", "64"], ["8", "64"]], ["bfloat16", "float32"])
    assert (rows[0]["precompile_seconds"], rows[0]["benchmark_seconds"]) == (1.5, 0.25)
