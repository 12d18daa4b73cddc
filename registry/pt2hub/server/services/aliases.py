"""Aliases: movable names on versions, moved by compare-and-set, with every move kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pt2hub.domain.names import parse_alias, parse_model_name
from pt2hub.errors import AliasMoved, InternalError, InvalidInput
from pt2hub.server.db.stores.aliases import AliasStore, StoredAlias
from pt2hub.server.db.stores.artifacts import ArtifactStore
from pt2hub.server.db.stores.versions import StoredVersion, VersionStore
from pt2hub.server.services import missing
from pt2hub.server.services.access import check_admin
from pt2hub.server.services.gates import Gates, Move, Ruling
from pt2hub.server.services.texts import plain
from pt2hub.wire.shapes import AliasList, AliasMove, AliasView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions

MAX_REASON = 500
"""Characters in the reason of a move."""
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class _Change:
    """What shall happen to an alias.

    Attributes:
        number: The version it shall be on, None to remove it.
        expected: The version it is on as far as the caller knows, None where it does not exist.
        reason: Why.
        by: Who.
        force: Whether it happens even where the model's policy refuses it.
    """

    number: int | None
    expected: int | None
    reason: str
    by: str
    force: bool = False

    def done(self, alias: StoredAlias) -> bool:
        """Whether the alias is where it shall be already: a move to where it is, or one that is asked for again.

        A client that lost the answer to a move sends it again; that must neither fail nor write a second move.
        """
        if alias.number != self.number or alias.last is None:
            return False
        last = alias.last
        again = (last.before, last.reason, last.by) == (self.expected, self.reason, self.by)
        return again or self.expected == self.number


class AliasService:
    """Aliases of models."""

    def __init__(self, sessions: Sessions) -> None:
        """Is built by the container."""
        self._sessions = sessions

    def aliases(self, model: str) -> AliasList:
        """A model's aliases by name, without removed ones.

        Raises:
            InvalidInput: The text is no model's name.
            NotFound: There is no such model.
        """
        with self._sessions.begin() as session:
            found = AliasStore(session).of_model(_model(session, model))
            return AliasList(tuple(_view(model, alias) for alias in found))

    def alias(self, model: str, name: str) -> AliasView:
        """An alias with its history, removed or not.

        Raises:
            InvalidInput: A text is no name.
            NotFound: There never was such an alias.
        """
        with self._sessions.begin() as session:
            store = AliasStore(session)
            alias = store.one(_model(session, model), parse_alias(name))
            if alias is None:
                raise missing.no_alias(session, model, name)
            return _view(model, alias, store.history(alias))

    def said(self, model: str, name: str) -> tuple[str, ...]:
        """What a model's policy, as it is now, says to the last move of an alias; nothing of one that was removed.

        Raises:
            InvalidInput: A text is no name.
            NotFound: There never was such an alias.
        """
        with self._sessions.begin() as session:
            store, model_id = AliasStore(session), _model(session, model)
            alias = store.one(model_id, parse_alias(name))
            if alias is None:
                raise missing.no_alias(session, model, name)
            last, *earlier = store.history(alias, limit=2)
            before = last.before or (earlier[0].before if earlier else None)
            return Gates(session).judge(Move(model, model_id, name, before, last.after)).said

    def move(
        self, model: str, name: str, number: int, *, expected: int | None, reason: str, by: str
    ) -> AliasView:
        """Puts an alias on a version if it is where the caller believes.

        Args:
            model: The model's name.
            name: The alias's name.
            number: The version.
            expected: The version it is on as far as the caller knows, None where it does not exist.
            reason: Why; kept in the history.
            by: Who; kept in the history.

        Raises:
            InvalidInput: A text is no name, or the reason is none.
            NotFound: There is no such model or version, or no such alias though one was expected.
            NotReady: The version has no artifact yet.
            AliasMoved: It is somewhere else; the error tells the move that put it there.
            GateRefused: The model's policy refuses it; the error holds the comparisons that say why.
        """
        return self._change(model, name, _Change(number, expected, _checked(reason), by))

    def force(
        self, model: str, name: str, number: int, *, expected: int | None, reason: str, by: Actor
    ) -> AliasView:
        """As `move`, and even where the model's policy refuses; what it said is kept in the history.

        Raises:
            Forbidden: It is no admin's token.
        """
        check_admin(by, doing="force a move", where="force")
        return self._change(model, name, _Change(number, expected, _checked(reason), by.name, force=True))

    def remove(self, model: str, name: str, *, expected: int, reason: str, by: str) -> AliasView:
        """Takes an alias away if it is where the caller believes; its history stays.

        Arguments and errors are those of `move`.
        """
        return self._change(model, name, _Change(None, expected, _checked(reason), by))

    def _change(self, model: str, name: str, change: _Change) -> AliasView:
        parse_alias(name)
        with self._sessions.begin() as session:
            store, model_id = AliasStore(session), _model(session, model)
            to = None if change.number is None else _pullable(session, model, change.number)
            alias = store.hold(model_id, name, create=change.expected is None)
            if alias is None:
                raise missing.no_alias(session, model, name)
            ruling = None
            if not change.done(alias):
                if alias.number != change.expected:
                    raise _lost(model, alias, change)
                # Once the alias is held: neither it nor the policy can change meanwhile.
                before = alias.number or (alias.last.before if alias.last else None)
                wanted = Move(model, model_id, name, before, change.number, removed=alias.number is None)
                ruling = _ruled(session, wanted, force=change.force)
                store.move(alias, to, reason=change.reason, by=change.by, forced=ruling.overridden())
            notes = ruling.said if ruling else ()
            moved = store.one(model_id, name) or alias
            return replace(_view(model, moved, store.history(moved)), notes=notes)


def _ruled(session: Session, move: Move, *, force: bool) -> Ruling:
    """What the model's policy says to a move that it lets pass, or that is forced.

    Raises:
        GateRefused: It does not let it pass.
    """
    ruling = Gates(session).judge(move)
    if ruling.refused and not force:
        raise ruling.error()
    return ruling


def _model(session: Session, name: str) -> int:
    model_id = VersionStore(session).model_id(parse_model_name(name))
    if model_id is None:
        raise missing.no_model(session, name)
    return model_id


def _pullable(session: Session, model: str, number: int) -> StoredVersion:
    """A version that an alias may be put on: one that has something to pull."""
    version = VersionStore(session).by_number(model, number)
    if version is None:
        raise missing.no_version(session, model, number)
    if not ArtifactStore(session).taken(version.id):
        raise missing.not_ready(session, version)
    return version


def _checked(reason: str) -> str:
    """A reason that can be kept and shown."""
    text = plain(reason, what="The reason", where="reason")
    if not 1 <= len(text) <= MAX_REASON:
        raise InvalidInput(
            "The reason is too long" if text else "The reason is missing",
            where="reason",
            hint=f"Say in 1 to {MAX_REASON} characters why the alias moves; its history keeps it.",
        )
    return text


def _lost(model: str, alias: StoredAlias, change: _Change) -> AliasMoved:
    """The error for a move from where the alias is not; it tells the move that put it where it is."""
    if alias.last is None:
        raise InternalError(f"The alias {alias.name} of {model} has no history", where="alias")
    last, there = alias.last, f"{model}@{alias.name}"
    now = f"is on version {alias.number}" if alias.number else "was removed"
    wanted = f"not on {change.expected}" if change.expected else "though it was expected not to exist"
    repeat = f"expecting {alias.number or 'none'}"
    return AliasMoved(
        f'{there} {now}, {wanted}: the token "{last.by}" did that at {last.at[:19]}Z: {_short(last.reason)}',
        where="alias",
        hint=f"pt2hub alias {model} {alias.name} shows its history; if your move is still right, repeat it {repeat}.",
        context={
            "model": model,
            "alias": alias.name,
            "expected": change.expected,
            "winner": {"number": last.after, "by": last.by, "reason": last.reason, "at": last.at},
        },
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def _view(model: str, alias: StoredAlias, history: Sequence[AliasMove] = ()) -> AliasView:
    if alias.last is None:
        raise InternalError(f"The alias {alias.name} of {model} has no history", where="alias")
    return AliasView(model, alias.name, alias.number, alias.last, tuple(history))
