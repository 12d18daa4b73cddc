"""The artifact that suits a machine best, and the better ones that do not run on it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.artifacts import NativeCode
from pt2hub.domain.compatibility.assessment import assess_compatibility
from pt2hub.domain.compatibility.hosts import Host
from pt2hub.domain.compatibility.selection import Candidate, Selection, select
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.targets import flags_of_level, parse_target

if TYPE_CHECKING:
    from pt2hub.domain.compatibility.findings import Compatibility

SHIM = ("aoti_torch_one",)
V4, V3, V2 = (f"torch2.13-cpu-x86_64_v{level}" for level in (4, 3, 2))
GPU = "torch2.13-cu130-sm90"
CPU_ONLY = Host(
    "linux", "x86_64", "2.13", flags_of_level("x86_64_v4"), glibcxx="3.4.30", aoti_symbols=frozenset(SHIM)
)
H100 = replace(CPU_ONLY, cuda="130", sm="sm90", driver_cuda="13.0", shared_memory_bytes=227 << 10)
PLAIN = NativeCode("x86_64", (), (), SHIM, "", "")


def selected(host: Host, *names: str, **native: NativeCode) -> tuple[Selection, list[str]]:
    """The selection among targets, in order of their age, and those whose configs were read."""
    read = []

    def assess(candidate: Candidate) -> Compatibility:
        read.append(candidate.name)
        assert candidate.target
        level = candidate.target.arch if candidate.target.device == "cpu" else "x86_64"
        needs = native.get(level, replace(PLAIN, cpu_level=level))
        return assess_compatibility(candidate.target, host, needs)

    candidates = []
    for age, name in enumerate(names):
        target = parse_target(name)
        known = assess_compatibility(target, host)
        candidates.append(Candidate(name, target, digest_bytes(name.encode()), f"2026-01-0{age + 1}", known))
    return select(candidates, host, assess), read


def chosen(host: Host, *names: str) -> str | None:
    found, _ = selected(host, *names)
    return found.chosen.name if found.chosen else None


@pytest.mark.parametrize(
    ("names", "best"),
    [
        ([V2, V4, V3], V4),
        ([GPU, V3], V3),
        ([GPU], None),
        (["torch2.11-cpu-x86_64_v4", V2], V2),  # compatible before degraded
        (["torch2.11-cpu-x86_64_v4", "torch2.12-cpu-x86_64_v2"], "torch2.12-cpu-x86_64_v2"),  # closest torch
        (["torch2.14-cpu-x86_64_v2", "torch2.14-cpu-x86_64_v3"], "torch2.14-cpu-x86_64_v3"),
        (["torch1.13-cpu-x86_64_v4", "torch2.1-cpu-x86_64_v2"], "torch2.1-cpu-x86_64_v2"),
    ],
)
def test_on_a_cpu(names: list[str], best: str | None) -> None:
    assert chosen(CPU_ONLY, *names) == best


@pytest.mark.parametrize(
    ("sm", "names", "best"),
    [
        ("sm90", [V4, GPU], GPU),
        ("sm89", [V4, "torch2.13-cu130-sm80", "torch2.13-cu130-sm86"], "torch2.13-cu130-sm86"),
        ("sm86", ["torch2.13-cu130-sm80", "torch2.13-cu130-sm86"], "torch2.13-cu130-sm86"),
        ("sm86", [V4, "torch2.13-cu130-sm80"], "torch2.13-cu130-sm80"),  # a GPU's, degraded, before a CPU's
        ("sm100", [GPU, "torch2.13-cu130-sm100", V4], "torch2.13-cu130-sm100"),
        ("sm120", [GPU, V4], V4),
    ],
)
def test_on_a_gpu(sm: str, names: list[str], best: str) -> None:
    assert chosen(replace(H100, sm=sm), *names) == best


def test_the_newest_of_equals() -> None:
    found, _ = selected(CPU_ONLY, V3, V3)
    assert found.chosen
    assert found.chosen.created_at == "2026-01-02"


def test_configs_are_read_only_where_they_can_change_the_answer() -> None:
    assert selected(CPU_ONLY, V2, V3, V4, GPU)[1] == [V4]
    assert selected(CPU_ONLY, GPU)[1] == []
    newer = replace(PLAIN, cpu_level="x86_64_v4", glibcxx="3.4.33")
    found, read = selected(CPU_ONLY, V2, V3, V4, x86_64_v4=newer)
    assert read == [V4, V3]
    assert found.chosen
    assert found.chosen.name == V3


def test_an_artifact_for_such_a_machine_that_does_not_run_is_passed_over() -> None:
    newer = replace(PLAIN, cpu_level="x86_64_v4", glibcxx="3.4.33")
    found, _ = selected(CPU_ONLY, V3, V4, x86_64_v4=newer)
    assert [item.name for item in found.passed_over] == [V4]
    assert str(found.passed_over[0].compatibility).startswith("libstdc++: needs GLIBCXX 3.4.33 or newer")


def test_an_instruction_set_that_nobody_here_knows_is_not_taken_for_present() -> None:
    found, _ = selected(CPU_ONLY, V4, x86_64_v4=replace(PLAIN, cpu_level="x86_64_v5", glibcxx="3.4.33"))
    assert found.chosen is None


def test_artifacts_for_other_machines_are_not_passed_over() -> None:
    found, _ = selected(CPU_ONLY, GPU, V4, "torch2.14-cpu-x86_64_v4")
    assert found.passed_over == ()
    found, _ = selected(replace(CPU_ONLY, cpu_flags=flags_of_level("x86_64_v3")), V4, V3)
    assert found.passed_over == ()
    found, _ = selected(replace(H100, cuda=None), GPU, V4)  # torch for CPUs beside a GPU
    assert found.passed_over == ()


@pytest.mark.parametrize(
    "host", [replace(H100, sm="sm100"), replace(H100, driver_cuda="12.8"), replace(H100, cuda="126")]
)
def test_a_gpu_that_falls_back_to_the_cpu_is_told(host: Host) -> None:
    found, _ = selected(host, GPU, V4)
    assert found.chosen
    assert (found.chosen.name, [item.name for item in found.passed_over]) == (V4, [GPU])


def test_a_target_that_only_a_newer_pt2hub_knows_never_wins() -> None:
    unknown = Candidate("torch3.0-npu-x1", None, digest_bytes(b"x"), "2026-02-01")
    found = select([unknown], CPU_ONLY, lambda _: pytest.fail("its config says nothing"))
    assert found.chosen is None
    assert str(found.candidates[0].compatibility).startswith("target: needs a newer pt2hub")
