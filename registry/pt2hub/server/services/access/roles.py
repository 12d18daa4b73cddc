"""Roles of groups: who of the provider's people may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.audit import Action
from pt2hub.domain.principals import PrincipalKind
from pt2hub.domain.tokens import EVERY_MODEL, Scope, within
from pt2hub.errors import INVISIBLE_CHARACTERS, Forbidden, InvalidInput, NotFound
from pt2hub.server.db.stores.access.people import RoleStore
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.access.roots import check_root_remains, lock_roots
from pt2hub.server.services.access.tokens import check_patterns, describe

if TYPE_CHECKING:
    from pt2hub.domain.people import Role, RoleAssignment
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions

_MAX_GROUP_CHARS = 300


class RoleService:
    """Assignments of roles to groups, by admins of the models that they are about."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def assign(self, group: str, role: Role, pattern: str, *, by: Actor) -> RoleAssignment:
        """Give a group a role on some models; idempotent. It holds from the next request of its people on.

        Raises:
            Forbidden: The actor is not an admin of all these models.
            InvalidInput: The group or the pattern is malformed.
        """
        if (
            not group.strip()
            or len(group) > _MAX_GROUP_CHARS
            or group != group.translate(INVISIBLE_CHARACTERS)
        ):
            raise InvalidInput(
                f"Invalid group {group[:80]!a}",
                where="group",
                hint="Use the name exactly as the provider's ID tokens spell it.",
            )
        (wanted,) = check_patterns([pattern])
        if not by.is_admin_of(wanted):
            raise Forbidden(
                f"Permission denied: {describe(by)} is not an admin of {wanted} and cannot give roles on it",
                where="pattern",
                hint="Ask an admin of these models, or the server's operator: pt2hub admin assign-role",
            )
        with self._sessions.begin() as session:
            made, is_new = RoleStore(session).add(group, role, wanted, by=by.principal)
            if is_new:
                audit_log.record(
                    session, by, Action.ROLE_ASSIGN, group, id=made.id, role=made.role, pattern=wanted
                )
        return made

    def assignments(self, by: Actor) -> tuple[RoleAssignment, ...]:
        """Return the assignments on models that the actor may read."""
        with self._sessions.begin() as session:
            found = RoleStore(session).all()
        readable = by.patterns_for(Scope.READ)
        return tuple(item for item in found if any(within(item.pattern, own) for own in readable))

    def remove(self, assignment_id: int, *, by: Actor) -> RoleAssignment:
        """Take a role from a group; its people lose what it allowed with their next request.

        Raises:
            NotFound: There is no such assignment for the actor.
            Conflict: Nobody would be an admin of all models any more; the operator can still do it.
        """
        with self._sessions.begin() as session:
            lock_roots(session)
            store = RoleStore(session)
            found = store.one(assignment_id)
            if found is None or not by.is_admin_of(found.pattern):
                raise NotFound(
                    f"Role assignment {assignment_id} not found",
                    where="id",
                    hint="The page Teams and pt2hub admin roles list them.",
                )
            store.remove(assignment_id)
            if found.pattern == EVERY_MODEL and by.kind != PrincipalKind.OPERATOR:
                check_root_remains(session, f"The role {found.role} of the group {found.group}")
            audit_log.record(
                session,
                by,
                Action.ROLE_REMOVE,
                found.group,
                id=found.id,
                role=found.role,
                pattern=found.pattern,
            )
        return found
