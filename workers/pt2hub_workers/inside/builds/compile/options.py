"""Compiler options that separate code from weights or freeze both together, and make code portable within its target.

docs/facts/aoti.md#compile-options has a measurement for each option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch._inductor.config as inductor

from pt2hub.errors import InvalidInput
from pt2hub_workers.inside.operations.files import STEM

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pt2hub.domain.targets import Target

_SIMD = {"x86_64": 1, "x86_64_v2": 1, "x86_64_v3": 256, "x86_64_v4": 512}
HOST_CODE_LEVEL = "x86_64_v3"
"""CPU level of the host code in CUDA packages: it only launches kernels, and every GPU machine has this level."""


CPU_ONLY = {"max_autotune_gemm_backends": "ATEN"}
"""Options for CPUs with separate weights. Inductor's own matrix product packs weights into its own constants at compile
time and ignores swapped weights (docs/facts/aoti.md#compile-options; verification detects it)."""


def compile_options(target: Target, requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return Inductor's options for code with exchangeable weights.

    Args:
        requested: Options of the spec (`domain.publishing.spec.COMPILE_OPTIONS`).
    """
    separable = {
        "always_keep_tensor_constants": True,  # else small tensors are inlined as literals
        "joint_graph_constant_folding": False,  # else values derived from uniform weights are folded
    }
    options = _portable(target) | separable | dict(requested)
    return options | CPU_ONLY if target.device == "cpu" else options


def frozen_options(target: Target, requested: Mapping[str, Any], dtypes: Collection[str]) -> dict[str, Any]:
    """Return Inductor's options for code with frozen weights; it must be compiled without gradients."""
    options = _portable(target) | {"freezing": True}
    if target.device == "cpu" and not _can_prepack(_level(target), dtypes):
        options["cpp.weight_prepack"] = False
    return options | dict(requested)


def _can_prepack(level: str, dtypes: Collection[str]) -> bool:
    """Return whether every CPU of a level supports oneDNN's products of packed weights in these dtypes.

    Inductor checks only the machine that it compiles on. They need AVX-512 for bfloat16, and more for float16 (torch
    2.13, `mkldnn_bf16_device_check` and `mkldnn_fp16_device_check`); on other CPUs the call fails. Weights packed in
    float32 are reordered at run time if a CPU needs another order: seen with ONEDNN_MAX_CPU_ISA from SSE41 to
    AVX512_CORE.
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
    return {key: value for key, value in wanted.items() if _has_option(key)}


def require_options(requested: Mapping[str, Any]) -> None:
    """Refuse options of a spec that this torch lacks, with the option's name.

    Raises:
        InvalidInput: An option does not exist in this release.
    """
    if missing := sorted(name for name in requested if not _has_option(name)):
        raise InvalidInput(
            f"torch {torch.__version__} has no option {', '.join(missing)}",
            where="compile.options",
            hint="Leave it out, or set it only for targets of a newer torch: targets have options of their own.",
        )


def _has_option(option: str) -> bool:
    """Return whether this torch has an option: 2.11 lacks cpp.march and enable_line_tables, and refuses unknown options."""
    holder: Any = inductor
    for part in option.split("."):
        if not hasattr(holder, part):
            return False
        holder = getattr(holder, part)
    return True
