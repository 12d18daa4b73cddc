"""Trust rules: which holders of an OpenID Connect provider's tokens get a token of this server, and what it allows."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from pt2hub.domain.principals import Principal
from pt2hub.domain.tokens import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping


IDENTIFYING = {
    "https://token.actions.githubusercontent.com": (
        *("repository", "repository_id", "repository_owner", "repository_owner_id"),
    ),
    "https://gitlab.com": ("project_path", "project_id", "namespace_path", "namespace_id"),
}
"""Claims that say whose a workflow is, of providers that everybody may use: a rule must name one."""


@dataclass(frozen=True, slots=True)
class TrustRule:
    """A rule for the tokens of one provider.

    Attributes:
        name: Tokens that the rule creates are named `<name>:<subject>`.
        issuer: The provider, as its tokens name it.
        audience: What its tokens must be meant for, usually the address of this server.
        claims: Pattern by claim, all of which must match; `*` stands for any characters. Of a list, one entry must match.
        scopes: What the created tokens allow.
        patterns: The models for which they allow it.
        seconds: How long they last.
        created_by: Who added the rule.
    """

    id: int
    name: str
    issuer: str
    audience: str
    claims: dict[str, str]
    scopes: tuple[Scope, ...]
    patterns: tuple[str, ...]
    seconds: int
    created_at: str
    created_by: Principal | None = field(default=None, compare=False)

    def mismatches(self, claims: Mapping[str, Any]) -> list[str]:
        """Return the names of the claims that do not match; empty where the rule applies."""
        return [name for name, pattern in self.claims.items() if not _matches(pattern, claims.get(name))]


def _matches(pattern: str, value: Any) -> bool:
    if isinstance(value, list):
        return any(_matches(pattern, item) for item in value if not isinstance(item, list))
    if isinstance(value, bool) or not isinstance(value, str | int):
        return False
    literal = pattern.replace("[", "[[]").replace("?", "[?]")
    return fnmatchcase(str(value), literal)
