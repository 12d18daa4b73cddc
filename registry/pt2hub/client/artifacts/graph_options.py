"""Whether CUDA graphs suit an artifact and the other options of a load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.client.machine.host import title
from pt2hub.errors import CudaGraphUnavailable, InvalidInput

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import ArtifactConfig


def check_graph_options(
    config: ArtifactConfig, *, limit: int, runners: int, single_threaded: bool | None
) -> None:
    """Check that calls of an artifact can become CUDA graphs.

    Raises:
        CudaGraphUnavailable: The artifact or an option excludes them.
        InvalidInput: The limit is below 1.
    """
    if limit < 1:
        raise InvalidInput(f"max_cuda_graphs must be at least 1, got {limit}", where="max_cuda_graphs")
    if config.signature.device != "cuda":
        _refuse(
            config,
            f"CUDA graphs need a GPU, and this artifact runs on {config.signature.device}",
            "Leave cuda_graph out, or publish the version for a target with a GPU.",
        )
    if single_threaded is False or runners != 1:
        option = "run_single_threaded=False" if single_threaded is False else f"num_runners={runners}"
        _refuse(
            config,
            f"{option} excludes CUDA graphs, which need one runner on one thread",
            f"Leave {option.partition('=')[0]} out: calls of several threads take turns.",
        )
    if config.constants.baked and config.constants.mutated:
        _refuse(
            config,
            f"The model writes to {', '.join(config.constants.mutated)}, which is baked into the code: the state "
            "cannot be restored after the warm-up calls of a capture",
            "Leave cuda_graph out, or publish the version with weights: split.",
        )


def draws_random(config: ArtifactConfig) -> bool:
    """Return whether the model draws random numbers; its spec then accepts that by name."""
    checks = config.version.spec.get("checks") or {}
    return any(str(item).startswith("random:") for item in checks.get("accept") or ())


def _refuse(config: ArtifactConfig, message: str, hint: str) -> None:
    raise CudaGraphUnavailable(message, where=title(config), hint=hint)
