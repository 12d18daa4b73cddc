"""The OpenID Connect provider with which people sign in."""

from __future__ import annotations

from dataclasses import dataclass, field

DEFAULT_SCOPES = ("openid", "profile", "email")
DEFAULT_LABEL = "single sign-on"
DEFAULT_GROUPS_CLAIM = "groups"
DEFAULT_NAME_CLAIM = "email"
CALLBACK = "/sign-in/callback"
"""Where the provider sends browsers back to, below the server's public address."""


@dataclass(frozen=True, slots=True)
class SignInProvider:
    """A provider, and how this server is registered with it.

    Attributes:
        issuer: The provider, as its ID tokens name it (`PT2HUB_OIDC_ISSUER`).
        client_id: What the provider calls this server (`PT2HUB_OIDC_CLIENT_ID`).
        public_url: Address of this server for browsers (`PT2HUB_PUBLIC_URL`).
        client_secret: Secret of the client (`PT2HUB_OIDC_CLIENT_SECRET` or a file); empty for a public client.
        label: What the button calls the provider (`PT2HUB_OIDC_LABEL`).
        scopes: What the provider is asked for (`PT2HUB_OIDC_SCOPES`).
        groups_claim: The claim with a person's groups (`PT2HUB_OIDC_GROUPS_CLAIM`).
        name_claim: The claim with what records call a person (`PT2HUB_OIDC_NAME_CLAIM`).
    """

    issuer: str
    client_id: str
    public_url: str
    client_secret: str = field(default="", repr=False)
    label: str = DEFAULT_LABEL
    scopes: tuple[str, ...] = DEFAULT_SCOPES
    groups_claim: str = DEFAULT_GROUPS_CLAIM
    name_claim: str = DEFAULT_NAME_CLAIM

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends browsers back to; it must be registered there."""
        return self.public_url + CALLBACK
