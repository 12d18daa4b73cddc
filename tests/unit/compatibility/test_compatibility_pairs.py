"""Artifacts and machines: whether one runs on the other, and on which axes not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pt2hub.domain.artifacts import NativeCode
from pt2hub.domain.compatibility.assessment import assess_compatibility
from pt2hub.domain.compatibility.hosts import Host
from pt2hub.domain.targets import flags_of_level, parse_target

KIB = 1024
SHIM = frozenset(f"aoti_torch_{name}" for name in ("empty_strided", "delete_tensor_object", "cpu_mm_out"))
NEW_SHIM = "aoti_torch_cpu_new_operator"
LIBC = {"glibc": "2.36", "glibcxx": "3.4.30"}


def machine(level: str = "x86_64_v4", torch: str | None = "2.13", *flags: str, **properties: object) -> Host:
    given: dict[str, object] = {"aoti_symbols": SHIM, "operator_libraries": {}, **LIBC, **properties}
    host = Host("linux", "x86_64", torch, flags_of_level(level) | set(flags))
    return replace(host, **given)  # type: ignore[arg-type]  # names and values as in Host


def with_gpu(sm: str | None, torch: str = "2.13", cuda: str | None = "130", **properties: object) -> Host:
    given: dict[str, object] = {"driver": "580.82.07", "driver_cuda": "13.0", **properties}
    return machine("x86_64_v3", torch, sm=sm, cuda=cuda, **given)


HOSTS = {
    "v4": machine(),
    "v4 with vnni": machine("x86_64_v4", "2.13", "avx512_vnni"),
    "v4 with amx": machine("x86_64_v4", "2.13", "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8"),
    "v3": machine("x86_64_v3"),
    "v3 with vnni alone": machine("x86_64_v3", "2.13", "avx_vnni"),
    "v2": machine("x86_64_v2"),
    "v2 with avx": machine("x86_64_v2", "2.13", "avx", "xsave"),
    "v1": machine("x86_64"),
    "old libc": machine(glibc="2.28", glibcxx="3.4.25"),
    "old libstdc++": machine(glibcxx="3.4.29"),
    "newer libraries": machine(glibc="2.41", glibcxx="3.4.33"),
    "libraries unknown": machine(glibc=None, glibcxx=None),
    "two-digit libc": machine(glibc="2.9"),
    "darwin": replace(machine(), os="darwin"),
    "aarch64": replace(machine(), machine="aarch64"),
    "torch 2.11": machine(torch="2.11"),
    "torch 2.14": machine(torch="2.14", aoti_symbols=SHIM | {NEW_SHIM}),
    "torch 2.14, functions unknown": machine(torch="2.14", aoti_symbols=None),
    "no torch": machine(torch=None, aoti_symbols=None),
    "torchvision": machine(operator_libraries={"torchvision": "0.28.0"}),
    "older torchvision": machine(operator_libraries={"torchvision": "0.27.1"}),
    "operators in process": machine(operator_libraries={"torchvision": ""}),
    "packages unknown": machine(operator_libraries=None),
    "a100": with_gpu("sm80", shared_memory_bytes=163 * KIB),
    "rtx 3090": with_gpu("sm86", shared_memory_bytes=99 * KIB),
    "rtx 3090 as described": with_gpu("sm86"),
    "orin": with_gpu("sm87", shared_memory_bytes=163 * KIB),
    "l4": with_gpu("sm89", shared_memory_bytes=99 * KIB),
    "t4": with_gpu("sm75", shared_memory_bytes=64 * KIB),
    "h100": with_gpu("sm90", shared_memory_bytes=227 * KIB),
    "b200": with_gpu("sm100", shared_memory_bytes=227 * KIB),
    "b300": with_gpu("sm103", shared_memory_bytes=227 * KIB),
    "rtx 5090": with_gpu("sm120", shared_memory_bytes=99 * KIB),
    "gb10": with_gpu("sm121", shared_memory_bytes=99 * KIB),
    "unknown gpu": with_gpu("sm88"),
    "h100, cpu torch": with_gpu("sm90", cuda=None),
    "h100, torch 2.11": with_gpu("sm90", "2.11"),
    "h100, torch for cuda 12.8": with_gpu("sm90", cuda="128"),
    "h100, torch for cuda 12.6": with_gpu("sm90", cuda="126"),
    "h100, driver for 12.4": with_gpu("sm90", cuda="128", driver="550.54.14", driver_cuda="12.4"),
    "h100, driver for 11.8": with_gpu("sm90", cuda="128", driver="520.61.05", driver_cuda="11.8"),
    "h100, driver 525": with_gpu("sm90", cuda="128", driver="525.60.13", driver_cuda=None),
    "h100, driver 525.60.11": with_gpu("sm90", cuda="128", driver="525.60.11", driver_cuda=None),
    "h100, driver 580": with_gpu("sm90", driver="580.65.06", driver_cuda=None),
    "h100, cuda-compat": with_gpu("sm90", driver="535.54.03", driver_cuda="13.0"),
    "h100, driver unknown": with_gpu("sm90", driver=None, driver_cuda=None),
    "no gpu": with_gpu(None, driver=None, driver_cuda=None),
}


def code(level: str = "x86_64", *flags: str, **properties: object) -> NativeCode:
    plain = NativeCode(level, flags, (), tuple(sorted(SHIM)), "2.34", "3.4.30")
    return replace(plain, **properties)  # type: ignore[arg-type]  # names and values as in NativeCode


def kernels(shared_kib: int = 48) -> NativeCode:
    return code(shared_memory_bytes=shared_kib * KIB)


V4, V3, V2, V1 = (f"torch2.13-cpu-{level}" for level in ("x86_64_v4", "x86_64_v3", "x86_64_v2", "x86_64"))
ARTIFACTS = {
    "v4": (V4, code("x86_64_v4")),
    "v4 + vnni": (V4, code("x86_64_v4", "avx512vnni")),
    "v4 + amx": (V4, code("x86_64_v4", "avx512vnni", "amx-tile", "amx-bf16", "amx-int8")),
    "v3": (V3, code("x86_64_v3")),
    "v2": (V2, code("x86_64_v2")),
    "v2 + avx": (V2, code("x86_64_v2", "avx")),
    "v1": (V1, code("x86_64")),
    "v4 by target": (V4, None),
    "no libc recorded": (V1, code(glibc="", glibcxx="")),
    "libc unreadable": (V1, code(glibc="2.x")),
    "libstdc++ unreadable": (V1, code(glibcxx="3.4.thirty")),
    "calls a new function": (V1, code(aoti_symbols=(*sorted(SHIM), NEW_SHIM))),
    "functions not recorded": (V1, code(aoti_symbols=())),
    "nms": (V1, code(operators=("torchvision::nms",), operator_libraries={"torchvision": "0.28.0"})),
    "own operator": (V1, code(operators=("mine::act",))),
    "sm75": ("torch2.13-cu130-sm75", kernels()),
    "sm80": ("torch2.13-cu130-sm80", kernels()),
    "sm80, 128 KiB": ("torch2.13-cu130-sm80", kernels(128)),
    "sm80, no kernels": ("torch2.13-cu130-sm80", kernels(0)),
    "sm80 by target": ("torch2.13-cu130-sm80", None),
    "sm86": ("torch2.13-cu130-sm86", kernels()),
    "sm90": ("torch2.13-cu130-sm90", kernels(200)),
    "sm90a": ("torch2.13-cu130-sm90a", kernels(200)),
    "sm90, cuda 12.8": ("torch2.13-cu128-sm90", kernels(200)),
    "sm100": ("torch2.13-cu130-sm100", kernels(200)),
    "sm120": ("torch2.13-cu130-sm120", kernels()),
}

GOOD, DEGRADED, BAD = "compatible", "degraded", "incompatible"
PAIRS = [
    # Instruction sets: the level, and every flag beyond it.
    ("v4", "v4", GOOD, ""),
    ("v4", "v3", BAD, "cpu"),
    ("v4", "v2", BAD, "cpu"),
    ("v4", "v1", BAD, "cpu"),
    ("v4 + vnni", "v4", BAD, "cpu"),
    ("v4 + vnni", "v4 with vnni", GOOD, ""),
    ("v4 + vnni", "v3 with vnni alone", BAD, "cpu"),
    ("v4 + amx", "v4 with vnni", BAD, "cpu"),
    ("v4 + amx", "v4 with amx", GOOD, ""),
    ("v3", "v4", GOOD, ""),
    ("v3", "v3", GOOD, ""),
    ("v3", "v2 with avx", BAD, "cpu"),
    ("v2", "v3", GOOD, ""),
    ("v2", "v2", GOOD, ""),
    ("v2", "v1", BAD, "cpu"),
    ("v2 + avx", "v2", BAD, "cpu"),
    ("v2 + avx", "v2 with avx", GOOD, ""),
    ("v1", "v1", GOOD, ""),
    ("v4 by target", "v4", GOOD, ""),
    ("v4 by target", "v3", BAD, "cpu"),
    # Operating system and machine.
    ("v1", "darwin", BAD, "os"),
    ("v1", "aarch64", BAD, "machine"),
    # C and C++ library.
    ("v1", "old libc", BAD, "libc, libstdc++"),
    ("v1", "old libstdc++", BAD, "libstdc++"),
    ("v1", "newer libraries", GOOD, ""),
    ("v1", "libraries unknown", GOOD, ""),
    ("v1", "two-digit libc", BAD, "libc"),
    ("no libc recorded", "old libc", GOOD, ""),
    ("libc unreadable", "v1", BAD, "libc"),
    ("libstdc++ unreadable", "v1", BAD, "libstdc++"),
    # torch: the release line, else the functions of libtorch.
    ("v1", "torch 2.11", DEGRADED, "torch"),
    ("v1", "torch 2.14", DEGRADED, "torch"),
    ("calls a new function", "torch 2.14", DEGRADED, "torch"),
    ("calls a new function", "torch 2.11", BAD, "torch"),
    ("v1", "torch 2.14, functions unknown", BAD, "torch"),
    ("functions not recorded", "torch 2.14", BAD, "torch"),
    ("functions not recorded", "v1", GOOD, ""),
    ("v1", "no torch", BAD, "torch"),
    ("v4 by target", "torch 2.14, functions unknown", DEGRADED, "torch"),
    ("v4", "torch 2.11", DEGRADED, "torch"),
    # Operator libraries.
    ("nms", "torchvision", GOOD, ""),
    ("nms", "older torchvision", DEGRADED, "operator libraries"),
    ("nms", "v4", BAD, "operator libraries"),
    ("nms", "operators in process", GOOD, ""),
    ("nms", "packages unknown", GOOD, ""),
    ("own operator", "torchvision", BAD, "operator libraries"),
    # Compute capability: machine code runs on the same major and a newer minor one.
    ("sm80", "a100", GOOD, ""),
    ("sm80", "rtx 3090", DEGRADED, "compute capability"),
    ("sm80", "rtx 3090 as described", DEGRADED, "compute capability"),
    ("sm80", "orin", DEGRADED, "compute capability"),
    ("sm80", "l4", DEGRADED, "compute capability"),
    ("sm86", "a100", BAD, "compute capability"),
    ("sm86", "l4", DEGRADED, "compute capability"),
    ("sm80", "t4", BAD, "compute capability"),
    ("sm75", "t4", GOOD, ""),
    ("sm75", "a100", BAD, "compute capability"),
    ("sm80", "h100", BAD, "compute capability"),
    ("sm80 by target", "rtx 3090", DEGRADED, "compute capability"),
    # ... where each kernel's shared memory fits.
    ("sm80, 128 KiB", "a100", GOOD, ""),
    ("sm80, 128 KiB", "rtx 3090", BAD, "shared memory"),
    ("sm80, 128 KiB", "rtx 3090 as described", BAD, "shared memory"),
    ("sm80, 128 KiB", "orin", DEGRADED, "compute capability"),
    ("sm80", "unknown gpu", BAD, "shared memory"),
    ("sm80, no kernels", "unknown gpu", DEGRADED, "compute capability"),
    # Architecture-specific code runs on its own capability alone.
    ("sm90", "h100", GOOD, ""),
    ("sm90a", "h100", GOOD, ""),
    ("sm90", "b200", BAD, "compute capability"),
    ("sm100", "b200", GOOD, ""),
    ("sm100", "b300", BAD, "compute capability"),
    ("sm120", "rtx 5090", GOOD, ""),
    ("sm120", "gb10", BAD, "compute capability"),
    # CUDA and its driver.
    ("sm90, cuda 12.8", "h100, torch for cuda 12.8", GOOD, ""),
    ("sm90, cuda 12.8", "h100, torch for cuda 12.6", DEGRADED, "cuda"),
    ("sm90, cuda 12.8", "h100", BAD, "cuda"),
    ("sm90", "h100, torch for cuda 12.8", BAD, "cuda"),
    ("sm90, cuda 12.8", "h100, driver for 12.4", DEGRADED, "driver"),
    ("sm90, cuda 12.8", "h100, driver for 11.8", BAD, "driver"),
    ("sm90, cuda 12.8", "h100, driver 525", DEGRADED, "driver"),
    ("sm90, cuda 12.8", "h100, driver 525.60.11", BAD, "driver"),
    ("sm90", "h100, driver 580", GOOD, ""),
    ("sm90", "h100, cuda-compat", GOOD, ""),
    ("sm90", "h100, driver unknown", GOOD, ""),
    # The device, and several axes at once.
    ("sm90", "no gpu", BAD, "device"),
    ("sm90", "h100, cpu torch", BAD, "cuda"),
    ("sm90", "v4", BAD, "device, cuda"),
    ("sm90", "no torch", BAD, "torch, device"),
    ("sm90", "h100, torch 2.11", DEGRADED, "torch"),
    ("v3", "h100", GOOD, ""),
    ("v4", "h100", BAD, "cpu"),
]


@pytest.mark.parametrize(("artifact", "host", "state", "axes"), PAIRS)
def test_an_artifact_on_a_machine(artifact: str, host: str, state: str, axes: str) -> None:
    name, native = ARTIFACTS[artifact]
    found = assess_compatibility(parse_target(name), HOSTS[host], native)
    assert (str(found.state), ", ".join(item.axis for item in found.reasons)) == (state, axes)
    assert found.runs is (state != BAD)
    assert all(item.needs and item.has for item in found.findings)


def test_the_table_has_enough_pairs_and_each_of_its_machines_and_artifacts() -> None:
    assert len({pair[:2] for pair in PAIRS}) == len(PAIRS) >= 60
    assert {pair[0] for pair in PAIRS} == ARTIFACTS.keys()
    assert {pair[1] for pair in PAIRS} == HOSTS.keys()


@pytest.mark.parametrize(
    ("artifact", "host", "text"),
    [
        ("v4 + vnni", "v4", "cpu: needs x86_64_v4, avx512vnni, has no avx512_vnni"),
        ("v1", "old libstdc++", "libstdc++: needs GLIBCXX 3.4.30 or newer, has GLIBCXX 3.4.29"),
        ("v1", "torch 2.11", "runs here, degraded: torch: needs 2.13, has 2.11, which has the 3 functions "),
        ("calls a new function", "torch 2.11", f"torch: needs 2.13, has 2.11 without {NEW_SHIM}"),
        ("nms", "v4", "operator libraries: needs torchvision 0.28.0, has no torchvision"),
        ("sm80, 128 KiB", "rtx 3090", "shared memory: needs 128 KiB per block, has 99 KiB"),
        ("sm100", "b300", "compute capability: needs exactly sm100, as its code is specific to it, has sm103"),
        ("sm90, cuda 12.8", "h100, driver for 11.8", "driver: needs a driver for CUDA 12.8, 525.60.13 or newer, has 520.61.05, CUDA 11.8"),
        ("sm90, cuda 12.8", "h100, driver for 12.4", "runs here, degraded: driver: needs a driver for CUDA 12.8, has 550.54.14, CUDA 12.4"),
        ("sm90", "v4", "device: needs a CUDA GPU, has no GPU; cuda: needs 13.0, has a CPU build"),
    ],
)  # fmt: skip
def test_a_reason_says_what_is_needed_and_what_is_there(artifact: str, host: str, text: str) -> None:
    name, native = ARTIFACTS[artifact]
    assert str(assess_compatibility(parse_target(name), HOSTS[host], native)).startswith(text)


@pytest.mark.parametrize(("artifact", "host", "state", "axes"), PAIRS)
def test_a_config_never_improves_what_the_target_says(
    artifact: str, host: str, state: str, axes: str
) -> None:
    name, native = ARTIFACTS[artifact]
    target, machine = parse_target(name), HOSTS[host]
    by_target = assess_compatibility(target, machine)
    whole = assess_compatibility(target, machine, native)
    assert by_target.state.rank <= whole.state.rank, (state, axes)
