"""Building of artifacts that a version lacks for this machine."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from pt2hub.client.artifacts.selection import parse_device
from pt2hub.client.builds.events import over
from pt2hub.client.builds.follower import time_left
from pt2hub.client.builds.progress import automatic
from pt2hub.client.machine.host import CompatibilityWarning, this_host
from pt2hub.domain.builds import BuildState
from pt2hub.domain.names import Reference
from pt2hub.errors import InvalidInput, NotReady
from pt2hub.rendering.waits import format_note, is_lonely
from pt2hub.wire.problems import from_dict

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, TypeAlias

    from pt2hub.client.resources import Builds, Versions
    from pt2hub.errors import Incompatible
    from pt2hub.wire.responses import BuildView, VersionView

    OnMissing: TypeAlias = Literal["build"] | Callable[..., Any]

BUILD = "build"


def check_on_missing(
    on_missing: OnMissing | None, reference: str, *, is_locked: bool = False, offline: bool = False
) -> None:
    """Check the `on_missing` option of a load.

    Raises:
        InvalidInput: It is neither `build` nor a callable, or the reference names one artifact, which no other replaces.
            Or it is locked, and what is built is not; or pt2hub is offline, and cannot ask for a build.
    """
    if on_missing is None:
        return
    if on_missing != BUILD and not callable(on_missing):
        raise InvalidInput(
            f"on_missing must be 'build' or a callable, got {on_missing!r:.80}",
            where="on_missing",
            hint="'build' has the missing artifact built and waits; a module or function is called until it is built.",
        )
    if offline:
        raise InvalidInput(
            "pt2hub is offline, and cannot have an artifact built",
            where="on_missing",
            hint="Leave on_missing out, or go online: unset PT2HUB_OFFLINE and offline.",
        )
    if is_locked:
        raise InvalidInput(
            "A lock file names the artifacts that may be loaded, and no other may take their place",
            where="on_missing",
            hint=f"Build the artifact, then lock again with pt2hub lock --upgrade {reference}; or leave on_missing out.",
        )
    parsed = Reference.parse(reference)
    if parsed.digest_start:
        raise InvalidInput(
            "A digest names one artifact, and no other may take its place",
            where="on_missing",
            hint=f"Use a version, such as {parsed.model}@3, or leave on_missing out.",
        )


def build_missing(
    versions: Versions,
    builds: Builds,
    missing: Incompatible | NotReady,
    *,
    device: str | None,
    timeout: float | None,
    progress: bool | None,
) -> str:
    """Have the artifact built that a version lacks for this machine, and wait for it.

    Args:
        missing: The error of the load; its context names the version.
        device: As for a load; the target's device where given.
        timeout: Seconds to wait at most.

    Returns:
        Reference of the version.

    Raises:
        Incompatible: No other build would run here: this machine has no target, or the version has it already.
        NotReady: The build failed or was cancelled.
        Unauthorized: The token is missing or wrong.
        BuildActive: The timeout expired; the build continues.
    """
    model, number = missing.context.get("model"), missing.context.get("number")
    if not isinstance(model, str) or not isinstance(number, int):
        raise missing
    left = time_left(timeout)
    target = _target(versions.get(model, number), device)
    if target is None:
        raise missing
    build = _find(versions.add_target(model, number, target), target)
    if build.state == BuildState.SUCCEEDED and target in missing.context.get("targets", ()):
        raise missing  # otherwise it has succeeded since
    if not over(build):
        if is_lonely(build):
            warnings.warn(
                f"Waiting for {build.id}, which builds {model}@{number} for {target}: {format_note(build)}",
                CompatibilityWarning,
                stacklevel=2,
            )
        with automatic(progress) as shown:
            (build,) = builds.follow([build], shown, timeout=left())
    if build.state != BuildState.SUCCEEDED:
        raise _not_built(build)
    return f"{model}@{number}"


def _target(version: VersionView, device: str | None) -> str | None:
    """Return the target to build for this machine: on the requested device, else on that of the version's targets."""
    kind = parse_device(device).kind
    on_gpu = any("-cu" in build.target for build in version.builds)
    preferred = kind or ("cuda" if on_gpu else "cpu")
    return this_host(gpu=preferred == "cuda", gpu_index=parse_device(device).index).native_target(preferred)


def _find(version: VersionView, target: str) -> BuildView:
    return next(build for build in version.builds if build.target == target)


def _not_built(build: BuildView) -> NotReady:
    error = from_dict(build.error) if build.error else None
    return NotReady(
        f"The build for {build.target} is {build.state}{f': {error.message}' if error else ''}",
        where=f"{build.model}@{build.number}",
        hint=f"To see its log: pt2hub logs {build.id}; to build again: pt2hub retry {build.id}",
        context={"build": build.id, "error": build.error},
    )
