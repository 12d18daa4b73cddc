"""Sign-in of people with an OpenID Connect provider: the authorization code flow with PKCE.

The browser keeps one random secret between the two requests. State, nonce and code verifier follow from it, so that no
process has to remember a sign-in, and an answer of the provider counts in the browser that asked for it, once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode, urlsplit

from pt2hub.domain.tokens import PERSON_NAME
from pt2hub.errors import (
    INVISIBLE_CHARACTERS,
    IdTokenRejected,
    IdTokenWrongAudience,
    IdTokenWrongIssuer,
    IssuerUnavailable,
    SignInCodeRejected,
    SignInDenied,
    SignInMismatch,
)
from pt2hub.server.db.stores.access.people import PeopleStore
from pt2hub.server.db.stores.values import storable
from pt2hub.server.services.access import id_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.domain.people import Person
    from pt2hub.domain.sign_in import SignInProvider
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.services.access.issuers import Endpoints, HttpIssuers

MAX_GROUPS = 1000
_MAX_CHARS = 300
_AGAIN = "Go to the sign-in page and begin again."


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """A sign-in that a browser begins.

    Attributes:
        url: The provider's page, where the person signs in.
        secret: What the browser keeps until it comes back.
    """

    url: str
    secret: str = field(repr=False)


class SignInService:
    """Sends browsers to the provider, and takes them back."""

    def __init__(self, sessions: Sessions, issuers: HttpIssuers) -> None:
        self._sessions = sessions
        self._issuers = issuers

    def begin(self, provider: SignInProvider) -> SignInAttempt:
        """Return where a browser signs in.

        Raises:
            IssuerUnavailable: The provider does not answer.
        """
        endpoint = self._issuers.endpoints(provider.issuer).authorization
        secret = secrets.token_urlsafe(32)
        fields = {
            "response_type": "code",
            "client_id": provider.client_id,
            "redirect_uri": provider.redirect_uri,
            "scope": " ".join(provider.scopes),
            "state": _derive(secret, "state"),
            "nonce": _derive(secret, "nonce"),
            "code_challenge": _base64(hashlib.sha256(_derive(secret, "verifier").encode()).digest()),
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(endpoint).query else "?"
        return SignInAttempt(f"{endpoint}{joint}{urlencode(fields)}", secret)

    def finish(self, provider: SignInProvider, answer: Mapping[str, str], secret: str) -> Person:
        """Return who signed in, by the provider's answer to a browser.

        Args:
            answer: Parameters of the URL to which the provider sent the browser.
            secret: What the browser kept; empty if it kept nothing.

        Raises:
            SignInMismatch: The answer belongs to no sign-in of this browser.
            SignInDenied: The provider did not let the person sign in.
            SignInCodeRejected: The provider does not accept its own code any more.
            IdTokenRejected: The ID token is not of this provider, for this server, valid now, or of this sign-in; each has
                its own code.
            IssuerUnavailable: The provider does not answer, or refuses this server.
        """
        state = answer.get("state", "")
        # Bytes: what is not ASCII would be an error.
        if not secret or not hmac.compare_digest(_derive(secret, "state").encode(), state.encode()):
            raise SignInMismatch(
                "The provider's answer belongs to no sign-in that this browser began",
                where="state",
                hint=f"It may be older than ten minutes, or of another window. {_AGAIN}",
            )
        if answer.get("iss", provider.issuer) != provider.issuer:  # RFC 9207
            raise IdTokenWrongIssuer("The answer is of another provider", where="iss", hint=_AGAIN)
        code = answer.get("code", "")
        if answer.get("error") or not code:
            raise _denial(answer)
        token = self._exchange(provider, code, _derive(secret, "verifier"))
        return self._store(provider, self._verify(provider, token, _derive(secret, "nonce")))

    def _exchange(self, provider: SignInProvider, code: str, verifier: str) -> str:
        """Return the ID token that the provider gives for a code."""
        endpoints = self._issuers.endpoints(provider.issuer)
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": provider.redirect_uri,
            "code_verifier": verifier,
        }
        more, headers = _credentials(provider, endpoints)
        status, document = self._issuers.post(endpoints.token, fields | more, headers, issuer=provider.issuer)
        if status == HTTPStatus.OK and isinstance(document.get("id_token"), str):
            return str(document["id_token"])
        error = _shorten(document.get("error"))
        if error == "invalid_grant":
            raise SignInCodeRejected(
                "The provider does not accept the code of this sign-in: it was used, or is too old",
                where="code",
                hint=_AGAIN,
            )
        raise IssuerUnavailable(
            f"The provider refuses this server: {error or f'status {status} without an ID token'}",
            where=provider.issuer,
            hint="The server's operator checks PT2HUB_OIDC_CLIENT_ID, PT2HUB_OIDC_CLIENT_SECRET and PT2HUB_PUBLIC_URL.",
        )

    def _verify(self, provider: SignInProvider, token: str, nonce: str) -> Mapping[str, Any]:
        """Return the claims of an ID token; see `id_tokens.verify`."""
        if id_tokens.read_issuer(token) != provider.issuer:
            raise IdTokenWrongIssuer("The ID token names another issuer", where="iss", hint=_AGAIN)
        claims = id_tokens.verify(
            token, issuer=provider.issuer, audiences={provider.client_id}, issuers=self._issuers
        )
        party = claims.get("azp", provider.client_id)
        if party != provider.client_id or (
            isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1 and "azp" not in claims
        ):
            raise IdTokenWrongAudience("The ID token was given to another client", where="azp", hint=_AGAIN)
        if not hmac.compare_digest(str(claims.get("nonce")).encode(), nonce.encode()):
            raise IdTokenRejected("The ID token is of another sign-in", where="nonce", hint=_AGAIN)
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise IdTokenRejected("The ID token does not say whose it is", where="sub")
        return claims

    def _store(self, provider: SignInProvider, claims: Mapping[str, Any]) -> Person:
        with self._sessions.begin() as session:
            return PeopleStore(session).sign_in(
                provider.issuer,
                storable(claims["sub"]),
                name=name_person(provider, claims),
                full_name=_shorten(claims.get("name")),
                email=_shorten(claims.get("email")),
                groups=read_groups(claims.get(provider.groups_claim)),
            )


def name_person(provider: SignInProvider, claims: Mapping[str, Any]) -> str:
    """Return what records call a person: the claim that the operator chose, else the subject; always with an @.

    An address that the provider has not verified is not used: anybody can enter it. Some providers say so as a text, and some
    say nothing.
    """
    given = _shorten(claims.get(provider.name_claim)).lower()
    verified = claims.get("email_verified", True)
    if provider.name_claim == "email" and not (verified is True or verified == "true"):
        given = ""
    host = urlsplit(provider.issuer).hostname or "provider"
    for name in (given, f"{given}@{host}" if given else "", f"{_shorten(claims['sub'])}@{host}"):
        if PERSON_NAME.fullmatch(name):
            return name
    # Subjects such as `auth0|5f7c` fit; those with spaces, colons or an @ of their own do not.
    return f"{hashlib.sha256(str(claims['sub']).encode()).hexdigest()[:16]}@{host}"


def read_groups(value: Any) -> list[str]:
    """Return a person's groups from a claim, which is a list or one text."""
    found = value if isinstance(value, list) else [value]
    texts = (storable(item) for item in found if isinstance(item, str) and 0 < len(item) <= _MAX_CHARS)
    return list(dict.fromkeys(texts))[:MAX_GROUPS]


def _denial(answer: Mapping[str, str]) -> SignInDenied:
    error, said = _shorten(answer.get("error")), _shorten(answer.get("error_description"))
    reason = f"{error}: {said}" if error and said else error or "its answer has no code"
    hint = "Ask the provider's administrator for access." if error == "access_denied" else _AGAIN
    return SignInDenied(f"The provider did not sign you in ({reason})", where="provider", hint=hint)


def _credentials(provider: SignInProvider, endpoints: Endpoints) -> tuple[dict[str, str], dict[str, str]]:
    """Return fields and headers by which the provider knows this server."""
    if provider.client_secret and endpoints.takes_basic:
        pair = f"{quote_plus(provider.client_id)}:{quote_plus(provider.client_secret)}"
        return {}, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    secret = {"client_secret": provider.client_secret} if provider.client_secret else {}
    return {"client_id": provider.client_id} | secret, {}


def _derive(secret: str, use: str) -> str:
    return _base64(hmac.digest(secret.encode(), use.encode(), "sha256"))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    return str(storable(text)).translate(INVISIBLE_CHARACTERS).strip()[:_MAX_CHARS]
