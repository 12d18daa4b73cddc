"""Process-wide settings that shape generated code or its results, and those that the build itself relies on."""

from __future__ import annotations

import importlib
import os
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.domain.digests import canonical_json, digest_json
from pt2hub_workers.inside.builds.key.code_values import CodeValues
from pt2hub_workers.inside.builds.key.global_names import NoDigest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_DIRECTORIES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR")
"""Variables with the build's own directories (`compile.caches.isolate_caches`)."""
UNNAMED = "without a digest: "
"""Prefix of the text of a compiler setting that is code without a digest."""
_VARIABLES = (
    *(
        "CFLAGS",
        "CXXFLAGS",
        "CPPFLAGS",
        "LDFLAGS",
        "CPATH",
        "C_INCLUDE_PATH",
        "CPLUS_INCLUDE_PATH",
        "LIBRARY_PATH",
    ),
    *("COMPILER_PATH", "GCC_EXEC_PREFIX", "CUDAHOSTCXX", "CUDA_HOME", "CUDA_PATH", "TORCH_CUDA_ARCH_LIST"),
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG"),
)
"""Variables that compilers and libraries read; not CXX, because the toolchain contains the compiler's version."""
_PREFIXES = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TRITON_", "AOTI_", "ATEN_", "ONEDNN_", "DNNL_")
_LOCAL = frozenset({*_DIRECTORIES, "TORCHINDUCTOR_COMPILE_THREADS", "TRITON_HOME"})
_CONFIGURATIONS = {
    "inductor": "torch._inductor.config",
    "dynamo": "torch._dynamo.config",
    "functorch": "torch._functorch.config",
    "fx": "torch.fx.experimental._config",
    "compiler": "torch.compiler.config",
}
_PRECISIONS = (
    "",
    *("cuda.matmul", "cudnn", "cudnn.conv", "cudnn.rnn"),
    *("mkldnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn"),
)
"""Paths below `torch.backends` with the setting `fp32_precision`."""
_MAX_TEXT = 300
"""Maximum length of a setting's value as text; longer values are replaced by their digest."""
_entered_modes: list[torch.inference_mode] = []
"""Inference modes kept alive, because torch leaves a mode when it is collected."""


def numeric_settings() -> dict[str, Any]:
    """Return the settings that the compiler reads and a source may have changed (docs/facts/aoti.md#settings-of-the-process)."""
    return {
        "matmul_precision": _read_unless_mixed(torch.get_float32_matmul_precision),
        "cudnn_allow_tf32": _read_unless_mixed(lambda: torch.backends.cudnn.allow_tf32),
        "cuda_matmul_allow_tf32": _read_unless_mixed(lambda: torch.backends.cuda.matmul.allow_tf32),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "mkldnn": torch.backends.mkldnn.enabled,
        "autocast": {device: torch.is_autocast_enabled(device) for device in ("cpu", "cuda")},
        "default_dtype": str(torch.get_default_dtype()),
        "sdpa": {
            "flash": torch.backends.cuda.flash_sdp_enabled(),
            "mem_efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
            "math": torch.backends.cuda.math_sdp_enabled(),
        },
        **_optional_settings(),
        "environment": {key: value for key, value in sorted(os.environ.items()) if _shapes_code(key)},
    }


def matmul_precisions(device: str) -> list[str]:
    """Return torch's names of the precisions that float32 products and convolutions may round their operands to."""
    places = [path for path in _PRECISIONS if path.startswith("mkldnn" if device == "cpu" else "cud")]
    convolutions = device == "cuda" and _read_unless_mixed(lambda: torch.backends.cudnn.allow_tf32) is True
    return [
        str(_read_unless_mixed(torch.get_float32_matmul_precision)),
        *map(_precision, places),
        *(["tf32"] if convolutions else []),
    ]


def _read_unless_mixed(read: Callable[[], Any]) -> Any:
    """Read a setting; torch refuses this if `fp32_precision` was set, which is part of the key as well."""
    try:
        return read()
    except RuntimeError:
        return "see fp32_precision"


def _precision(path: str) -> str:
    value: Any = torch.backends
    for part in path.split(".") if path else ():
        value = getattr(value, part, None)
    return str(getattr(value, "fp32_precision", None))


