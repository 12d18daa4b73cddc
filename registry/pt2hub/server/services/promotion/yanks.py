"""Yanks: versions that are hidden from names without a version and from alias moves, with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.audit import Action
from pt2hub.domain.webhooks import EventType
from pt2hub.errors import Conflict, VersionInUse, VersionYanked
from pt2hub.server.db.stores.promotion.aliases import AliasStore
from pt2hub.server.db.stores.promotion.yanks import YankStore
from pt2hub.server.services import not_found
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.promotion.reasons import check_reason, shorten_reason
from pt2hub.server.services.webhooks import events

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.publishing.versions import StoredVersion
    from pt2hub.wire.resolution import Yank
    from pt2hub.wire.responses import YankChange

_MAX_NAMED_ALIASES = 5


class YankService:
    """Yanks versions, and ends yanks."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def yank(self, model: str, number: int, *, reason: str, by: Actor) -> None:
        """Hide a version from names without a version and from alias moves; its number and digests still resolve.

        The same request again changes nothing: a client that lost the answer repeats it.

        Raises:
            InvalidInput: The name of the model or the reason is malformed.
            NotFound: The model or version does not exist.
            VersionYanked: It is yanked already, by another token or for another reason.
            VersionInUse: Aliases point to it.
        """
        text = check_reason(reason)
        with self._sessions.begin() as session:
            version, store = not_found.require_version(session, model, number), YankStore(session)
            now = store.hold(version.id)
            if now:
                if (now.reason, now.by) != (text, by.name):
                    raise _is_yanked(version, now)
                return
            _check_unused(session, version)
            store.add(version.id, yanked=True, reason=text, by=by.name)
            _record(session, by, Action.VERSION_YANK, version, text)

    def unyank(self, model: str, number: int, *, reason: str, by: Actor) -> None:
        """End a version's yank; the same request again changes nothing.

        Raises:
            InvalidInput: The name of the model or the reason is malformed.
            NotFound: The model or version does not exist.
            Conflict: It is not yanked.
        """
        text = check_reason(reason)
        with self._sessions.begin() as session:
            version, store = not_found.require_version(session, model, number), YankStore(session)
            if store.hold(version.id) is None:
                _check_repeated(version, store.changes(version.id), text, by.name)
                return
            store.add(version.id, yanked=False, reason=text, by=by.name)
            _record(session, by, Action.VERSION_UNYANK, version, text)


def hold_not_yanked(session: Session, version: StoredVersion) -> None:
    """Refuse an alias move to a yanked version; until the transaction ends nobody yanks it.

    Raises:
        VersionYanked: It is yanked.
    """
    check_not_yanked(version, YankStore(session).share(version.id))


def check_not_yanked(version: StoredVersion, yank: Yank | None) -> None:
    """Refuse an alias move to a version that has a yank.

    Raises:
        VersionYanked: It is yanked.
    """
    if yank is None:
        return
    name = f"{version.model}@{version.number}"
    raise VersionYanked(
        f"An alias cannot move to {name}: it was yanked {_origin(yank)}",
        where="version",
        hint=f'Choose another version, or end the yank: pt2hub unyank {name} --reason "...". Not even a forced move '
        "can go to a yanked version.",
        context=_context(version, yank),
    )


def _record(session: Session, by: Actor, action: Action, version: StoredVersion, reason: str) -> None:
    kind = EventType.VERSION_YANKED if action is Action.VERSION_YANK else EventType.VERSION_UNYANKED
    events.record(session, kind, model=version.model, version=version.number, by=by.principal, reason=reason)
    name = f"{version.model}@{version.number}"
    audit_log.record(session, by, action, name, models=[version.model], reason=reason)


def _check_unused(session: Session, version: StoredVersion) -> None:
    """Refuse a version that aliases point to.

    Read after the version is locked: a move that shared the lock is visible now, and one that waits for it will see the
    yank.
    """
    names = AliasStore(session).on_versions([version.id]).get(version.id, [])
    if not names:
        return
    shown = ", ".join(names[:_MAX_NAMED_ALIASES]) + (", ..." if len(names) > _MAX_NAMED_ALIASES else "")
    model = version.model
    raise VersionInUse(
        f"Cannot yank {model}@{version.number}: {shown} {'points' if len(names) == 1 else 'point'} to it",
        where="version",
        hint=f'Move the alias first: pt2hub alias rollback {model} {names[0]} --reason "...", or pt2hub alias set or rm.',
        context={"model": model, "number": version.number, "aliases": names},
    )


def _is_yanked(version: StoredVersion, yank: Yank) -> VersionYanked:
    return VersionYanked(
        f"{version.model}@{version.number} is already yanked, {_origin(yank)}",
        where="version",
        hint="To give another reason, end the yank first: "
        f'pt2hub unyank {version.model}@{version.number} --reason "...".',
        context=_context(version, yank),
    )


def _check_repeated(version: StoredVersion, changes: tuple[YankChange, ...], reason: str, by: str) -> None:
    """Accept a request whose answer was lost; refuse any other for a version that is not yanked.

    Raises:
        Conflict: The last change is another one.
    """
    if changes and (changes[0].reason, changes[0].by) == (reason, by):
        return
    raise Conflict(
        f"{version.model}@{version.number} is not yanked",
        where="version",
        hint=f"pt2hub show {version.model}@{version.number} shows its yanks.",
        context={"model": version.model, "number": version.number},
    )


def _origin(yank: Yank) -> str:
    return f'by token "{yank.by}" at {yank.at[:19]}Z: {shorten_reason(yank.reason)}'


def _context(version: StoredVersion, yank: Yank) -> dict[str, object]:
    return {
        "model": version.model,
        "number": version.number,
        "yank": {"reason": yank.reason, "by": yank.by, "at": yank.at},
    }
