"""The machines of the story: two generations of processors, four kinds of GPU, a driver that was changed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pt2hub.domain.artifacts import Environment, Toolchain
from pt2hub.domain.targets import Target, parse_target

DRIVER_DAY = 128.0
"""When the GPU machines got another driver: from then on their figures make new series."""
PROCESSOR_DAY = 152.0
"""When the machines of `x86_64_v4` were replaced by the next generation."""
OLDER, NEWER = "2.11", "2.13"
_GIB = 1 << 30
_CUDA = "13.0"
_DRIVERS = ("570.172.08", "580.95.05")
_RELEASES = {OLDER: ("2.11.0", "3.6.0"), NEWER: ("2.13.0", "3.8.0")}
"""torch and triton by line."""
_V4 = "x86_64_v4"
_ICE_LAKE = Environment(
    "Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz", _V4, 8, 32 * _GIB, threads=8, governor="performance"
)
_SAPPHIRE = replace(_ICE_LAKE, cpu_model="Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", cpu_max_mhz=3800)
_MILAN = Environment(
    "AMD EPYC 7B13 64-Core Processor", "x86_64_v3", 8, 32 * _GIB, threads=8, governor="performance"
)
_GPUS = {
    "sm75": Environment(
        "Intel(R) Xeon(R) CPU @ 2.00GHz", _V4, 8, 30 * _GIB, gpu="Tesla T4", gpu_power_limit_w=70
    ),
    "sm80": Environment(
        "AMD EPYC 7763 64-Core Processor",
        "x86_64_v3",
        12,
        85 * _GIB,
        gpu="NVIDIA A100-SXM4-80GB",
        gpu_power_limit_w=400,
    ),
    "sm89": Environment(
        "Intel(R) Xeon(R) CPU @ 2.20GHz", _V4, 8, 32 * _GIB, gpu="NVIDIA L4", gpu_power_limit_w=72
    ),
    "sm90": Environment(
        "Intel(R) Xeon(R) Platinum 8480+",
        _V4,
        26,
        200 * _GIB,
        gpu="NVIDIA H100 80GB HBM3",
        gpu_power_limit_w=700,
    ),
    "sm100": Environment(
        "Intel(R) Xeon(R) 6767P", _V4, 26, 240 * _GIB, gpu="NVIDIA B200", gpu_power_limit_w=1000
    ),
}
_HOSTS = {
    "sm75": "gpu-t4",
    "sm80": "gpu-a100",
    "sm89": "gpu-l4",
    "sm90": "gpu-h100",
    "sm100": "gpu-b200",
    "x86_64_v3": "cpu-milan",
    _V4: "cpu-xeon",
}
FLAGS = {
    "x86_64_v3": ("avx2", "fma", "f16c"),
    _V4: ("avx512f", "avx512dq", "avx512vl", "avx512bw", "fma", "avx512vnni"),
}
"""What the compiler was told of processors, by level."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A worker's machine.

    Attributes:
        target: What it builds for.
        environment: Its fingerprint.
        toolchain: The versions that shape its code.
        host: The beginning of its name.
    """

    target: Target
    environment: Environment
    toolchain: Toolchain
    host: str

    def worker(self, number: int) -> str:
        """Name of one of the workers on such machines."""
        return f"{self.host}-{number}-{self.target.torch.replace('.', '')}"


def target_name(arch: str, line: str) -> str:
    """The target of an architecture for a line of torch."""
    return f"torch{line}-cu130-{arch}" if arch.startswith("sm") else f"torch{line}-cpu-{arch}"


def machine(arch: str, line: str, day: float) -> Machine:
    """The machine that built for an architecture on a day."""
    release, triton = _RELEASES[line]
    gpu = arch in _GPUS
    torch = f"{release}+{'cu130' if gpu else 'cpu'}"
    driver = _DRIVERS[day >= DRIVER_DAY]
    base = _GPUS.get(arch) or (_MILAN if arch != _V4 else (_ICE_LAKE, _SAPPHIRE)[day >= PROCESSOR_DAY])
    environment = replace(base, torch=torch, container="kubernetes", isolation="sandbox")
    toolchain = Toolchain(
        torch=torch,
        python="3.11.9" if line == OLDER else "3.12.7",
        compiler="g++ (Debian 12.2.0-14) 12.2.0" if line == OLDER else "g++ (Debian 14.2.0-19) 14.2.0",
        libc="glibc 2.36" if line == OLDER else "glibc 2.41",
        pt2hub="0.1.0",
    )
    if gpu:
        environment = replace(environment, driver=driver, cuda=_CUDA, triton=triton)
        toolchain = replace(toolchain, driver=driver, cuda=_CUDA, triton=triton)
    return Machine(parse_target(target_name(arch, line)), environment, toolchain, _HOSTS[arch])


def quickness(arch: str, line: str, day: float) -> float:
    """How a call's time differs from that on the first machines with the older torch."""
    gpu = arch in _GPUS
    torch = {"sm90": 0.87, "sm80": 0.91, "sm89": 0.93}.get(arch, 0.96) if line == NEWER else 1.0
    driver = 0.985 if gpu and day >= DRIVER_DAY else 1.0
    processor = 0.81 if arch == _V4 and day >= PROCESSOR_DAY else 1.0
    return torch * driver * processor
