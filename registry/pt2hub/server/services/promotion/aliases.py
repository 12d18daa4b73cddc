"""Aliases: movable names on versions, moved by compare-and-set, with every move kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pt2hub.domain.audit import Action
from pt2hub.domain.names import parse_alias
from pt2hub.domain.principals import Principal, PrincipalKind
from pt2hub.domain.tokens import Actor
from pt2hub.domain.webhooks import EventType
from pt2hub.errors import AliasMoved, InternalError
from pt2hub.server.db.notifications import notify_alias
from pt2hub.server.db.stores.promotion.aliases import AliasStore, StoredAlias
from pt2hub.server.services import not_found
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.access.tokens import check_admin
from pt2hub.server.services.promotion.checks import PromotionChecks
from pt2hub.server.services.promotion.decisions import AliasMoveRequest, PolicyDecision
from pt2hub.server.services.promotion.reasons import check_reason, shorten_reason
from pt2hub.server.services.promotion.rollbacks import find_rollbacks, require_pullable
from pt2hub.server.services.promotion.yanks import check_not_yanked, hold_not_yanked
from pt2hub.server.services.webhooks import events
from pt2hub.wire.performance import PromotionPreview
from pt2hub.wire.responses import AliasList, AliasMove, AliasMoves, AliasView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.views.rollbacks import Rollback


@dataclass(frozen=True, slots=True)
class _Change:
    """A requested change of an alias.

    Attributes:
        number: The version to move it to, None to remove it.
        expected: The version that the caller believes it to be on, None if it does not exist.
        force: Whether to override the model's policy.
    """

    number: int | None
    expected: int | None
    reason: str
    by: Actor
    force: bool = False

    def is_done(self, alias: StoredAlias) -> bool:
        """Return whether the change is already made: a move to the current version, or a repeated request.

        A client that lost the response repeats its request; that must neither fail nor record a second move.
        """
        if alias.number != self.number or alias.last is None:
            return False
        last = alias.last
        again = (last.before, last.reason, last.by) == (self.expected, self.reason, self.by.name)
        return again or self.expected == self.number


class AliasService:
    """Reads and moves aliases of models."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def aliases(self, model: str) -> AliasList:
        """Return a model's aliases by name, without removed ones.

        Raises:
            InvalidInput: The name is malformed.
            NotFound: The model does not exist.
        """
        with self._sessions.begin() as session:
            found = AliasStore(session).of_model(not_found.require_model(session, model))
            return AliasList(tuple(_view(model, alias) for alias in found))

    def rollbacks(self, model: str) -> dict[str, Rollback]:
        """Return where rollbacks of a model's aliases lead and what stands in the way, by alias.

        Raises:
            InvalidInput: The name is malformed.
            NotFound: The model does not exist.
        """
        with self._sessions.begin() as session:
            return find_rollbacks(session, model, not_found.require_model(session, model))

    def alias(self, model: str, name: str) -> AliasView:
        """Return an alias with its history, removed or not.

        Raises:
            InvalidInput: A name is malformed.
            NotFound: The alias never existed.
        """
        with self._sessions.begin() as session:
            store = AliasStore(session)
            alias = store.one(not_found.require_model(session, model), parse_alias(name))
            if alias is None:
                raise not_found.no_alias(session, model, name)
            return _view(model, alias, store.history(alias))

    def moves(self, model: str, name: str, *, after: int | None) -> AliasMoves:
        """Return the moves of an alias after a known one, also of an alias that does not exist yet.

        Args:
            after: Number of the known move; None to learn the number of the last one.

        Raises:
            InvalidInput: A name is malformed.
            NotFound: The model does not exist.
        """
        with self._sessions.begin() as session:
            store = AliasStore(session)
            alias = store.one(not_found.require_model(session, model), parse_alias(name))
            if alias is None or alias.last is None:
                return AliasMoves(model, name, None, 0)
            newest = alias.last
            found = store.moves_after(alias, newest.sequence if after is None else after)
            last = found[-1] if found else newest
            # The moves were read later: the alias may have moved between the two statements.
            number = last.after if last.sequence >= newest.sequence else alias.number
            return AliasMoves(model, name, number, last.sequence, tuple(found))

    def explain_last_move(self, model: str, name: str) -> tuple[str, ...]:
        """Return the messages of the model's current policy on the last move of an alias; empty if it was removed.

        Raises:
            InvalidInput: A name is malformed.
            NotFound: The alias never existed.
        """
        with self._sessions.begin() as session:
            store, model_id = AliasStore(session), not_found.require_model(session, model)
            alias = store.one(model_id, parse_alias(name))
            if alias is None:
                raise not_found.no_alias(session, model, name)
            last, *earlier = store.history(alias, limit=2)
            before = last.before or (earlier[0].before if earlier else None)
            by = last.principal or Principal(PrincipalKind.TOKEN, last.by)
            move = AliasMoveRequest(model, model_id, name, before, last.after, by=by)
            return PromotionChecks(session).evaluate(move).messages

    def preview(self, model: str, name: str, number: int, *, by: Principal | None) -> PromotionPreview:
        """Return what the model's policy says about a move; nothing is moved.

        Args:
            by: Who would move it; None for nobody.

        Raises:
            InvalidInput: A name is malformed.
            NotFound: The model or version does not exist.
            NotReady: The version has no artifact yet.
            VersionYanked: The version is yanked.
        """
        parse_alias(name)
        with self._sessions.begin() as session:
            model_id = not_found.require_model(session, model)
            version = require_pullable(session, model, number)
            check_not_yanked(version, version.yanked)
            alias = AliasStore(session).one(model_id, name)
            decision = PromotionChecks(session).evaluate(
                _move_request(model, model_id, name, alias, number, by=by)
            )
            return PromotionPreview(
                model,
                name,
                alias.number if alias else None,
                number,
                not decision.failed_checks,
                decision.revision,
                decision.protected,
                decision.checks,
                decision.notes,
            )

    def move(
        self, model: str, name: str, number: int, *, expected: int | None, reason: str, by: Actor
    ) -> AliasView:
        """Move an alias to a version if it is where the caller expects it.

        Args:
            expected: The version that the caller believes it to be on, None if it does not exist.

        Raises:
            InvalidInput: A name or the reason is malformed.
            NotFound: The model or version does not exist, or the expected alias does not.
            NotReady: The version has no artifact yet.
            VersionYanked: The version is yanked.
            AliasMoved: It is elsewhere; the error names the move that put it there.
            Forbidden: The model's policy protects the alias, and the caller is none of its promoters.
            PromotionCheckFailed: The model's policy refuses the move; the error has the comparisons.
        """
        return self._change(model, name, _Change(number, expected, check_reason(reason), by))

    def force(
        self, model: str, name: str, number: int, *, expected: int | None, reason: str, by: Actor
    ) -> AliasView:
        """Move an alias like `move`, overriding the model's policy; the history keeps the failed checks.

        Raises:
            Forbidden: The actor is not an admin.
        """
        check_admin(by, model, doing="force a move", where="force")
        return self._change(model, name, _Change(number, expected, check_reason(reason), by, force=True))

    def remove(self, model: str, name: str, *, expected: int, reason: str, by: Actor) -> AliasView:
        """Remove an alias if it is where the caller expects it; its history stays.

        Arguments and errors are those of `move`.
        """
        return self._change(model, name, _Change(None, expected, check_reason(reason), by))

    def _change(self, model: str, name: str, change: _Change) -> AliasView:
        parse_alias(name)
        with self._sessions.begin() as session:
            store, model_id = AliasStore(session), not_found.require_model(session, model)
            to = None if change.number is None else require_pullable(session, model, change.number)
            alias = store.hold(model_id, name, create=change.expected is None)
            if alias is None:
                raise not_found.no_alias(session, model, name)
            decision = None
            if not change.is_done(alias):
                if alias.number != change.expected:
                    raise _lost(model, alias, change)
                if to:
                    hold_not_yanked(session, to)
                # While the alias is locked, neither it nor the policy can change.
                wanted = _move_request(model, model_id, name, alias, change.number, by=change.by.principal)
                decision = _apply_policy(session, wanted, force=change.force)
                store.move(
                    alias,
                    number=change.number,
                    version_id=to.id if to else None,
                    reason=change.reason,
                    by=change.by.principal,
                    forced=decision.overridden(),
                )
                _record(session, wanted, alias.number, change, decision)
                notify_alias(session, model, name)
            notes = decision.messages if decision else ()
            moved = store.one(model_id, name) or alias
            return replace(_view(model, moved, store.history(moved)), notes=notes)


