"""Whether CUDA graphs suit an artifact and the other options of a load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.client.machine.host import title
from pt2hub.domain.publishing.compile_modes import is_graphed
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
    if option := _excluding_option(runners=runners, single_threaded=single_threaded):
        _refuse(
            config,
            f"{option} excludes CUDA graphs, which need one runner on one thread",
            f"Leave {option.partition('=')[0]} out: calls of several threads take turns.",
        )
    if _has_baked_state(config):
        _refuse(
            config,
            f"The model writes to {', '.join(config.constants.mutated)}, which is baked into the code: the state "
            "cannot be restored after the warm-up calls of a capture",
            "Leave cuda_graph out, or publish the version with weights: split.",
        )


def wants_graphs(
    config: ArtifactConfig,
    asked: bool | None,  # the option of a load, as it was given
    *,
    limit: int,
    runners: int,
    single_threaded: bool | None,
) -> bool:
    """Return whether calls of an artifact become CUDA graphs: as asked, else as the artifact's mode has it.

    Whatever excludes graphs is an error for a caller who asks for them, and only ends the mode's default.

    Raises:
        CudaGraphUnavailable: They are asked for, and the artifact or an option excludes them.
        InvalidInput: They are asked for or the default, and the limit is below 1.
    """
    if asked is None:
        asked = is_graph_default(config) and not _excluding_option(
            runners=runners, single_threaded=single_threaded
        )
    if asked:
        check_graph_options(config, limit=limit, runners=runners, single_threaded=single_threaded)
    return asked


def is_graph_default(config: ArtifactConfig) -> bool:
    """Return whether the artifact's compile mode makes CUDA graphs the default of its calls."""
    return (
        config.signature.device == "cuda"
        and is_graphed(config.version.spec, config.request)
        and not _has_baked_state(config)
    )


def _excluding_option(*, runners: int, single_threaded: bool | None) -> str:
    """Return the option of a load that excludes CUDA graphs; empty if there is none."""
    if single_threaded is False:
        return "run_single_threaded=False"
    return f"num_runners={runners}" if runners != 1 else ""


def _has_baked_state(config: ArtifactConfig) -> bool:
    return config.constants.baked and bool(config.constants.mutated)


def draws_random(config: ArtifactConfig) -> bool:
    """Return whether the model draws random numbers; its spec then accepts that by name."""
    checks = config.version.spec.get("checks") or {}
    return any(str(item).startswith("random:") for item in checks.get("accept") or ())


def _refuse(config: ArtifactConfig, message: str, hint: str) -> None:
    raise CudaGraphUnavailable(message, where=title(config), hint=hint)
