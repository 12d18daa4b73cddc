"""Tokens for devices without a browser, such as a terminal (OAuth 2.0 Device Authorization Grant, RFC 8628).

A device shows an address and a code. A person opens the address in a browser anywhere, is signed in there, and says what
the token may do; the device polls until then. The token is made when the device gets it, and stored nowhere before.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pt2hub.domain.audit import Action
from pt2hub.domain.people import DeviceState
from pt2hub.domain.principals import PrincipalKind
from pt2hub.domain.tokens import Actor, Permission, Scope
from pt2hub.errors import (
    INVISIBLE_CHARACTERS,
    AccessDenied,
    AuthorizationPending,
    DeviceCodeExpired,
    NotFound,
    Pt2hubError,
    SlowDown,
)
from pt2hub.server.db.stores.access.device_requests import DeviceRequestStore
from pt2hub.server.db.stores.access.people import PeopleStore
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.access.token_management import check_own, check_person
from pt2hub.server.services.access.tokens import check_token
from pt2hub.wire.identities import MintedToken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.people import DeviceRequest
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.access.device_requests import PolledRequest
    from pt2hub.server.services.access.tokens import AccessService

LIFETIME = timedelta(minutes=10)
INTERVAL_S = 5
_SLOWER_BY_S = 5
"""RFC 8628, section 3.5: by how much the interval grows after a poll that came too early."""
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""Without vowels, so that codes are no words; without Y, which keyboards put elsewhere. 20 ** 8 codes."""
_CODE_CHARS = 8
_MAX_CLIENT_CHARS = 100
_AGAIN = "Begin again: pt2hub login"


@dataclass(frozen=True, slots=True)
class DeviceCodes:
    """The codes of a new request.

    Attributes:
        device_code: What the device polls with; only its SHA-256 is stored.
        user_code: What the person types, such as `WDJB-MJHT`.
    """

    device_code: str = field(repr=False)
    user_code: str


