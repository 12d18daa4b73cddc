"""Process-wide settings that change what compiled code computes, compared with those an artifact was built with."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.domain.artifacts import ArtifactConfig


class NumericSettingsWarning(UserWarning):
    """This process computes with other settings than the artifact was built and proven with."""


_EVERYWHERE: dict[str, Callable[[], Any]] = {
    "matmul_precision": torch.get_float32_matmul_precision,
    "deterministic": torch.are_deterministic_algorithms_enabled,
}
_ON_CUDA: dict[str, Callable[[], Any]] = {
    "cuda_matmul_allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "cudnn_allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
}
"""Names as the program key records them; only those that library calls read anew at each call."""


def warn_of_settings(config: ArtifactConfig) -> None:
    """Warn once where settings differ: results then differ from those the gate has seen."""
    recorded = config.key.fields.get("settings")
    if not isinstance(recorded, dict):
        return
    readers = _EVERYWHERE | (_ON_CUDA if config.target.device == "cuda" else {})
    differing = [
        f"{name} is {here!r} here and was {recorded[name]!r}"
        for name, read in readers.items()
        if name in recorded and (here := _read(read, recorded[name])) != recorded[name]
    ]
    if differing:
        version = config.version
        warnings.warn(
            f"{version.model}@{version.number} was proven with other numeric settings: {'; '.join(differing)}. "
            "Results may differ from the published ones.",
            NumericSettingsWarning,
            stacklevel=2,
        )


def _read(read: Callable[[], Any], unknown: Any) -> Any:
    try:
        return read()
    except RuntimeError:  # torch refuses where its old and new precision settings were mixed
        return unknown
