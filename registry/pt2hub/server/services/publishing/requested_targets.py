"""Checks of a submission's targets, and the expansion of `auto`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.domain.targets import parse_target
from pt2hub.errors import Conflict, Detail, InvalidInput, NoLiveWorker, UnknownTarget
from pt2hub.server.db.stores.builds.builds import build_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.publishing.spec import Spec, TargetSpec

AUTO = "auto"
_TARGETS_HINT = "GET /api/v1/targets lists the targets that workers offer."


def check_targets(spec: Spec) -> None:
    """Refuse unknown and repeated targets."""
    seen: set[str] = set()
    unknown, repeated = [], []
    for index, request in enumerate(spec.requests()):
        path = f"targets[{index}]"
        if request.target in seen:
            repeated.append(Detail(path, "duplicate target", given=request.target))
        elif request.target != AUTO:
            unknown += _unknown(path, request.target)
        seen.add(request.target)
    if unknown:
        raise UnknownTarget(where=unknown[0].path, hint=_TARGETS_HINT, details=tuple(unknown))
    if repeated:
        raise InvalidInput(
            "Duplicate target",
            where=repeated[0].path,
            hint="A version has one build per target: keep one of the entries.",
            details=tuple(repeated),
        )


def _unknown(path: str, name: str) -> list[Detail]:
    try:
        parse_target(name)
    except UnknownTarget as exc:
        return [Detail(path, exc.message, given=name[:80], allowed=exc.hint)]
    return []


def check_real(targets: set[str]) -> None:
    """Refuse to mix the no-op toolchain's target with real ones: its made-up weights would become the version's."""
    unreal = sorted(name for name in targets if not parse_target(name).exists)
    if unreal and len(targets) > len(unreal):
        raise InvalidInput(
            f"{unreal[0]} belongs to the no-op toolchain and cannot be combined with real targets",
            where="targets",
            hint="To try out the build plane, publish under another model name.",
        )


def expand(requests: list[TargetSpec], live: list[str], *, known: Sequence[str]) -> list[TargetSpec]:
    """Return the named targets, with `auto` replaced by the live targets that are not named."""
    named = {request.target for request in requests}
    expanded = []
    for request in requests:
        if request.target != AUTO:
            expanded.append(request)
            continue
        if not live:
            raise NoLiveWorker(
                "No worker is ready for target auto",
                where="targets",
                hint="Start a worker (pt2hub up starts one; it is ready within seconds), or name a target: its build "
                "waits for a worker." + (f" Targets seen before: {', '.join(known)}." if known else ""),
            )
        expanded += [request.model_copy(update={"target": name}) for name in live if name not in named]
    return expanded


def check_overrides(spec: Spec, requests: list[TargetSpec], present: dict[str, dict[str, Any]]) -> None:
    """Refuse different overrides for a target that already has a build: they would silently be ignored.

    Args:
        requests: The spec's targets, `auto` resolved.
    """
    named = {request.target for request in spec.requests()} - {AUTO}
    for request in requests:
        given = build_request(request)
        if request.target in named and present.get(request.target, given) != given:
            raise Conflict(
                f"The version already has a build for {request.target} with other overrides",
                where="targets",
                hint="Leave the target out, repeat its overrides, or change the spec to make a new version.",
                context={"present": present[request.target], "given": given},
            )