def _optional_settings() -> dict[str, Any]:
    """Return the settings that some versions of torch lack."""
    matmul, backends = torch.backends.cuda.matmul, torch.backends
    return {
        "reduced_precision": {
            name: str(getattr(matmul, f"allow_{name}", None))
            for name in (
                "fp16_reduced_precision_reduction",
                "bf16_reduced_precision_reduction",
                "fp16_accumulation",
            )
        },
        "fp32_precision": {path: _precision(path) for path in _PRECISIONS},
        "cudnn": {name: str(getattr(backends.cudnn, name)) for name in ("enabled", "deterministic")},
        "cudnn_sdp": backends.cuda.cudnn_sdp_enabled(),
        "sdpa_order": str(torch._C._get_sdp_priority_order()),  # noqa: SLF001  # torch has no public name for it
        "linalg": str(backends.cuda.preferred_linalg_library()),
        "blas": str(backends.cuda.preferred_blas_library()),
        "opt_einsum": [backends.opt_einsum.enabled, str(backends.opt_einsum.strategy)],
        "nnpack": torch._C._get_nnpack_enabled(),  # noqa: SLF001  # the same
        "fill_uninitialized_memory": getattr(torch.utils.deterministic, "fill_uninitialized_memory", None),
        "mha_fastpath": backends.mha.get_fastpath_enabled(),
    }


def compiler_configuration() -> dict[str, str]:
    """Return all settings of the compiler's parts as text, for a comparison before and after an import.

    They include those that `save_config_portable` leaves out, such as custom passes, which shape code too.
    """
    return {
        f"{name}.{key}": _as_text(value)
        for name, module in _CONFIGURATIONS.items()
        for key, value in importlib.import_module(module).get_config_copy().items()
    }


def _as_text(value: Any) -> str:
    """Format a setting's value; code is described by its content."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    try:
        described = CodeValues().describe(value)
    except NoDigest as error:
        return f"{UNNAMED}{error}"
    text = canonical_json(described).decode()
    return text if len(text) <= _MAX_TEXT else digest_json(described)


def diff_settings(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return the changed settings with their new values."""
    return {key: value for key, value in after.items() if before.get(key) != value}


@contextmanager
def watch_settings() -> Iterator[list[str]]:
    """Compare the settings before and after the block, which runs a source's code.

    Settings that shape code keep the source's values, because they are in the program key; settings that the build's own
    steps rely on are restored.

    Yields:
        A list that has a sentence for each changed setting after the block.
    """
    notices: list[str] = []
    before, kept = _all_settings(), _SavedState()
    with warnings.catch_warnings():  # filters that a source sets are not for the compiler's warnings
        yield notices
    after = _all_settings()
    notices += [
        f"the source changed {name} from {before.get(name, 'nothing')} to {after.get(name, 'nothing')}: it is part of "
        "the program key"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    notices += [
        f"the source changed {what}, which is restored: the build relies on it" for what in kept.restore()
    ]


class _SavedState:
    """State that drawing inputs, loading weights and compiling rely on."""

    def __init__(self) -> None:
        self._device = torch.get_default_device()
        self._modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        self._folder = Path.cwd()
        self._places = {name: os.environ.get(name) for name in _DIRECTORIES}

    def restore(self) -> Iterator[str]:
        """Restore everything; yield what had changed."""
        if torch.get_default_device() != self._device:
            yield f"the default device (to {torch.get_default_device()})"
            torch.set_default_device(None if self._device.type == "cpu" else self._device)
        if self._modes != (torch.is_inference_mode_enabled(), torch.is_grad_enabled()):
            yield "the gradient mode"
            inference, gradients = self._modes
            _entered_modes.append(torch.inference_mode(inference))
            _entered_modes[-1].__enter__()
            torch.set_grad_enabled(gradients)
        if Path.cwd() != self._folder:
            yield "the working directory"
            os.chdir(self._folder)
        for name, value in self._places.items():
            if os.environ.get(name) != value:
                yield name
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def _all_settings() -> dict[str, str]:
    """Return all settings that are part of the key as text, by flat names."""
    found = {**compiler_configuration(), "num_threads": str(torch.get_num_threads())}
    for name, value in numeric_settings().items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        found.update({f"{name}.{part}".rstrip("."): str(item) for part, item in parts})
    return found


def _shapes_code(variable: str) -> bool:
    return variable in _VARIABLES or (variable.startswith(_PREFIXES) and variable not in _LOCAL)
