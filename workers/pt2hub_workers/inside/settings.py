"""Process-wide settings that shape generated code or its results."""

from __future__ import annotations

import os
from typing import Any

import torch


def numeric_settings() -> dict[str, Any]:
    """What a source may have changed on import and the compiler reads (facts/aoti.md, section 16)."""
    return {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        "cuda_matmul_allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "default_dtype": str(torch.get_default_dtype()),
        "sdpa": {
            "flash": torch.backends.cuda.flash_sdp_enabled(),
            "mem_efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
            "math": torch.backends.cuda.math_sdp_enabled(),
        },
        "environment": {key: value for key, value in sorted(os.environ.items()) if _shapes_code(key)},
    }


def compiler_configuration() -> dict[str, str]:
    """Every portable setting of Inductor and Dynamo, as text, for comparing before and after an import."""
    import torch._dynamo.config
    import torch._inductor.config

    return {
        f"{name}.{key}": repr(value)
        for name, module in (("inductor", torch._inductor.config), ("dynamo", torch._dynamo.config))  # noqa: SLF001  # compilers are configured through private modules
        for key, value in module.save_config_portable().items()
    }


def changed(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """The settings that differ, with their new values."""
    return {key: value for key, value in after.items() if before.get(key) != value}


def _shapes_code(variable: str) -> bool:
    local = ("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS")
    return variable.startswith(("TORCHINDUCTOR_", "TORCHDYNAMO_")) and variable not in local
