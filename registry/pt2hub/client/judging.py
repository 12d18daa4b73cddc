"""Whether an artifact runs on this machine, as an error that names the failing axes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from pt2hub.client.host import native_target, this_host
from pt2hub.domain.verdicts import judge
from pt2hub.errors import Incompatible

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import ArtifactConfig
    from pt2hub.domain.verdicts import Host, Verdict


def check_host(config: ArtifactConfig, *, gpu_index: int = 0) -> None:
    """Judges an artifact against this machine before any native code is touched.

    Raises:
        Incompatible: It does not run here.
    """
    host = this_host(gpu=config.target.device == "cuda", gpu_index=gpu_index)
    verdict = judge(config.target, host, config.native)
    if not verdict.runs:
        raise refusal(verdict, where=title(config), hint=advice(host))


def title(config: ArtifactConfig) -> str:
    """An artifact in words, for errors."""
    return f"{config.version.model}@{config.version.number} for {config.target}"


def refusal(verdict: Verdict, *, where: str, hint: str | None = None) -> Incompatible:
    """The error of a verdict, with every failing axis in its context."""
    return Incompatible(
        str(verdict),
        where=where,
        hint=hint,
        context={"findings": [asdict(item) for item in verdict.failures]},
    )


def advice(host: Host) -> str | None:
    """What to do when nothing published runs on a machine."""
    if host.torch is None:
        return (
            "Install torch to run it here; to fetch it for another machine name the target: --target TARGET."
        )
    fitting = native_target(host)
    return f"Publish for this machine too: add {fitting} to the spec's targets." if fitting else None
