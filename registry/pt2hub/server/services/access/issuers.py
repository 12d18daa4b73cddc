"""Public keys of OpenID Connect providers, over HTTP and kept for a while."""

from __future__ import annotations

import json
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

import urllib3

from pt2hub.errors import IssuerUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from joserfc.jwk import KeySet

_CONFIGURATION = "/.well-known/openid-configuration"
_KEPT_S = 600.0
_REFRESHED_AFTER_S = 30.0
"""A token with an unknown key makes us ask again, but not for each such token."""
_MAX_BYTES = 1 << 20
_TIMEOUT = urllib3.Timeout(connect=5, read=5)
_HINT = "Try again; if this repeats, the server's operator checks the issuer with: pt2hub admin trusted"


class Issuers(Protocol):
    """Keys by issuer."""

    def keys(self, issuer: str, *, kid: str | None = None) -> KeySet:
        """Return the keys of an issuer, asked for again if none has this id.

        Raises:
            IssuerUnavailable: The issuer does not answer, or not with keys.
        """
        ...


class _Kept:
    """Keys, and when they were read."""

    def __init__(self, keys: KeySet) -> None:
        self.keys = keys
        self._at = time.monotonic()

    @property
    def age(self) -> float:
        return time.monotonic() - self._at

    def has(self, kid: str | None) -> bool:
        return kid is None or any(key.kid == kid for key in self.keys.keys)


class HttpIssuers:
    """Keys that providers publish at the address in their configuration (OpenID Connect Discovery 1.0)."""

    def __init__(self) -> None:
        self._pool = urllib3.PoolManager(
            timeout=_TIMEOUT, retries=urllib3.Retry(2, redirect=0, backoff_factor=0.2)
        )
        self._kept: dict[str, _Kept] = {}
        self._lock = threading.Lock()

    def keys(self, issuer: str, *, kid: str | None = None) -> KeySet:
        """Return the keys of an issuer; see `Issuers`."""
        with self._lock:
            known = self._kept.get(issuer)
            if known and known.age < _KEPT_S and (known.has(kid) or known.age < _REFRESHED_AFTER_S):
                return known.keys
            self._kept[issuer] = found = _Kept(self._read(issuer))
            return found.keys

    def _read(self, issuer: str) -> KeySet:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        configuration = self._get(issuer.rstrip("/") + _CONFIGURATION, issuer)
        if configuration.get("issuer") != issuer:
            raise IssuerUnavailable(
                f"{issuer} calls itself {str(configuration.get('issuer'))[:200]!a}", where=issuer, hint=_HINT
            )
        document = self._get(str(configuration.get("jwks_uri")), issuer)
        try:
            return KeySet.import_key_set(document)  # type: ignore[arg-type]  # it checks what it is given
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise IssuerUnavailable(
                f"The keys of {issuer} are malformed", where=issuer, hint=_HINT
            ) from error

    def _get(self, url: str, issuer: str) -> Mapping[str, Any]:
        try:
            response = self._pool.request("GET", url, preload_content=False)
            try:
                data = response.read(_MAX_BYTES + 1)
            finally:
                response.release_conn()
            if response.status != HTTPStatus.OK or len(data) > _MAX_BYTES:
                raise IssuerUnavailable(f"{url} answered with {response.status}", where=issuer, hint=_HINT)
            document = json.loads(data)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise IssuerUnavailable(f"No usable answer from {url[:300]}", where=issuer, hint=_HINT) from error
        if not isinstance(document, dict):
            raise IssuerUnavailable(f"{url} is no JSON object", where=issuer, hint=_HINT)
        return document
