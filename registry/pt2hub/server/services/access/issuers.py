"""OpenID Connect providers over HTTP: their configuration and public keys, kept for a while, and their token endpoints."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlencode, urlsplit

import urllib3

from pt2hub.errors import IssuerUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from joserfc.jwk import KeySet

_CONFIGURATION = "/.well-known/openid-configuration"
_KEPT_S = 600.0
_REFRESHED_AFTER_S = 30.0
"""A token with an unknown key makes us ask again, but not for each such token."""
_FAILED_S = 10.0
"""How long an issuer that failed is not asked again: each request would wait for the same time-out."""
_PATIENCE_S = 5.0
"""How long a request waits for the answer that another one has asked for."""
_MAX_BYTES = 1 << 20
_TIMEOUT = urllib3.Timeout(connect=5, read=5)
_HINT = "Try again; if this repeats, the server's operator checks the issuer: PT2HUB_OIDC_ISSUER, pt2hub admin trusted"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a provider is asked.

    Attributes:
        authorization: Where browsers are sent to sign in.
        token: Where codes are exchanged for ID tokens.
        takes_basic: Whether `token` takes the client's secret in the header (`client_secret_basic`), not in the body.
    """

    authorization: str
    token: str
    takes_basic: bool


class Issuers(Protocol):
    """Keys by issuer."""

    def keys(self, issuer: str, *, kid: str | None = None) -> KeySet:
        """Return the keys of an issuer, asked for again if none has this id.

        Raises:
            IssuerUnavailable: The issuer does not answer, or not with keys.
        """
        ...


class _Kept:
    """Configuration and keys, and when they were read."""

    def __init__(self, configuration: Mapping[str, Any], keys: KeySet) -> None:
        self.configuration = configuration
        self.keys = keys
        self._at = time.monotonic()

    @property
    def age(self) -> float:
        return time.monotonic() - self._at

    def serves(self, kid: str | None) -> bool:
        """Return whether the issuer need not be asked again."""
        has = kid is None or any(key.kid == kid for key in self.keys.keys)
        return self.age < _KEPT_S and (has or self.age < _REFRESHED_AFTER_S)


class _Issuer:
    """What is known of one issuer; only who holds its lock asks it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kept: _Kept | None = None
        self.failure: tuple[float, str] | None = None

    def fail(self, message: str) -> None:
        self.failure = (time.monotonic(), message)

    def find(self, issuer: str, kid: str | None) -> _Kept | None:
        """Return what is kept, None if the issuer is to be asked.

        Raises:
            IssuerUnavailable: It failed a moment ago.
        """
        kept, failure = self.kept, self.failure
        if kept and kept.serves(kid):
            return kept
        if failure and time.monotonic() - failure[0] < _FAILED_S:
            raise IssuerUnavailable(failure[1], where=issuer, hint=_HINT)
        return None


class HttpIssuers:
    """Keys that providers publish at the address in their configuration (OpenID Connect Discovery 1.0)."""

    def __init__(self) -> None:
        self._pool = urllib3.PoolManager(
            timeout=_TIMEOUT, retries=urllib3.Retry(2, redirect=0, backoff_factor=0.2)
        )
        # Only configured issuers get here. One that hangs holds up nobody who signs in elsewhere.
        self._issuers: defaultdict[str, _Issuer] = defaultdict(_Issuer)
        self._lock = threading.Lock()

    def keys(self, issuer: str, *, kid: str | None = None) -> KeySet:
        """Return the keys of an issuer; see `Issuers`."""
        return self._known(issuer, kid).keys

    def endpoints(self, issuer: str) -> Endpoints:
        """Return where a provider is asked.

        Raises:
            IssuerUnavailable: The provider does not answer, or not with usable addresses.
        """
        configuration = self._known(issuer, None).configuration
        found = [str(configuration.get(name)) for name in ("authorization_endpoint", "token_endpoint")]
        if not all(_is_as_safe(url, issuer) for url in found):
            raise IssuerUnavailable(
                f"{issuer} names no usable authorization and token endpoints", where=issuer, hint=_HINT
            )
        methods = configuration.get("token_endpoint_auth_methods_supported")
        takes_basic = not isinstance(methods, list) or "client_secret_basic" in methods
        return Endpoints(found[0], found[1], takes_basic)

    def post(
        self, url: str, fields: Mapping[str, str], headers: Mapping[str, str], *, issuer: str
    ) -> tuple[int, Mapping[str, Any]]:
        """Post a form to a provider; return the status and the JSON object of its answer.

        Raises:
            IssuerUnavailable: The provider does not answer, or not with a JSON object.
        """
        sent = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json", **headers}
        # A code works once, so nothing is sent twice.
        return self._ask("POST", url, issuer, body=urlencode(fields), headers=sent, retries=False)

    def _known(self, issuer: str, kid: str | None) -> _Kept:
        with self._lock:
            known = self._issuers[issuer]
        if kept := known.find(issuer, kid):
            return kept
        if not known.lock.acquire(timeout=_PATIENCE_S):
            known.fail(f"{issuer} does not answer")
            raise IssuerUnavailable(f"{issuer} does not answer", where=issuer, hint=_HINT)
        try:
            if kept := known.find(issuer, kid):
                return kept
            known.kept = found = self._read(issuer)
        except IssuerUnavailable as error:
            known.fail(error.message)
            raise
        else:
            known.failure = None
            return found
        finally:
            known.lock.release()

    def _read(self, issuer: str) -> _Kept:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        configuration = self._get(issuer.rstrip("/") + _CONFIGURATION, issuer)
        if configuration.get("issuer") != issuer:
            raise IssuerUnavailable(
                f"{issuer} calls itself {str(configuration.get('issuer'))[:200]!a}", where=issuer, hint=_HINT
            )
        address = str(configuration.get("jwks_uri"))
        if not _is_as_safe(address, issuer):
            raise IssuerUnavailable(f"{issuer} names no usable address of its keys", where=issuer, hint=_HINT)
        document = self._get(address, issuer)
        try:
            return _Kept(configuration, KeySet.import_key_set(document))  # type: ignore[arg-type]  # it checks what it is given
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise IssuerUnavailable(
                f"The keys of {issuer} are malformed", where=issuer, hint=_HINT
            ) from error

    def _get(self, url: str, issuer: str) -> Mapping[str, Any]:
        status, document = self._ask("GET", url, issuer)
        if status != HTTPStatus.OK:
            raise IssuerUnavailable(f"{url} answered with {status}", where=issuer, hint=_HINT)
        return document

    def _ask(self, method: str, url: str, issuer: str, **options: Any) -> tuple[int, Mapping[str, Any]]:
        try:
            response = self._pool.request(method, url, preload_content=False, redirect=False, **options)
            try:
                data = response.read(_MAX_BYTES + 1)
            finally:
                response.release_conn()
            document = json.loads(data[:_MAX_BYTES])
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise IssuerUnavailable(f"No usable answer from {url[:300]}", where=issuer, hint=_HINT) from error
        if not isinstance(document, dict):
            raise IssuerUnavailable(f"{url} is no JSON object", where=issuer, hint=_HINT)
        return response.status, document


def _is_as_safe(url: str, issuer: str) -> bool:
    """Return whether an address has its issuer's scheme: over HTTPS, secrets, passwords and keys go no other way."""
    try:
        return urlsplit(url).scheme == urlsplit(issuer).scheme
    except ValueError:
        return False
