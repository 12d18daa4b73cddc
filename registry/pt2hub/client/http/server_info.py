"""Facts about the server, and errors for its unexpected responses."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import urllib3

from pt2hub.errors import (
    BadResponse,
    IdTokenRejected,
    NotFound,
    Pt2hubError,
    ServerUnreachable,
    Unauthorized,
)
from pt2hub.wire.compatibility import VERSION_HEADER, check_server, skew_hint
from pt2hub.wire.problems import from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from urllib3 import BaseHTTPResponse

JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"
_NO_ROUTE = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
_SHOWN = 60
"""Maximum length of a foreign response in an error."""
_ADDRESS = 200
"""Maximum length of a foreign address in an error."""
_UNTRUSTED = "certificate verify failed: "
"""OpenSSL's words before the reason."""
_OF_PROXIES: dict[int, str] = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Raise the proxy's limit on request bodies: client_max_body_size in nginx.",
    HTTPStatus.BAD_GATEWAY: "The proxy answered, but pt2hub did not: check that the API is running.",
    HTTPStatus.GATEWAY_TIMEOUT: "The proxy timed out waiting for pt2hub: check the API's log and the proxy's timeouts.",
}
"""Hints for error statuses that did not come from pt2hub."""


class ServerInfo:
    """The known facts about a server.

    Attributes:
        release: What its last answer said in `Pt2hub-Version`, None where nothing.

    Args:
        url_from: Which setting named the address, None where the program did.
        token_from: The setting that the token comes from; empty without a token.
    """

    def __init__(self, url: str, *, url_from: str | None = None, token_from: str | None = None) -> None:
        self.url = url
        self.release: str | None = None
        self._url_from = url_from
        self._token_from = token_from

    def meet(self, response: BaseHTTPResponse) -> None:
        """Remember what a response reveals about the server.

        Raises:
            ServerTooOld: This client does not speak to it.
        """
        self.release = response.headers.get(VERSION_HEADER)
        check_server(self.release, url=self.url)

    def unreachable(self, exc: urllib3.exceptions.HTTPError) -> ServerUnreachable:
        """Return the error for a missing or incomplete response."""
        broken = cut(exc)
        if broken:
            came, rest = broken
            return ServerUnreachable(
                f"The connection closed after {came} of {came + rest} bytes",
                where=self.url,
                hint="Try again; if it persists, check the server's log and any proxies in front of it.",
                context={"received": came, "expected": came + rest},
            )
        why = reason(exc)
        if "WRONG_VERSION_NUMBER" in why:  # OpenSSL's words for an answer in plain text
            return ServerUnreachable(
                "The server speaks http, not https",
                where=self.url,
                hint=f"Write the address with http://.{self._origin()}",
            )
        if _UNTRUSTED in why:
            return ServerUnreachable(
                f"The server's certificate is not trusted: {why.rpartition(_UNTRUSTED)[2].partition(' (_ssl')[0]}",
                where=self.url,
                hint="For a private certificate authority, set SSL_CERT_FILE to its file; otherwise use the host name "
                f"of the certificate, or renew it.{self._origin()}",
            )
        return ServerUnreachable(
            f"The server did not answer: {why}",
            where=self.url,
            hint=f"Start a server with `pt2hub up`, or set PT2HUB_URL to the address of a running one.{self._origin()}",
        )

    def failure(self, response: BaseHTTPResponse, body: bytes) -> Pt2hubError:
        """Return the error for a response with an error status."""
        if media_type(response) != PROBLEM_TYPE:
            return self.foreign(response, body)
        try:
            error = from_dict(json.loads(body))
        except (ValueError, TypeError, AttributeError, RecursionError):
            return self.foreign(response, body)
        if isinstance(error, Unauthorized) and not isinstance(error, IdTokenRejected):
            error.hint = f"{error.hint or ''} {self._token()}".strip()
        elif isinstance(error, NotFound) or response.status in _NO_ROUTE:
            error.hint = error.hint or skew_hint(self.release)  # a route that only one of us knows
        return error

    def foreign(self, response: BaseHTTPResponse, body: bytes) -> BadResponse:
        """Return the error for a response that pt2hub never sends."""
        start = " ".join(body[: 4 * _SHOWN].decode("utf-8", "replace").split())[:_SHOWN]
        kind = media_type(response) or "no content type"
        server = response.headers.get("Server")
        said = f" from {server[:_SHOWN]}" if server else ""
        return BadResponse(
            f"HTTP {response.status} with {kind}{said} is not a response of pt2hub"
            + (f": {start!r}" if start else ""),
            where=self.url,
            hint=_OF_PROXIES.get(response.status) or self._not_ours(),
            context={"status": response.status},
        )

    def elsewhere(self, response: BaseHTTPResponse) -> BadResponse:
        """Return the error for a redirect that is not followed: of a write, or after too many others."""
        return BadResponse(
            f"HTTP {response.status} redirects this request to {_address(response)!r}",
            where=self.url,
            hint=f"Set PT2HUB_URL to the server's actual address.{self._origin()}",
            context={"status": response.status},
        )

    def misread(self, error: BadResponse, path: str) -> BadResponse:
        """Return the error for JSON that this client cannot read."""
        return BadResponse(
            f"Unexpected response{'' if self.release else ', not from pt2hub'}: {error.message}",
            where=self.url + path,
            hint=self._not_ours(),
        )

    def _not_ours(self) -> str:
        skew = skew_hint(self.release)
        if skew:
            return skew
        if self.release:
            return f"The server reports pt2hub {self.release}: check for a proxy in between, or report this."
        return (
            "Check that PT2HUB_URL is the address of a pt2hub server, without a login page in front of it."
            + self._origin()
        )

    def _origin(self) -> str:
        return f" The address comes from {self._url_from}." if self._url_from else ""

    def _token(self) -> str:
        if self._token_from:
            return f"The token sent comes from {self._token_from}."
        if self._token_from is None:
            return ""
        return "No token was sent: set PT2HUB_TOKEN to one that `pt2hub admin token` created on the server."


def _address(response: BaseHTTPResponse) -> str:
    """Return a redirect's location without its query, which may be secret."""
    return str(response.headers["Location"]).partition("?")[0][:_ADDRESS]


def media_type(response: BaseHTTPResponse) -> str:
    """Return a response's content type, without parameters."""
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().lower()


@contextmanager
def release_after(response: BaseHTTPResponse) -> Iterator[BaseHTTPResponse]:
    """Yield a response; its connection is reused unless the block fails."""
    try:
        yield response
        response.drain_conn()
    except BaseException:
        response.close()  # unread bytes would be taken for the next answer
        raise
    finally:
        response.release_conn()


def cut(exc: urllib3.exceptions.HTTPError) -> tuple[int, int] | None:
    """Return the bytes received and missing if a response ended before its announced length."""
    for inner in (exc, *exc.args, exc.__cause__):
        if isinstance(inner, urllib3.exceptions.IncompleteRead):
            partial: Any = inner.partial
            missing: Any = inner.expected
            return (int(partial), int(missing)) if missing is not None else None
    return None


def reason(exc: urllib3.exceptions.HTTPError) -> str:
    """Return a short reason for a missing response, without the address."""
    inner = getattr(exc, "reason", None) or exc
    last = inner.args[-1] if inner.args else None  # of a timeout; its text would contain an object's address
    if isinstance(last, OSError):  # of a connection that ended before there was an answer
        return last.strerror or str(last)
    words = getattr(inner, "message", None) or (last if isinstance(last, str) else str(inner))
    return str(words).rpartition("): ")[2] or type(inner).__name__
