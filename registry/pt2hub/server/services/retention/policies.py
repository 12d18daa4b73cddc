"""Retention policies: which versions of a model are kept; the others are deleted by an hourly run."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.audit import Action
from pt2hub.domain.names import parse_model_name
from pt2hub.domain.tokens import EVERY_MODEL, SERVER, Scope
from pt2hub.errors import Forbidden, NotFound, Pt2hubError, StillNeeded
from pt2hub.server.db.stores.operations.reindex_state import ReindexState
from pt2hub.server.db.stores.retention.dependents import DependentStore
from pt2hub.server.db.stores.retention.policies import RetentionStore, StoredRetention
from pt2hub.server.db.stores.retention.pull_history import PullHistory
from pt2hub.server.db.stores.retention.shared_blobs import SharedBlobStore
from pt2hub.server.services import not_found
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.retention.plans import find_needs, list_needs
from pt2hub.wire.retention import KeptThing, RetentionPreview, RetentionView

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.retention.dependents import Doomed
    from pt2hub.server.services.retention.deletion import DeletionService

MAX_LAST = 100_000
MAX_DAYS = 36_500
_PREVIEWED = 1000
"""Versions of a model in a preview; the next ones follow once these are deleted."""
_PER_RUN = 100
"""Versions of a model that one run deletes: each is a transaction."""
_RUNNER = replace(SERVER, admin=True)
_log = structlog.get_logger(__name__)


class RetentionService:
    """Sets, shows, previews and runs retention policies."""

    def __init__(self, sessions: Sessions, deletion: DeletionService) -> None:
        self._sessions = sessions
        self._deletion = deletion

    def show(self, scope: str, *, by: Actor) -> RetentionView:
        """Return the policy that holds for a model or a team.

        Raises:
            InvalidInput: The name is malformed.
            Forbidden: The actor is not an admin of the model or of all the team's models.
        """
        _check(by, scope, "see its retention policy")
        return self.policy(scope)

    def policy(self, scope: str) -> RetentionView:
        """Return the policy that holds for a model or a team that may be read, for its page."""
        with self._sessions.begin() as session:
            return _view(scope, RetentionStore(session).effective(scope))

    def put(
        self, scope: str, *, last: int | None = None, pulled_within_days: int | None = None, by: Actor
    ) -> RetentionView:
        """Set the policy of a model or a team; setting the same again changes nothing.

        Args:
            last: How many of the newest versions with an artifact are kept; None keeps everything.
            pulled_within_days: Versions that were pulled or published within so many days are kept too.

        Raises:
            InvalidInput: The name is malformed.
            Forbidden: The actor is not an admin of the model or of all the team's models.
            NotFound: The model does not exist.
        """
        _check(by, scope, "set its retention policy")
        document = {"last": last, "pulled_within_days": pulled_within_days}
        with self._sessions.begin() as session:
            if "/" in scope:
                not_found.require_model(session, scope)
            store = RetentionStore(session)
            before = store.one(scope)
            if before is None or (before.last, before.pulled_within_days) != (last, pulled_within_days):
                store.put(scope, document, by.principal)
                audit_log.record(
                    session,
                    by,
                    Action.RETENTION_CHANGE,
                    scope,
                    models=[scope] if "/" in scope else [],
                    before=_document(before),
                    after=document,
                )
            return _view(scope, store.effective(scope))

    def remove(self, scope: str, *, by: Actor) -> RetentionView:
        """Remove the policy that is set on a model or a team itself.

        Returns:
            The policy that holds from now on: for a model, its team's.

        Raises:
            InvalidInput: The name is malformed.
            Forbidden: The actor is not an admin of the model or of all the team's models.
            NotFound: The model does not exist, or no policy is set on it.
        """
        _check(by, scope, "remove its retention policy")
        with self._sessions.begin() as session:
            if "/" in scope:
                not_found.require_model(session, scope)
            store = RetentionStore(session)
            before = store.one(scope)
            if before is None:
                raise NotFound(
                    f"No retention policy is set on {scope} itself",
                    where="scope",
                    hint=f"pt2hub retention show {scope} names the policy that holds.",
                )
            store.remove(scope)
            audit_log.record(
                session,
                by,
                Action.RETENTION_CHANGE,
                scope,
                models=[scope] if "/" in scope else [],
                before=_document(before),
                after=None,
            )
            return _view(scope, store.effective(scope))

    def preview(self, scope: str, *, by: Actor) -> RetentionPreview:
        """Return what the policies of a model or of a team's models delete now, and what they keep although it is old.

        Raises:
            InvalidInput: The name is malformed.
            Forbidden: The actor is not an admin of the model or of all the team's models.
        """
        _check(by, scope, "see its retention policy")
        policies: list[RetentionView] = []
        goes: list[str] = []
        kept: list[KeptThing] = []
        notes: list[str] = []
        freed = 0
        with self._sessions.begin() as session:
            store, dependents = RetentionStore(session), DependentStore(session)
            notes += (paused := _list_pauses(session))
            models = store.models(scope)
            if "/" in scope and not models:
                raise NotFound(
                    f"Model {scope} not found", where="scope", hint="pt2hub models lists the models."
                )
            for model in models:
                policy = store.effective(model)
                policies.append(_view(model, policy))
                notes += _notes(session, model, policy)
                doomed: list[Doomed] = []
                for number in _previewed(store, model, policy) if not paused else ():
                    found = dependents.find(model, 0, number)
                    needs = list_needs(found, find_needs(session, found))
                    kept += needs
                    if not needs:
                        goes.append(f"{model}@{number}")
                        doomed.append(found)
                blobs = SharedBlobStore(session).of(*doomed) if doomed else []
                freed += sum(blob.size for blob in blobs if blob.exclusive)
        return RetentionPreview(tuple(policies), tuple(goes), tuple(kept), freed, tuple(notes))

    def run(self) -> int:
        """Delete what the policies do not keep; return the number of versions.

        What is needed is kept and looked at again by the next run. Nothing is deleted while a reindex is due, runs or has
        left anything out: aliases may be missing, and the policies and pulls may be older than what was lost.
        """
        self.note_running()
        with self._sessions.begin() as session:
            if pauses := _list_pauses(session):
                _log.warning("retention policies are paused", reason=pauses[0])
                return 0
            store = RetentionStore(session)
            governed = [(model, policy) for model in store.governed() if (policy := store.effective(model))]
        return sum(self._attempt(model, policy) for model, policy in governed)

    def note_running(self) -> None:
        """Note that a server runs, which records pulls; a maintenance task."""
        with self._sessions.begin() as session:
            PullHistory(session).note()

    def _attempt(self, model: str, policy: StoredRetention) -> int:
        """Apply a model's policy; what fails must not keep other models' policies and the collector from their turn."""
        try:
            return self._run(model, policy)
        except Pt2hubError as error:
            _log.warning("a retention policy was not applied", model=model, error=str(error))
            return 0

    def _run(self, model: str, policy: StoredRetention) -> int:
        """Delete what a model's policy does not keep, a bounded number of versions; return how many."""
        deleted = after = 0
        while True:
            with self._sessions.begin() as session:
                expired = RetentionStore(session).expired(model, policy, limit=_PER_RUN, after=after)
            for number in expired:
                deleted += self._delete(model, number, policy)
                if deleted == _PER_RUN:
                    return deleted
            if len(expired) < _PER_RUN:
                return deleted
            after = expired[-1]  # what is needed must not keep the next ones from being looked at

    def _delete(self, model: str, number: int, policy: StoredRetention) -> bool:
        """Delete a version, unless its policy was changed or it was pulled since it was listed."""

        def is_kept(session: Session) -> bool:
            store = RetentionStore(session)
            expired = store.effective(model) == policy and store.is_expired(model, policy, number)
            return not expired or bool(_list_pauses(session))

        try:
            view = self._deletion.version(model, number, by=_RUNNER, reason=_reason(policy), unless=is_kept)
        except StillNeeded as error:
            reasons: list[KeptThing] = error.context.get("kept", [])
            _log.info("a retention policy keeps what is needed", version=f"{model}@{number}", kept=reasons)
        except Pt2hubError as error:
            _log.warning("a version was not deleted", version=f"{model}@{number}", error=str(error))
        else:
            return view.deleted
        return False


