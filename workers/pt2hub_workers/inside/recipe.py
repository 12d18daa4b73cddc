"""The compiler options that make code and weights separable and the code portable within its target.

Each line has its measurement in facts/aoti.md, sections 0, 2, 4 and 14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch._inductor.config as inductor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.domain.targets import Target

STEM = "model"
"""Fixed file stem: part of kernel symbols, so that equal programs give equal bytes."""

_SIMD = {"x86_64": 1, "x86_64_v2": 1, "x86_64_v3": 256, "x86_64_v4": 512}
HOST_CODE_LEVEL = "x86_64_v3"
"""Host code of CUDA packages is launch glue: one level that every GPU machine has."""


CPU_ONLY = {"max_autotune_gemm_backends": "ATEN"}
"""Inductor's own matrix product for CPUs packs weights into constants of its own at compile time, and ignores
swapped weights (facts/aoti.md, section 4; the gate catches it): with separate weights it is left out."""


def compile_options(target: Target, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Inductor's options for a target.

    Args:
        target: Decides the instruction set.
        asked: What the spec adds (`domain.specs.COMPILE_OPTIONS`).
    """
    level = target.arch if target.device == "cpu" else HOST_CODE_LEVEL
    wanted = {
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.package_constants_on_disk_format": "binary_blob",
        "always_keep_tensor_constants": True,  # else small tensors are inlined as literals
        "joint_graph_constant_folding": False,  # else values derived from uniform weights are folded
        "cpp.dynamic_threads": True,  # else built on few cores it crashes on more
        "cpp.simdlen": _SIMD[level],
        "cpp.march": "x86-64" + level.removeprefix("x86_64").replace("_", "-"),
        "aot_inductor.enable_line_tables": False,  # 70 % of a small package
        "aot_inductor.model_name_for_generated_files": STEM,
    }
    options = {key: value for key, value in wanted.items() if _known(key)} | dict(asked)
    return options | CPU_ONLY if target.device == "cpu" else options


def _known(option: str) -> bool:
    """Whether this torch has the option: 2.11 lacks cpp.march and enable_line_tables, and refuses unknown ones."""
    holder: Any = inductor
    for part in option.split("."):
        if not hasattr(holder, part):
            return False
        holder = getattr(holder, part)
    return True