def _record(
    session: Session, move: AliasMoveRequest, before: int | None, change: _Change, decision: PolicyDecision
) -> None:
    forced = decision.overridden()
    events.record(
        session,
        EventType.ALIAS_REMOVED if change.number is None else EventType.ALIAS_MOVED,
        model=move.model,
        version=change.number,
        by=change.by.principal,
        alias=move.alias,
        before=before,
        after=change.number,
        reason=change.reason,
        forced=bool(forced),
    )
    audit_log.record(
        session,
        change.by,
        Action.ALIAS_REMOVE if change.number is None else Action.ALIAS_MOVE,
        f"{move.model}@{move.alias}",
        models=[move.model],
        before=before,
        after=change.number,
        reason=change.reason,
        **({"forced": forced} if forced else {}),
    )


def _move_request(  # what a move is
    model: str,
    model_id: int,
    name: str,
    alias: StoredAlias | None,
    number: int | None,
    *,
    by: Principal | None,
) -> AliasMoveRequest:
    before, removed = None, False
    if alias is not None:
        before, removed = alias.number or (alias.last.before if alias.last else None), alias.number is None
    return AliasMoveRequest(model, model_id, name, before, number, removed=removed, by=by)


def _apply_policy(session: Session, move: AliasMoveRequest, *, force: bool) -> PolicyDecision:
    """Return the policy's decision on a move that passes or is forced.

    Raises:
        Forbidden: The caller is no promoter of a protected alias, and the move is not forced.
        PromotionCheckFailed: A check fails and the move is not forced.
    """
    decision = PromotionChecks(session).evaluate(move)
    if decision.failed_checks and not force:
        raise decision.error()
    return decision