def pattern_of(scope: str) -> str:
    """Return the name that a token's patterns must cover for a model or a team."""
    return scope if "/" in scope else f"{scope}/{EVERY_MODEL}"


def _list_pauses(session: Session) -> list[str]:
    """Return in words why no policy deletes anything now."""
    if ReindexState(session).losses() == 0:
        return []
    return [
        "no policy deletes anything: aliases may be missing until pt2hub admin reindex has ended and could read everything"
    ]


def _notes(session: Session, model: str, policy: StoredRetention | None) -> list[str]:
    """Return in words why a policy does not delete by age yet."""
    days = policy.pulled_within_days if policy and policy.last is not None else None
    until = PullHistory(session).held_until(days) if days is not None else None
    if until is None:
        return []
    why = "who pulled what before is not known, as after a rebuild, a gap of some days or a jump of the clock"
    return [f"{model}: nothing is deleted by age before {until[:16]}Z: {why}"]


def _previewed(store: RetentionStore, model: str, policy: StoredRetention | None) -> list[int]:
    if policy is None:
        return []
    pinned = store.expired(model, policy, limit=_PREVIEWED, pinned=True)
    return sorted([*pinned, *store.expired(model, policy, limit=_PREVIEWED)])


def _check(by: Actor, scope: str, doing: str) -> None:
    parse_model_name(scope if "/" in scope else f"{scope}/x")
    if not by.may(Scope.ADMIN, pattern_of(scope)):
        raise Forbidden(
            f'Permission denied: the token "{by.name}" is not an admin token for {pattern_of(scope)} and cannot {doing}',
            where="scope",
            hint="Ask the server's operator for one: pt2hub admin token --name NAME --scope admin "
            f"--models {quote(pattern_of(scope))}",
        )


def _view(scope: str, policy: StoredRetention | None) -> RetentionView:
    if policy is None:
        return RetentionView(scope)
    return RetentionView(scope, policy.scope, policy.last, policy.pulled_within_days, policy.by, policy.at)


def _document(policy: StoredRetention | None) -> dict[str, int | None] | None:
    if policy is None:
        return None
    return {"last": policy.last, "pulled_within_days": policy.pulled_within_days}


def _reason(policy: StoredRetention) -> str:
    pulled = f", not pulled within {policy.pulled_within_days} days" if policy.pulled_within_days else ""
    return f"retention policy of {policy.scope}: not among the last {policy.last}{pulled}"
