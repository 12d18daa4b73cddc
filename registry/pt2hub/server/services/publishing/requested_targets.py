"""The targets of a submission, `auto` resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.domain.publishing.spec import TargetSpec
from pt2hub.domain.publishing.target_names import AUTO
from pt2hub.domain.targets import parse_target
from pt2hub.errors import Conflict, InvalidInput, NoLiveWorker
from pt2hub.server.db.stores.builds.builds import build_request
from pt2hub.server.db.stores.operations.workers import WorkerStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.domain.publishing.spec import Spec


@dataclass(frozen=True, slots=True)
class RequestedTargets:
    """The targets that a submission requests, `auto` resolved.

    Attributes:
        named: Those that the spec names.
        packages: Packages of the live targets, by target.
    """

    requests: list[TargetSpec]
    named: frozenset[str]
    packages: dict[str, dict[str, Any]]

    def check(self, present: dict[str, dict[str, Any]]) -> None:
        """Refuse targets that cannot be combined with a version's present builds.

        Args:
            present: The requests of the version's builds, by target.

        Raises:
            Conflict: A target already has a build, with other overrides, which would silently be ignored.
            InvalidInput: The no-op toolchain's target would be mixed with others.
        """
        for request in self.requests:
            given = build_request(request)
            if request.target in self.named and present.get(request.target, given) != given:
                raise Conflict(
                    f"The version already has a build for {request.target} with other overrides",
                    where="targets",
                    hint="Leave the target out, repeat its overrides, or change the spec to make a new version.",
                    context={"present": present[request.target], "given": given},
                )
        _check_real({*present, *(request.target for request in self.requests)})


def _check_real(targets: set[str]) -> None:
    """Refuse to mix the no-op toolchain's target with real ones: its made-up weights would become the version's."""
    unreal = sorted(name for name in targets if not parse_target(name).exists)
    if unreal and len(targets) > len(unreal):
        raise InvalidInput(
            f"{unreal[0]} belongs to the no-op toolchain and cannot be combined with real targets",
            where="targets",
            hint="To try out the build plane, publish under another model name.",
        )


def resolve_targets(session: Session, spec: Spec, heartbeat_timeout: timedelta) -> RequestedTargets:
    """Return the targets that a spec requests, with `auto` replaced by the live targets that it does not name.

    Raises:
        NoLiveWorker: `auto` is requested and no worker is live.
    """
    workers, requests = WorkerStore(session), spec.requests()
    live = workers.live_packages(heartbeat_timeout)
    usable = sorted(name for name in live if parse_target(name).exists)
    named = frozenset(request.target for request in requests) - {AUTO}
    expanded = []
    for request in requests:
        if request.target != AUTO:
            expanded.append(request)
            continue
        if not usable:
            raise _no_live_worker(workers.list_known(), unreal=sorted(live.keys() - set(usable)))
        expanded += [request.model_copy(update={"target": name}) for name in usable if name not in named]
    return RequestedTargets(expanded, named, live)


def _no_live_worker(known: Sequence[str], *, unreal: Sequence[str]) -> NoLiveWorker:
    if unreal:  # a worker is there, so a hint to start one would mislead
        return NoLiveWorker(
            "Only workers with the no-op toolchain are ready, and target auto means real targets",
            where="targets",
            hint=f"Name their target to try out the build plane: targets: [{unreal[0]}]. For artifacts that run, start a "
            "worker without PT2HUB_TOOLCHAIN=noop.",
        )
    return NoLiveWorker(
        "No worker is ready for target auto",
        where="targets",
        hint="Start a worker (pt2hub up starts one; it is ready within seconds), or name a target: its build "
        "waits for a worker." + (f" Targets seen before: {', '.join(known)}." if known else ""),
    )
