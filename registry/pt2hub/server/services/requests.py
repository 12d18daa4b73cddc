"""The targets of a submission: what they name, what `auto` stands for, and what was asked of them before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.domain.targets import parse_target
from pt2hub.errors import Conflict, Detail, InvalidInput, NoLiveWorker, UnknownTarget
from pt2hub.server.db.stores.builds import build_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.specs import Spec, TargetSpec

AUTO = "auto"
_TARGETS_HINT = "GET /api/v1/targets lists the targets that workers offer."


def check_targets(spec: Spec) -> None:
    """Refuses names of no target, and targets that are asked for twice."""
    seen: set[str] = set()
    unknown, repeated = [], []
    for place, request in enumerate(spec.requests()):
        path = f"targets[{place}]"
        if request.target in seen:
            repeated.append(Detail(path, "the target is named before", given=request.target))
        elif request.target != AUTO:
            unknown += _unknown(path, request.target)
        seen.add(request.target)
    if unknown:
        raise UnknownTarget(where=unknown[0].path, hint=_TARGETS_HINT, details=tuple(unknown))
    if repeated:
        raise InvalidInput(
            "A target is asked for twice",
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
    """Refuses the no-op toolchain's target beside others: what it makes up would become the version's weights."""
    unreal = sorted(name for name in targets if not parse_target(name).exists)
    if unreal and len(targets) > len(unreal):
        raise InvalidInput(
            f"{unreal[0]} is the no-op toolchain's, and cannot stand beside real targets",
            where="targets",
            hint="Publish under another model's name to try the build plane.",
        )


def expand(requests: list[TargetSpec], live: list[str], *, known: Sequence[str]) -> list[TargetSpec]:
    """The targets asked for by name; `auto` stands for the live ones that are not named beside it."""
    named = {request.target for request in requests}
    expanded = []
    for request in requests:
        if request.target != AUTO:
            expanded.append(request)
            continue
        if not live:
            raise NoLiveWorker(
                "No worker is ready that auto could stand for",
                where="targets",
                hint="Start a worker (pt2hub up starts one, which takes some seconds to be ready), or name a target: its build "
                "waits for a worker." + (f" Workers offered {', '.join(known)} before." if known else ""),
            )
        expanded += [request.model_copy(update={"target": name}) for name in live if name not in named]
    return expanded


def check_overrides(spec: Spec, requests: list[TargetSpec], present: dict[str, dict[str, Any]]) -> None:
    """Refuses other overrides for a target that has its build: they would silently be ignored.

    Args:
        spec: What asks; `auto` asks for nothing in particular.
        requests: Its targets, `auto` resolved.
        present: What was asked for the builds there are, by target.
    """
    named = {request.target for request in spec.requests()} - {AUTO}
    for request in requests:
        given = build_request(request)
        if request.target in named and present.get(request.target, given) != given:
            raise Conflict(
                f"The version has a build for {request.target} with other overrides",
                where="targets",
                hint="Leave the target out, repeat its overrides, or change the spec to make a new version.",
                context={"present": present[request.target], "given": given},
            )
