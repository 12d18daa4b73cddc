"""Candidates of autotuning: Inductor's own classes read as templates with parameters, and what a worker believes."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor.select_algorithm import TritonTemplateCaller

from pt2hub.errors import OutputRefused
from pt2hub_workers.builds.child_messages import read_result
from pt2hub_workers.inside.builds.compile.autotune import Tuning
from pt2hub_workers.inside.builds.compile.autotune_candidates import (
    UNTIMED_REASON,
    Operation,
    describe_failure,
    read_parameters,
    template_name,
)
from support.registry import AUTOTUNE

DESCRIPTION = (
    "ACC_TYPE='tl.float32', ALLOW_TF32=False, BLOCK_K=32, BLOCK_M=64, BLOCK_N=128, EVEN_K=True, GROUP_M=8, "
    "SHIFT=, 1, UPCAST=None, num_stages=3, num_warps=8"
)
"""As Inductor makes it of a template's key, in which "-" stands between the parts: a sign becomes ", "."""


def triton(
    name: str, description: str = DESCRIPTION, *, stages: int = 3, warps: int = 8
) -> TritonTemplateCaller:
    """Inductor's own candidate, without anything that needs a GPU."""
    request: Any = SimpleNamespace(num_stages=stages, num_warps=warps, module_path="x.py")
    told = {"tile_shape": "(64, 32, 128)", "allow_tf32": "False", "acc_type": "tl.float32"}
    layout: Any = None
    return TritonTemplateCaller(name, [], layout, None, description, request, told)


@dataclass
class Node:
    """An input, as far as a table tells of it."""

    size: tuple[object, ...] = (64, 32)
    stride: tuple[object, ...] = (32, 1)

    def get_size(self) -> tuple[object, ...]:
        return self.size

    def get_stride(self) -> tuple[object, ...]:
        return self.stride

    def get_dtype(self) -> torch.dtype:
        return torch.float16


@dataclass(eq=False)
class Bare:
    """A candidate of a release that tells nothing but a name."""

    name: str = "new_kernel_4"
    failed: bool = False
    template: object = field(default_factory=object)


def test_a_kernel_is_its_template_and_its_parameters_wherever_it_stands_in_the_list() -> None:
    first, later = triton("triton_mm_3"), triton("triton_mm_17")
    assert template_name(first) == template_name(later) == "triton_mm"
    assert read_parameters(first) == read_parameters(later)
    assert read_parameters(first) == {
        "ACC_TYPE": "tl.float32",
        "ALLOW_TF32": False,
        "BLOCK_K": 32,
        "BLOCK_M": 64,
        "BLOCK_N": 128,
        "EVEN_K": True,
        "GROUP_M": 8,
        "SHIFT": -1,
        "UPCAST": "None",
        "num_stages": 3,
        "num_warps": 8,
    }
    other = triton("triton_mm_3", DESCRIPTION.replace("num_warps=8", "num_warps=4"), warps=4)
    assert read_parameters(other) != read_parameters(first)


def test_without_a_description_what_inductor_logs_is_what_is_known() -> None:
    found = read_parameters(triton("triton_convolution2d_5", "", stages=2, warps=4))
    assert found == {"acc_type": "tl.float32", "allow_tf32": "False", "num_stages": 2, "num_warps": 4}
    assert (template_name(Bare()), read_parameters(Bare())) == ("new_kernel", {})


def test_failed_candidates_follow_with_their_reasons_and_the_taken_one_is_the_one_that_inductor_took() -> (
    None
):
    quick, taken, large, late, pruned = (triton(f"triton_mm_{number}") for number in range(5))
    large.mark_failed()
    operation = Operation(2, "mm", [Node(), Node(("s0", 64), (64, 1))], [large, quick, taken, late, pruned])
    operation.times = {quick: 0.1, taken: 0.2, late: float("inf")}
    operation.reasons = {
        id(large): "OutOfResources: shared memory",
        id(late): "RuntimeError: misaligned address",
    }
    entries = list(operation.choices_made())
    assert [(e["candidate"], e["rank"], e["chosen"], e["milliseconds"], e["reason"]) for e in entries] == [
        ("triton_mm_0", 1, True, 0.1, ""),
        ("triton_mm_1", 2, False, 0.2, ""),
        ("triton_mm_2", 3, False, None, "OutOfResources: shared memory"),
        ("triton_mm_3", 4, False, None, "RuntimeError: misaligned address"),
        ("triton_mm_4", 5, False, None, UNTIMED_REASON),
    ]
    assert (entries[0]["shapes"], entries[0]["strides"], entries[0]["dtypes"], entries[0]["operation"]) == (
        [["64", "32"], ["s0", "64"]],
        [["32", "1"], ["64", "1"]],
        ["float16", "float16"],
        2,
    )
    operation.chosen = taken  # what is fused into it makes up for its time
    assert [entry["chosen"] for entry in operation.choices_made()] == [False, True, False, False, False]
    assert read_result({"verification": {}, "autotune": entries}).autotune == entries


def test_what_inductor_decides_when_it_fuses_is_what_is_kept() -> None:
    quick, taken = triton("triton_mm_0"), triton("triton_mm_1")
    operation = Operation(1, "mm", [Node()], [quick, taken], times={quick: 0.1, taken: 0.2})
    tuning = Tuning(operations=[operation])
    done: list[object] = []
    tuning._around_decision(lambda buffer, callers: done.append((buffer, callers)), "buffer", taken)
    assert [entry["chosen"] for entry in tuning.choices] == [False, True]
    tuning._around_decision(lambda buffer, callers: done.append((buffer, callers)), "buffer", {None: quick})
    assert [entry["chosen"] for entry in tuning.choices] == [True, False]
    assert done == [("buffer", taken), ("buffer", {None: quick})]


def test_a_reason_is_one_line_with_the_kind_of_error_and_the_end_of_a_long_message() -> None:
    assert (
        describe_failure(RuntimeError("out of resource:\n triton_mm"))
        == "RuntimeError: out of resource: triton_mm"
    )
    assert describe_failure(ValueError()) == "ValueError"
    text = "command\n" * 100 + "error: too many registers\n"
    assert describe_failure(RuntimeError(text)) == "RuntimeError: error: too many registers"


LIES: tuple[dict[str, Any], ...] = (
    {"milliseconds": float("nan")},
    {"milliseconds": -1.0},
    {"milliseconds": None},
    {"reason": "it failed, and has a time"},
    {"benchmark_seconds": float("inf")},
    {"reason": "x" * 501, "milliseconds": None},
    {"parameters": {"BLOCK_M": [1]}},
    {"parameters": {"BLOCK_M": float("nan")}},
    {"parameters": {str(number): 1 for number in range(65)}},
    {"rank": 1 << 31},
    {"operation": -1},
)


@pytest.mark.parametrize("lie", LIES)
def test_a_candidate_that_cannot_be_is_refused(lie: dict[str, Any]) -> None:
    assert read_result({"verification": {}, "autotune": AUTOTUNE}).autotune == AUTOTUNE
    with pytest.raises(OutputRefused):
        read_result({"verification": {}, "autotune": [{**AUTOTUNE[0], **lie}]})
