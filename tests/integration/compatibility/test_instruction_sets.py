"""The instruction-set axis against emulated CPUs: what is called compatible runs there, and the rest ends with SIGILL."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from pt2hub.domain.artifacts import NativeCode
from pt2hub.domain.compatibility.assessment import assess_compatibility
from pt2hub.domain.compatibility.hosts import Host
from pt2hub.domain.targets import CPU_LEVELS, Target, cpu_level
from pt2hub_workers.inside.builds.compile.native import inspect_libraries
from support.emulator import emulator

CPUS = {
    "kvm64": "x86_64",
    "Nehalem": "x86_64_v2",
    "SandyBridge": "x86_64_v2",
    "Haswell": "x86_64_v3",
}
"""CPUs of the emulator by level; none has AVX-512, which it does not emulate."""

# What vectorisers and intrinsics use at each level; the compiler chooses the instructions by its flags.
CODE = r"""
#include <stdint.h>
static float a[512], b[512], c[512];
static uint64_t bits[64];
float run(int seed) {
    for (int i = 0; i < 512; i++) { a[i] = seed + i; b[i] = i * 0.5f; c[i] = i; }
    for (int i = 0; i < 512; i++) c[i] = a[i] * b[i] + c[i];
    float sum = 0;
    for (int i = 0; i < 512; i++) sum += c[i];
    for (int i = 0; i < 64; i++) { bits[i] = c[i]; sum += __builtin_popcountll(bits[i]); }
    return sum;
}
"""
LOADER = r"""
#include <cpuid.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
struct flag { unsigned leaf, place, bit; const char *name; };  // place: 1 ebx, 2 ecx, 3 edx
static const struct flag flags[] = {
    {1, 3, 0, "fpu"}, {1, 3, 8, "cx8"}, {1, 3, 15, "cmov"}, {1, 3, 23, "mmx"}, {1, 3, 24, "fxsr"}, {1, 3, 25, "sse"},
    {1, 3, 26, "sse2"}, {1, 2, 9, "ssse3"}, {1, 2, 12, "fma"}, {1, 2, 13, "cx16"}, {1, 2, 19, "sse4_1"},
    {1, 2, 20, "sse4_2"}, {1, 2, 22, "movbe"}, {1, 2, 23, "popcnt"}, {1, 2, 26, "xsave"}, {1, 2, 28, "avx"},
    {1, 2, 29, "f16c"}, {7, 1, 3, "bmi1"}, {7, 1, 5, "avx2"}, {7, 1, 8, "bmi2"}, {7, 1, 16, "avx512f"},
    {7, 1, 17, "avx512dq"}, {7, 1, 28, "avx512cd"}, {7, 1, 30, "avx512bw"}, {7, 1, 31, "avx512vl"},
    {7, 2, 11, "avx512_vnni"}, {0x80000001, 2, 0, "lahf_lm"}, {0x80000001, 2, 5, "abm"}, {0x80000001, 3, 11, "syscall"},
};
int main(int count, char **names) {
    if (count == 1) {
        for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
            unsigned found[4] = {0};
            __get_cpuid_count(flags[i].leaf, 0, found, found + 1, found + 2, found + 3);
            if (found[flags[i].place] >> flags[i].bit & 1) puts(flags[i].name);
        }
        return 0;
    }
    void *library = dlopen(names[1], RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 3; }
    float (*run)(int) = (float (*)(int))dlsym(library, "run");
    printf("%.1f\n", run(count));
    return 0;
}
"""


@dataclass(frozen=True)
class Library:
    path: Path
    target: Target
    native: NativeCode


def compiled(folder: Path, level: str, *flags: str) -> Library:
    """A library as the compiler makes it for a level, and what the worker records of it."""
    path = folder / f"{'-'.join((level, *flags))}.so"
    options = [
        f"-march={level.replace('_', '-')}",
        *(f"-m{flag}" for flag in flags),
    ]
    command = [
        "gcc",
        "-O3",
        "-ffast-math",
        "-mprefer-vector-width=512",
        *options,
        "-shared",
        "-fPIC",
        "-x",
        "c",
        "-",
    ]
    subprocess.run([*command, "-o", str(path)], input=CODE, text=True, check=True)
    told = f"// g++ {' '.join(options)} -shared"
    native = inspect_libraries([path], [told], level=level, host_flags=frozenset())
    return Library(path, Target("2.13", "cpu", level), native)


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loader") / "loader"
    subprocess.run(
        ["gcc", "-O1", "-x", "c", "-", "-o", str(path), "-ldl"], input=LOADER, text=True, check=True
    )
    return path


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> list[Library]:
    folder = tmp_path_factory.mktemp("libraries")
    plain = [compiled(folder, level) for level in CPU_LEVELS]
    return [*plain, compiled(folder, "x86_64_v2", "avx"), compiled(folder, "x86_64_v2", "avx", "avx2", "fma")]


def on(cpu: str, *command: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "QEMU_"))}
    return subprocess.run(
        [emulator(), "-cpu", cpu, *map(str, command)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("cpu", CPUS)
def test_what_is_called_compatible_runs_and_the_rest_ends_with_sigill(
    cpu: str, loader: Path, libraries: list[Library]
) -> None:
    flags = frozenset(on(cpu, loader).stdout.split())
    assert cpu_level(flags) == CPUS[cpu]
    host = Host("linux", "x86_64", "2.13", flags)
    ended = {library.path.stem: on(cpu, loader, library.path) for library in libraries}
    told = {item.path.stem: assess_compatibility(item.target, host, item.native).runs for item in libraries}
    ran = {name: process.returncode == 0 for name, process in ended.items()}
    assert ran == told
    assert {process.returncode for process in ended.values()} <= {0, -signal.SIGILL, 128 + signal.SIGILL}
    assert len({process.stdout for process in ended.values() if process.returncode == 0}) == 1


def test_the_cpus_and_libraries_tell_the_axis_apart(loader: Path, libraries: list[Library]) -> None:
    ran = {
        (cpu, library.path.stem)
        for cpu in ("Nehalem", "Haswell")
        for library in libraries
        if on(cpu, loader, library.path).returncode == 0
    }
    assert ran == {
        ("Nehalem", "x86_64"),
        ("Nehalem", "x86_64_v2"),
        ("Haswell", "x86_64"),
        ("Haswell", "x86_64_v2"),
        ("Haswell", "x86_64_v2-avx"),
        ("Haswell", "x86_64_v2-avx-avx2-fma"),
        ("Haswell", "x86_64_v3"),
    }