def _lost(model: str, alias: StoredAlias, change: _Change) -> AliasMoved:
    """Return the error for a move from another version than the current one, naming the move that won."""
    if alias.last is None:
        raise InternalError(f"The alias {alias.name} of {model} has no history", where="alias")
    last, name = alias.last, f"{model}@{alias.name}"
    now = f"is on version {alias.number}" if alias.number else "was removed"
    wanted = f"not on {change.expected}" if change.expected else "though it was expected not to exist"
    repeat = f"expecting {alias.number or 'none'}"
    return AliasMoved(
        f'{name} {now}, {wanted}: moved by token "{last.by}" at {last.at[:19]}Z: {shorten_reason(last.reason)}',
        where="alias",
        hint=f"pt2hub alias log {model} {alias.name} shows its history; if your move is still correct, repeat it {repeat}.",
        context={
            "model": model,
            "alias": alias.name,
            "expected": change.expected,
            "winner": {"number": last.after, "by": last.by, "reason": last.reason, "at": last.at},
        },
    )


def _view(model: str, alias: StoredAlias, history: Sequence[AliasMove] = ()) -> AliasView:
    if alias.last is None:
        raise InternalError(f"The alias {alias.name} of {model} has no history", where="alias")
    return AliasView(model, alias.name, alias.number, alias.last, tuple(history))
