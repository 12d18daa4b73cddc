"""Which GPUs run an artifact: exactly its compute capability, or its family if every kernel comes as PTX, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pt2hub.domain.artifacts import NativeCode
from pt2hub.domain.compatibility import Host, assess_compatibility, may_be_portable
from pt2hub.domain.targets import flags_of_level, parse_target

KIB = 1024
EXACT = NativeCode("x86_64", (), (), (), "", "")
ANY_OF_ITS_FAMILY = replace(EXACT, is_multi_arch=True)


def a_machine(sm: str | None, shared_kib: int | None = None) -> Host:
    flags = flags_of_level("x86_64")
    size = shared_kib * KIB if shared_kib else None
    return Host("linux", "x86_64", "2.13", flags, cuda="130", sm=sm, shared_memory_bytes=size)


def failures(arch: str, host: Host, native: NativeCode | None) -> list[str]:
    target = parse_target(f"torch2.13-cu130-{arch}")
    return [f"{item.axis}: {item.needs}" for item in assess_compatibility(target, host, native).failures]


@pytest.mark.parametrize(
    ("arch", "has", "native", "needs"),
    [
        ("sm80", "sm80", EXACT, []),
        ("sm80", "sm86", EXACT, ["compute capability: sm80"]),
        ("sm80", "sm86", None, ["compute capability: sm80"]),
        ("sm80", "sm80", ANY_OF_ITS_FAMILY, []),
        ("sm80", "sm86", ANY_OF_ITS_FAMILY, []),
        ("sm80", "sm89", ANY_OF_ITS_FAMILY, []),
        ("sm86", "sm80", ANY_OF_ITS_FAMILY, ["compute capability: sm86 or newer of its family"]),
        ("sm75", "sm80", ANY_OF_ITS_FAMILY, ["compute capability: sm75 or newer of its family"]),
        ("sm80", None, ANY_OF_ITS_FAMILY, ["compute capability: sm80 or newer of its family"]),
        # From sm90 on PyTorch emits PTX for the architecture alone.
        ("sm90", "sm90", ANY_OF_ITS_FAMILY, []),
        ("sm100", "sm103", ANY_OF_ITS_FAMILY, ["compute capability: sm100"]),
    ],
)
def test_a_newer_gpu_of_the_family_runs_kernels_that_come_as_ptx(
    arch: str, has: str | None, native: NativeCode | None, needs: list[str]
) -> None:
    assert failures(arch, a_machine(has), native) == needs


def test_a_kernel_that_wants_more_shared_memory_than_the_gpu_has_is_an_axis() -> None:
    hungry = replace(ANY_OF_ITS_FAMILY, shared_memory_bytes=128 * KIB)
    assert failures("sm80", a_machine("sm80", 163), hungry) == []
    assert failures("sm80", a_machine("sm86", 99), hungry) == ["shared memory: 128 KiB per block"]
    assert failures("sm80", a_machine("sm86"), hungry) == []


@pytest.mark.parametrize(
    ("arch", "has", "expected"),
    [
        ("sm80", "sm86", True),
        ("sm80", "sm80", False),
        ("sm86", "sm80", False),
        ("sm80", "sm90", False),
        ("sm90", "sm90", False),
    ],
)
def test_configs_are_read_only_where_they_can_change_the_answer(arch: str, has: str, expected: bool) -> None:
    assert may_be_portable(parse_target(f"torch2.13-cu130-{arch}"), a_machine(has)) is expected
