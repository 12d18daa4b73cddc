"""Comparison of this process's numeric settings with those of an artifact's build."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.domain.artifacts import ArtifactConfig


class NumericSettingsWarning(UserWarning):
    """This process has other numeric settings than the verification of the artifact."""


_EVERYWHERE: dict[str, Callable[[], Any]] = {
    "matmul_precision": torch.get_float32_matmul_precision,
    "deterministic": torch.are_deterministic_algorithms_enabled,
}
_ON_CUDA: dict[str, Callable[[], Any]] = {
    "cuda_matmul_allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "cudnn_allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
}
"""Names as in the program key; only settings that libraries read at each call."""


def warn_of_settings(config: ArtifactConfig) -> None:
    """Warn once if settings differ: results may then differ from the verified ones."""
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
            f"{version.model}@{version.number} was verified with other numeric settings: {'; '.join(differing)}. "
            "Results may differ from the verified ones.",
            NumericSettingsWarning,
            stacklevel=2,
        )


def _read(read: Callable[[], Any], unknown: Any) -> Any:
    try:
        return read()
    except RuntimeError:  # torch refuses where its old and new precision settings were mixed
        return unknown
