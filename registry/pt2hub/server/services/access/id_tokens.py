"""Verification of ID tokens (OpenID Connect Core 1.0, section 3.1.3.7).

joserfc is imported on first use: most servers and all workers do without it.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, TypeGuard

from pt2hub.errors import (
    IdTokenExpired,
    IdTokenRejected,
    IdTokenSignature,
    IdTokenWrongAudience,
    IdTokenWrongIssuer,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pt2hub.server.services.access.issuers import Issuers

MAX_ID_TOKEN_CHARS = 16 << 10
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures with a public key: none with a shared secret, and not `none`."""
_LEEWAY_S = 60.0
"""How far the clocks of a provider and this server may be apart."""
_RENEW = "Ask the provider for a new one right before you send it."


def read_issuer(token: str) -> str:
    """Return the issuer that a token names, before anything of it is verified.

    Raises:
        IdTokenRejected: It is no signed JSON Web Token.
    """
    from joserfc import jws
    from joserfc.errors import JoseError

    if len(token) > MAX_ID_TOKEN_CHARS:
        raise IdTokenRejected("The ID token is too long", where="token")
    try:
        payload = json.loads(jws.extract_compact(token.encode()).payload or b"")
    except (JoseError, ValueError) as error:
        raise IdTokenRejected(
            "The ID token is malformed",
            where="token",
            hint="Send the whole token: three parts, with dots between them.",
        ) from error
    return str(payload.get("iss") if isinstance(payload, dict) else None)[:500]


def verify(token: str, *, issuer: str, audiences: Collection[str], issuers: Issuers) -> Mapping[str, Any]:
    """Return the claims of a token after checking its signature, its times and for whom it is.

    Raises:
        IdTokenSignature: It is not signed with one of the issuer's keys, or not with a public-key algorithm.
        IdTokenWrongIssuer: It names another issuer.
        IdTokenExpired: It has expired, or is not valid yet.
        IdTokenWrongAudience: It is for somebody else.
        IssuerUnavailable: The issuer's keys cannot be read.
    """
    claims = _signed_claims(token, issuer, issuers)
    if claims.get("iss") != issuer:
        raise IdTokenWrongIssuer("The ID token names another issuer", where="iss")
    _check_times(claims)
    given = claims.get("aud")
    meant = given if isinstance(given, list) else [given]
    if not any(isinstance(one, str) and one in audiences for one in meant):
        raise IdTokenWrongAudience(
            f"The ID token is for {str(given)[:200]!a}, not for this server",
            where="aud",
            hint=f"Request it with the audience {' or '.join(sorted(audiences))}.",
        )
    return claims


def _signed_claims(token: str, issuer: str, issuers: Issuers) -> dict[str, Any]:
    from joserfc import jws, jwt
    from joserfc.errors import InvalidKeyIdError, JoseError

    try:
        kid = jws.extract_compact(token.encode()).headers().get("kid")
        keys = issuers.keys(issuer, kid=str(kid) if kid is not None else None)
        return dict(jwt.decode(token, keys, algorithms=_ALGORITHMS).claims)
    except InvalidKeyIdError as error:
        raise IdTokenSignature(
            f"The ID token is signed with a key that {issuer} does not publish", where="token", hint=_RENEW
        ) from error
    except (JoseError, ValueError) as error:
        raise IdTokenSignature(
            "The signature of the ID token is not valid", where="token", hint=_RENEW
        ) from error


def _check_times(claims: Mapping[str, Any]) -> None:
    now = time.time()
    expires, begins = claims.get("exp"), claims.get("nbf", claims.get("iat", 0))
    if not (_is_number(expires) and _is_number(begins)):
        raise IdTokenExpired("The ID token has no valid times", where="exp", hint=_RENEW)
    if expires < now - _LEEWAY_S:
        raise IdTokenExpired(f"The ID token expired {now - expires:.0f} s ago", where="exp", hint=_RENEW)
    if begins > now + _LEEWAY_S:
        raise IdTokenExpired(
            f"The ID token is valid in {begins - now:.0f} s only",
            where="nbf",
            hint="Set the clocks of the provider and of this server.",
        )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
