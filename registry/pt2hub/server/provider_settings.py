"""Settings of the OpenID Connect provider for sign-in, from environment variables; `config` calls this."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pt2hub.domain.sign_in import (
    DEFAULT_GROUPS_CLAIM,
    DEFAULT_LABEL,
    DEFAULT_NAME_CLAIM,
    DEFAULT_SCOPES,
    SignInProvider,
)
from pt2hub.errors import INVISIBLE_CHARACTERS, BadConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping

_ISSUER, _CLIENT, _URL = "PT2HUB_OIDC_ISSUER", "PT2HUB_OIDC_CLIENT_ID", "PT2HUB_PUBLIC_URL"
_SECRET = "PT2HUB_OIDC_CLIENT_SECRET"  # noqa: S105  # a name, no secret
_SECRET_FILE = "PT2HUB_OIDC_CLIENT_SECRET_FILE"  # noqa: S105
_LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
_WORD = re.compile(r"[^\s\"\\]{1,200}")


def read_provider(environ: Mapping[str, str]) -> SignInProvider | None:
    """Return the provider; None if none is set.

    Raises:
        BadConfiguration: A value is invalid, or one is missing; the error names the variable.
    """
    issuer = environ.get(_ISSUER, "")
    public_url = _address(environ, _URL) if environ.get(_URL) else ""
    if not issuer:
        return None
    _address(environ, _ISSUER)
    for name, what in (
        (_CLIENT, "what the provider calls this server"),
        (_URL, "this server's address for browsers"),
    ):
        if not environ.get(name):
            raise BadConfiguration(
                f"{_ISSUER} is set, but {name} is not",
                where=name,
                hint=f"Set it to {what}.",
            )
    return SignInProvider(
        issuer,
        environ[_CLIENT],
        public_url.rstrip("/"),
        _secret(environ),
        _label(environ.get("PT2HUB_OIDC_LABEL") or DEFAULT_LABEL),
        _scopes(environ.get("PT2HUB_OIDC_SCOPES")),
        environ.get("PT2HUB_OIDC_GROUPS_CLAIM") or DEFAULT_GROUPS_CLAIM,
        environ.get("PT2HUB_OIDC_NAME_CLAIM") or DEFAULT_NAME_CLAIM,
    )


def _address(environ: Mapping[str, str], name: str) -> str:
    value = environ[name]
    try:
        parts = urlsplit(value)
        secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL)
        right = secure and parts.hostname and parts.port != 0
    except ValueError:
        right, parts = False, urlsplit("")
    is_path_wrong = name == _URL and parts.path.rstrip("/")
    if not right or is_path_wrong or parts.query or parts.fragment or "@" in parts.netloc:
        raise BadConfiguration(
            "The value must be an HTTPS address",
            where=name,
            hint="Use https://pt2hub.example, without a path: pages are served at the root of a host."
            if name == _URL
            else "Use the issuer as the provider's ID tokens name it, such as https://login.example/realms/acme. Plain "
            "HTTP is for this machine alone.",
        )
    return value


def _secret(environ: Mapping[str, str]) -> str:
    file = environ.get(_SECRET_FILE)
    if not file:
        return environ.get(_SECRET, "")
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(
            f"The file {file[:200]} with the client's secret cannot be read",
            where=_SECRET_FILE,
            hint="The server's user must be able to read it.",
        ) from error


def _scopes(text: str | None) -> tuple[str, ...]:
    found = tuple((text or "").replace(",", " ").split()) or DEFAULT_SCOPES
    if "openid" not in found or not all(map(_WORD.fullmatch, found)):
        raise BadConfiguration(
            "The scopes must include openid",
            where="PT2HUB_OIDC_SCOPES",
            hint=f"The default is {' '.join(DEFAULT_SCOPES)}; some providers need groups as well.",
        )
    return found


def _label(text: str) -> str:
    return text.translate(INVISIBLE_CHARACTERS).strip()[:60] or DEFAULT_LABEL
