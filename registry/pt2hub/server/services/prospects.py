"""What a submission would do, read from what there is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.domain.specs import SETTINGS, Spec, TargetSpec
from pt2hub.server.db.stores.build_views import NO_WORKER
from pt2hub.server.db.stores.builds import BuildStore
from pt2hub.server.db.stores.versions import StoredVersion, VersionStore
from pt2hub.server.db.stores.workers import WorkerStore
from pt2hub.server.services.requests import check_overrides, check_real
from pt2hub.server.services.waiting import never_offered
from pt2hub.wire.prospects import Prospect, TargetProspect

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.wire.shapes import TargetView

_KINDS = ("factory", "code", "program")
"""Fields that tell what a source is: its author writes them first."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A spec that was found to be right so far.

    Attributes:
        spec: The spec.
        requests: The targets that it asks for, `auto` resolved.
        blobs: Digest and size of each blob that it names, by path.
        unread: Paths of blobs that nobody looked into.
    """

    spec: Spec
    requests: list[TargetSpec]
    blobs: dict[str, dict[str, Any]]
    unread: tuple[str, ...] = ()


def foreseen(session: Session, submission: Submission, silence: timedelta) -> Prospect:
    """What submitting a spec would do.

    Args:
        session: Reads what there is.
        submission: The spec, as far as it was judged.
        silence: Time without a heartbeat after which a worker is lost.

    Raises:
        Conflict: A target has a build already, with other overrides.
        InvalidInput: The no-op toolchain's target would stand beside others.
    """
    spec, versions = submission.spec, VersionStore(session)
    found = _found(versions, spec)
    present = BuildStore(session).requests(found.id) if found else {}
    check_overrides(spec, submission.requests, present)
    check_real({*present, *(request.target for request in submission.requests)})
    numbers = versions.numbers(spec.model)
    return Prospect(
        model=spec.model,
        number=found.number if found else (numbers.newest if numbers else 0) + 1,
        created=found is None,
        first=numbers is None,
        identity=spec.identity(),
        targets=_targets(session, submission.requests, found, silence),
        blobs={path: blob["size"] for path, blob in submission.blobs.items()},
        unread=submission.unread,
        settings=_changed(found, spec),
    )


def _changed(found: StoredVersion | None, spec: Spec) -> tuple[str, ...]:
    """Return which settings of the version that there is would be replaced."""
    if found is None:
        return ()
    wanted = spec.settings()
    return tuple(name for name in sorted(SETTINGS) if found.settings.get(name) != wanted.get(name))


def _found(versions: VersionStore, spec: Spec) -> StoredVersion | None:
    model_id = versions.model_id(spec.model)
    return versions.by_identity(model_id, spec.identity()) if model_id is not None else None


def _targets(
    session: Session, requests: list[TargetSpec], found: StoredVersion | None, silence: timedelta
) -> tuple[TargetProspect, ...]:
    states = dict(BuildStore(session).states(found.id)) if found else {}
    workers = WorkerStore(session)
    offers, known = {view.name: view for view in workers.targets(silence)}, workers.known()
    return tuple(
        TargetProspect(name, str(states[name]))
        if name in states
        else TargetProspect(name, None, _ahead(offers.get(name)), _note(name, offers.get(name), known))
        for name in (request.target for request in requests)
    )


def _ahead(offer: TargetView | None) -> int:
    return offer.queued if offer else 0


def _note(target: str, offer: TargetView | None, known: list[str]) -> str | None:
    if offer is None or offer.last_seen is None:
        return never_offered(target, known)
    return None if offer.live_workers else NO_WORKER


def written(version: StoredVersion, requests: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A version's spec as its author would write it, fields in the order of the form.

    Args:
        version: The version.
        requests: What was asked for each of its targets.
    """
    spec = Spec.from_canonical({**version.spec, **version.settings}).model_dump(
        mode="json", exclude_defaults=True
    )
    source = spec["source"]
    spec["source"] = {kind: source[kind] for kind in _KINDS if kind in source} | source
    origin = version.pins.get("weights_from")
    document = {**spec, **({"weights_from": origin} if origin else {})}
    targets = [name if set(asked) <= {"target"} else asked for name, asked in requests.items()]
    return {name: document[name] for name in Spec.model_fields if name in document} | {"targets": targets}
