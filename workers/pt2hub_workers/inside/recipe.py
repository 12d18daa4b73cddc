"""The compiler options that make code and weights separable, or one, and the code portable within its target.

Each line has its measurement in facts/aoti.md, sections 0, 2, 4 and 14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch._inductor.config as inductor

from pt2hub_workers.inside.files import STEM

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pt2hub.domain.targets import Target

_SIMD = {"x86_64": 1, "x86_64_v2": 1, "x86_64_v3": 256, "x86_64_v4": 512}
HOST_CODE_LEVEL = "x86_64_v3"
"""Host code of CUDA packages is launch glue: one level that every GPU machine has."""


CPU_ONLY = {"max_autotune_gemm_backends": "ATEN"}
"""Inductor's own matrix product for CPUs packs weights into constants of its own at compile time, and ignores
swapped weights (facts/aoti.md, section 4; the gate catches it): with separate weights it is left out."""


def compile_options(target: Target, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Inductor's options for code whose weights can be exchanged.

    Args:
        target: Decides the instruction set.
        asked: What the spec adds (`domain.specs.COMPILE_OPTIONS`).
    """
    separable = {
        "always_keep_tensor_constants": True,  # else small tensors are inlined as literals
        "joint_graph_constant_folding": False,  # else values derived from uniform weights are folded
    }
    options = _portable(target) | separable | dict(asked)
    return options | CPU_ONLY if target.device == "cpu" else options


def frozen_options(target: Target, asked: Mapping[str, Any], dtypes: Collection[str]) -> dict[str, Any]:
    """Inductor's options for code into which the weights are frozen; its compiler must run without gradients.

    Args:
        target: Decides the instruction set.
        asked: As for `compile_options`.
        dtypes: Those of the program's constants, torch's names without the prefix.
    """
    options = _portable(target) | {"freezing": True}
    if target.device == "cpu" and not _packs(_level(target), dtypes):
        options["cpp.weight_prepack"] = False
    return options | dict(asked)


def _packs(level: str, dtypes: Collection[str]) -> bool:
    """Whether every CPU of a level runs oneDNN's products of packed weights in these dtypes.

    Inductor asks the machine it compiles on. They are there for bfloat16 from AVX-512 on and for float16 on some
    CPUs beyond (torch 2.13, `mkldnn_bf16_device_check` and `mkldnn_fp16_device_check`); elsewhere the call fails.
    Weights packed in float32 are put into another order where a CPU wants one: seen with ONEDNN_MAX_CPU_ISA from
    SSE41 to AVX512_CORE.
    """
    return "float16" not in dtypes and ("bfloat16" not in dtypes or level == "x86_64_v4")


def _level(target: Target) -> str:
    return target.arch if target.device == "cpu" else HOST_CODE_LEVEL


def _portable(target: Target) -> dict[str, Any]:
    level = _level(target)
    wanted = {
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.package_constants_on_disk_format": "binary_blob",
        "cpp.dynamic_threads": True,  # else built on few cores it crashes on more
        "cpp.simdlen": _SIMD[level],
        "cpp.march": "x86-64" + level.removeprefix("x86_64").replace("_", "-"),
        "aot_inductor.enable_line_tables": False,  # 70 % of a small package
        "aot_inductor.model_name_for_generated_files": STEM,
    }
    return {key: value for key, value in wanted.items() if _known(key)}


def _known(option: str) -> bool:
    """Whether this torch has the option: 2.11 lacks cpp.march and enable_line_tables, and refuses unknown ones."""
    holder: Any = inductor
    for part in option.split("."):
        if not hasattr(holder, part):
            return False
        holder = getattr(holder, part)
    return True
