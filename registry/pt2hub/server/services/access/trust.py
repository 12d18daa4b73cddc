"""Trusted publishing: an OpenID Connect provider's token is exchanged for a short-lived one of this server."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pt2hub.domain.audit import Action
from pt2hub.domain.principals import PrincipalKind
from pt2hub.domain.tokens import Actor, Scope
from pt2hub.domain.trust import IDENTIFYING
from pt2hub.errors import INVISIBLE_CHARACTERS, Detail, IdTokenWrongIssuer, InvalidInput, NoGrant, NotFound
from pt2hub.server.db.stores.access.trust import TrustStore
from pt2hub.server.services.access import audit_log, id_tokens
from pt2hub.server.services.access.tokens import check_patterns
from pt2hub.wire.identities import MintedToken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pt2hub.domain.trust import TrustRule
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.services.access.issuers import Issuers
    from pt2hub.server.services.access.tokens import AccessService

DEFAULT_SECONDS = 900
MAX_SECONDS = 12 * 3600
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_MAX_CLAIMS = 20
_MAX_CHARS = 300
_MAX_NAME_CHARS = 100
_MAX_SHOWN = 5


class TrustService:
    """Trust rules, and the exchange of ID tokens."""

    def __init__(self, sessions: Sessions, access: AccessService, issuers: Issuers) -> None:
        self._sessions = sessions
        self._access = access
        self._issuers = issuers

    def add(  # noqa: PLR0913  # a rule has as many fields
        self,
        name: str,
        *,
        issuer: str,
        audience: str,
        claims: Mapping[str, str],
        scopes: Sequence[Scope],
        patterns: Sequence[str],
        lasting: timedelta = timedelta(seconds=DEFAULT_SECONDS),
        by: Actor,
    ) -> TrustRule:
        """Add a rule.

        Raises:
            InvalidInput: A field is malformed, the tokens would last too long, or the rule would let in everybody who has an
                account at a public provider.
        """
        _check(name, issuer, audience, claims)
        _check_grant(scopes, lasting)
        values: dict[str, Any] = {
            "name": name,
            "issuer": issuer,
            "audience": audience,
            "claims": dict(claims),
            "scopes": sorted(set(scopes)),
            "patterns": list(check_patterns(patterns)),
            "seconds": int(lasting.total_seconds()),
        }
        with self._sessions.begin() as session:
            rule = TrustStore(session).add(values, by=by.principal)
            audit_log.record(session, by, Action.TRUST_ADD, name, id=rule.id, **values)
        return rule

    def rules(self) -> tuple[TrustRule, ...]:
        """Return the rules in the order in which they apply."""
        with self._sessions.begin() as session:
            return TrustStore(session).all()

    def remove(self, rule_id: int, *, by: Actor) -> TrustRule:
        """Remove a rule; tokens that it created last until they expire.

        Raises:
            NotFound: There is no such rule.
        """
        with self._sessions.begin() as session:
            rule = TrustStore(session).remove(rule_id)
            if rule is None:
                raise NotFound(
                    f"Trust rule {rule_id} not found",
                    where="id",
                    hint="pt2hub admin trusted lists the rules.",
                )
            audit_log.record(session, by, Action.TRUST_REMOVE, rule.name, id=rule.id)
        return rule

    def exchange(self, token: str, *, request: str | None = None) -> MintedToken:
        """Exchange an ID token for a token of this server, by the first rule that applies.

        Args:
            request: Id of the request, for the audit log.

        Raises:
            IdTokenRejected: The token is malformed, expired, for another server, not signed by its issuer, or of an issuer
                without a rule; each has its own code.
            NoGrant: No rule applies to its claims; the details name what each rule misses.
            IssuerUnavailable: The issuer's keys cannot be read.
        """
        issuer = id_tokens.read_issuer(token)
        rules = [rule for rule in self.rules() if rule.issuer == issuer]
        if not rules:
            raise IdTokenWrongIssuer(
                f"This server has no rule for the issuer {issuer!a}",
                where="iss",
                hint="Ask the server's operator for one: pt2hub admin trust",
            )
        audiences = {rule.audience for rule in rules}
        claims = id_tokens.verify(token, issuer=issuer, audiences=audiences, issuers=self._issuers)
        rule = _chosen(rules, claims)
        return self._mint(rule, claims, request)

    def _mint(self, rule: TrustRule, claims: Mapping[str, Any], request: str | None) -> MintedToken:
        subject = str(claims.get("sub", "")).translate(INVISIBLE_CHARACTERS) or "unnamed"
        name = f"{rule.name}:{subject}"[:_MAX_NAME_CHARS]
        lasting = timedelta(seconds=rule.seconds)
        holder = Actor(f"{subject[:_MAX_CHARS]} at {rule.issuer}", kind=PrincipalKind.OIDC, request=request)
        made = self._access.create_token(
            name, scopes=rule.scopes, patterns=rule.patterns, lasting=lasting, by=holder
        )
        actor = self._access.verify(made)
        scopes = tuple(Scope) if actor.admin else tuple(sorted(actor.scopes))
        return MintedToken(made, name, actor.admin, scopes, actor.patterns, str(actor.expires_at))


def _chosen(rules: Sequence[TrustRule], claims: Mapping[str, Any]) -> TrustRule:
    given = claims.get("aud")
    meant = given if isinstance(given, list) else [given]
    fitting = [rule for rule in rules if rule.audience in meant]
    for rule in fitting:
        if not rule.mismatches(claims):
            return rule
    details = tuple(
        Detail(
            name,
            f"the rule {rule.name} requires {rule.claims[name]}",
            str(claims.get(name, "nothing"))[:_MAX_CHARS],
        )
        for rule in fitting[:_MAX_SHOWN]
        for name in rule.mismatches(claims)
    )
    # What rules require is shown to holders of a valid token for this server only.
    raise NoGrant(
        f"No rule of this server applies to the ID token of {str(claims.get('sub'))[:200]!a}",
        where="token",
        hint="Ask the server's operator for a rule: pt2hub admin trust",
        details=details,
    )


def _check(name: str, issuer: str, audience: str, claims: Mapping[str, str]) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"Invalid name of a trust rule {name[:80]!a}",
            where="name",
            hint="Use up to 40 lower-case letters, digits, dots, hyphens and underscores, such as vision-ci.",
        )
    parts = urlsplit(issuer)
    local = parts.scheme == "http" and parts.hostname in {"127.0.0.1", "localhost", "::1"}
    if not (parts.scheme == "https" or local) or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInput(
            f"Invalid issuer {issuer[:200]!a}",
            where="issuer",
            hint="Use the address that the provider's tokens name, such as https://token.actions.githubusercontent.com.",
        )
    if not audience or len(audience) > _MAX_CHARS:
        raise InvalidInput(
            "Invalid audience",
            where="audience",
            hint="Use the address of this server, which its clients request.",
        )
    _check_claims(issuer, claims)


def _check_claims(issuer: str, claims: Mapping[str, str]) -> None:
    if (
        not claims
        or len(claims) > _MAX_CLAIMS
        or any(len(text) > _MAX_CHARS for pair in claims.items() for text in pair)
    ):
        raise InvalidInput(
            f"A rule requires 1 to {_MAX_CLAIMS} claims",
            where="claims",
            hint="Name what must hold, such as repository=acme/vision or groups=ml-release.",
        )
    if all(not pattern.strip("*") for pattern in claims.values()):
        raise InvalidInput(
            "The rule would apply to everybody with a token of this provider",
            where="claims",
            hint="Require at least one claim with more than *.",
        )
    whose = IDENTIFYING.get(issuer.rstrip("/"), ())
    if whose and not any(claims.get(name, "*")[:1] != "*" for name in whose):
        raise InvalidInput(
            "The rule would apply to repositories of strangers: everybody may use this provider",
            where="claims",
            hint=f"Also require one of {', '.join(whose)}, with a value that does not begin with *.",
        )


def _check_grant(scopes: Sequence[Scope], lasting: timedelta) -> None:
    if not scopes:
        raise InvalidInput(
            "The tokens would allow nothing", where="scopes", hint=f"Use some of {', '.join(Scope)}."
        )
    if not timedelta(seconds=60) <= lasting <= timedelta(seconds=MAX_SECONDS):
        raise InvalidInput(
            "Invalid lifetime of the tokens",
            where="lasting",
            hint=f"Use 1 minute to {MAX_SECONDS // 3600} hours.",
        )
