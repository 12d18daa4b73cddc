"""Environment of child processes: an allow list of the worker's variables, at both levels, without secrets."""

from __future__ import annotations

import os
import site
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub.client.config import CPU_LEVEL
from pt2hub_workers.inside.builds.shortage import OWN_TMP

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRETS = ("PT2HUB_DATABASE_URL", "PT2HUB_TOKEN", "PT2HUB_STORAGE", "AWS_", "PG")
"""Prefixes of variables that no child process gets, even if listed elsewhere."""
NAMES = (
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LANGUAGE", "TZ"),
    *(
        "PYTHONPATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
        "PYTHONWARNINGS",
    ),
    *("PYTHONNOUSERSITE", "PYTHONUSERBASE", "VIRTUAL_ENV"),
    *("CC", "CXX", "CUDAHOSTCXX", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CPLUS_INCLUDE_PATH"),
    *("HF_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),  # no prefix: HF_TOKEN is a secret
)
PREFIXES = (
    *("LC_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "DNNL_", "ONEDNN_", "MALLOC_"),
    *("TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "PYTORCH_", "ATEN_", "AOTI_", "TRITON_"),
    *("CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_"),
)
_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME")
"""Directories of the worker that sandboxed children must not share; every job sets its own."""
_AT_LEVEL: dict[str, tuple[str, str, str]] = {
    "x86_64": ("default", "SSE41", "SSE4_2"),  # the lowest level of these libraries
    "x86_64_v2": ("default", "SSE41", "SSE4_2"),
    "x86_64_v3": ("avx2", "AVX2", "AVX2"),
    "x86_64_v4": ("avx512", "AVX512_CORE", "AVX512"),
}
"""Highest instruction sets of ATen, oneDNN and MKL, by CPU level."""
_USER = "pt2hub"
TMPFS = ("/tmp", "/dev/shm")  # noqa: S108  # the child's own
"""Directories in memory, separate for every sandboxed child."""


def allow_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the worker's environment that children get, without the operator's additions."""
    kept = {key: value for key, value in environ.items() if key in NAMES or key.startswith(PREFIXES)}
    return without_secrets(kept)


def at_level(level: str | None) -> dict[str, str]:
    """Return the variables that limit a child to a CPU level, for pt2hub and for torch's own operators."""
    if level is None:
        return {}
    aten, onednn, mkl = _AT_LEVEL[level]
    return {
        CPU_LEVEL: level,
        "ATEN_CPU_CAPABILITY": aten,
        "ONEDNN_MAX_CPU_ISA": onednn,
        "MKL_ENABLE_INSTRUCTIONS": mkl,
    }


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without secrets."""
    return {key: value for key, value in environ.items() if not key.startswith(SECRETS)}


def confine_variables(environ: Mapping[str, str], *, home: str) -> dict[str, str]:
    """Return the environment of a sandboxed child, which sees other directories than the worker."""
    kept = {key: value for key, value in without_secrets(environ).items() if key not in _CACHES}
    if path := kept.get("PYTHONPATH"):  # the working directory differs
        kept["PYTHONPATH"] = os.pathsep.join(
            str(Path(part).absolute()) for part in path.split(os.pathsep) if part
        )
    if site.ENABLE_USER_SITE:  # found by HOME, which differs as well
        kept.setdefault("PYTHONUSERBASE", site.getuserbase())
    return {
        "LANG": "C.UTF-8",
        "PATH": os.defpath,
        **kept,
        "HOME": home,
        "TMPDIR": TMPFS[0],
        OWN_TMP: os.pathsep.join(TMPFS),
        "USER": _USER,  # Inductor names directories after it, and the sandbox has no list of users
        "LOGNAME": _USER,
    }