class DeviceService:
    """Requests of devices, their approval and the tokens that they get."""

    def __init__(self, sessions: Sessions, access: AccessService) -> None:
        self._sessions = sessions
        self._access = access

    def request(self, client: str) -> DeviceCodes:
        """Begin a request.

        Args:
            client: What the device says of itself, for the page.
        """
        shown = client.translate(INVISIBLE_CHARACTERS).strip()[:_MAX_CLIENT_CHARS] or "a device"
        while True:
            letters = "".join(secrets.choice(_LETTERS) for _ in range(_CODE_CHARS))
            codes = DeviceCodes(secrets.token_urlsafe(32), normalize_code(letters))
            with self._sessions.begin() as session:
                if DeviceRequestStore(session).add(
                    _sha256(codes.device_code),
                    codes.user_code,
                    shown,
                    lasting=LIFETIME,
                    interval_s=INTERVAL_S,
                ):
                    return codes

    def find(self, user_code: str) -> DeviceRequest:
        """Return an undecided request.

        Raises:
            NotFound: There is none with this code.
        """
        with self._sessions.begin() as session:
            found = DeviceRequestStore(session).pending(normalize_code(user_code))
        if found is None:
            raise _unknown()
        return found

    def approve(
        self,
        user_code: str,
        name: str,
        *,
        scopes: Sequence[Scope],
        patterns: Sequence[str],
        lasting: timedelta,
        by: Actor,
    ) -> None:
        """Let the device have a token of the person who is signed in.

        Raises:
            NotFound: There is no undecided request with this code.
            Forbidden: It would reach further than the person's roles, or the actor is not a person in a browser.
            InvalidInput: A field is malformed; see `AccessService.create`.
        """
        wanted = Permission(frozenset(scopes), tuple(patterns))
        check_own(by, wanted, lasting)
        check_token(name, wanted, lasting)
        grant = {
            "name": name,
            "scopes": sorted(wanted.scopes),
            "patterns": list(wanted.patterns),
            "seconds": int(lasting.total_seconds()),
        }
        self._decide(user_code, DeviceState.APPROVED, grant, by)

    def deny(self, user_code: str, *, by: Actor) -> None:
        """Refuse the device's request.

        Raises:
            NotFound: There is no undecided request with this code.
            Forbidden: The actor is not a person in a browser.
        """
        self._decide(user_code, DeviceState.DENIED, None, by)

    def redeem(self, device_code: str, *, request: str | None = None) -> MintedToken:
        """Return the token of an approved request, once.

        Args:
            request: Id of the HTTP request, for the audit log.

        Raises:
            AuthorizationPending: The person has not decided.
            SlowDown: The same, and the device polled too early; the interval has grown.
            AccessDenied: They denied it.
            DeviceCodeExpired: There is no such request any more.
        """
        sha256 = _sha256(device_code)
        with self._sessions.begin() as session:
            store = DeviceRequestStore(session)
            found = store.poll(sha256, slower_by_s=_SLOWER_BY_S)
            if found and found.state is not DeviceState.PENDING:
                store.remove(sha256)
            if found and found.state is DeviceState.APPROVED:
                return self._mint(session, found, request)
        raise _refusal(found)

    def sweep(self) -> None:
        """Remove expired requests; a maintenance task."""
        with self._sessions.begin() as session:
            DeviceRequestStore(session).sweep()

    def _decide(self, user_code: str, state: DeviceState, grant: dict[str, Any] | None, by: Actor) -> None:
        check_person(by)
        code = normalize_code(user_code)
        with self._sessions.begin() as session:
            store = DeviceRequestStore(session)
            found = store.pending(code)
            if found is None or not store.decide(code, state, person=by.person or 0, grant=grant):
                raise _unknown()
            action = Action.DEVICE_APPROVE if state is DeviceState.APPROVED else Action.DEVICE_DENY
            audit_log.record(session, by, action, found.client, **(grant or {}))

    def _mint(self, session: Session, found: PolledRequest, request: str | None) -> MintedToken:
        assert found.grant is not None and found.person is not None, "approved requests have both"  # noqa: PT018
        person = PeopleStore(session).one(found.person)
        assert person is not None, "people are never deleted"
        by = Actor(person.name, kind=PrincipalKind.PERSON, person=person.id, request=request)
        scopes = tuple(map(Scope, found.grant["scopes"]))
        lasting = timedelta(seconds=found.grant["seconds"])
        wanted = Permission(frozenset(scopes), tuple(found.grant["patterns"]))
        actor = check_token(found.grant["name"], wanted, lasting)
        token, made = self._access.create_within(session, actor, lasting=lasting, person=person.id, by=by)
        return MintedToken(token, person.name, made.admin, scopes, made.patterns, str(made.expires_at))


def normalize_code(typed: str) -> str:
    """Return a user code as it is stored, however it was typed: `wdjbmjht` is `WDJB-MJHT`."""
    letters = re.sub(r"[^A-Z]", "", typed.upper())[: 2 * _CODE_CHARS]
    return f"{letters[:4]}-{letters[4:]}"


def _refusal(found: PolledRequest | None) -> Pt2hubError:
    if found is None:
        return DeviceCodeExpired(
            "The request does not exist, has expired, or got its token", where="device_code", hint=_AGAIN
        )
    if found.state is DeviceState.DENIED:
        return AccessDenied("The request was denied in the browser", where="device_code", hint=_AGAIN)
    hint = f"Ask again in {found.interval_s} s."
    if found.too_early:
        return SlowDown(
            "The device asks too often",
            where="device_code",
            hint=hint,
            context={"interval": found.interval_s},
        )
    return AuthorizationPending("The person has not decided yet", where="device_code", hint=hint)


def _unknown() -> NotFound:
    return NotFound(
        "No device waits with this code",
        where="user_code",
        hint="Compare it with the one that the device shows. It is valid for 10 minutes and for one decision.",
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
