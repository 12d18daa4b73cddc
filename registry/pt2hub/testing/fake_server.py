"""The HTTP server of a fake registry, on 127.0.0.1: the routes that pulls, loads, locks and alias moves use."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import DIGEST_PATTERN, Digest
from pt2hub.domain.tokens import Scope
from pt2hub.errors import InvalidInput, NotFound, Pt2hubError, Unauthorized
from pt2hub.testing.fake_models import TOKEN_NAME
from pt2hub.version import __version__
from pt2hub.wire.compatibility import VERSION_HEADER
from pt2hub.wire.identities import Identity

if TYPE_CHECKING:
    from pt2hub.testing.fake_models import FakeModels

_MODEL = r"/api/v1/models/([^/]+/[^/]+)"
_BLOB = re.compile(rf"(?:/api/v1/blobs|{_MODEL}/manifests)/({DIGEST_PATTERN})")
_ALIASES = re.compile(rf"{_MODEL}/aliases")
_ALIAS = re.compile(rf"{_MODEL}/aliases/([^/]+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class FakeServer(ThreadingHTTPServer):
    """Serves the models of a fake registry.

    Attributes:
        models: What it holds.
        token: The one token that it takes.
        is_away: Whether connections that are still open are closed without an answer.
    """

    daemon_threads = True

    def __init__(self, models: FakeModels, token: str, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.models = models
        self.token = token
        self.is_away = False


class _Handler(BaseHTTPRequestHandler):
    """Answers one request after another."""

    protocol_version = "HTTP/1.1"
    server: FakeServer

    def do_GET(self) -> None:
        self._respond(self._get)

    do_HEAD = do_GET  # noqa: N815  # the standard library's spelling

    def do_PUT(self) -> None:
        self._respond(self._put)

    def do_DELETE(self) -> None:
        self._respond(self._delete)

    def do_POST(self) -> None:
        self._respond(self._unknown)

    do_PATCH = do_POST  # noqa: N815  # the standard library's spelling

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the standard library's name
        """Print nothing."""

    def _respond(self, answer: Any) -> None:
        if self.server.is_away:
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        try:
            answer(unquote(parts.path), query, body)
        except Pt2hubError as error:
            self._refuse(error)

    def _get(self, path: str, query: dict[str, str], _body: bytes) -> None:
        models = self.server.models
        if path == "/api/v1/resolve":
            self._send_json(models.resolve(query.get("reference", "")))
        elif match := _BLOB.fullmatch(path):
            self._send_blob(Digest(match[2]))
        elif match := _ALIASES.fullmatch(path):
            self._send_json(models.aliases(match[1]))
        elif match := _ALIAS.fullmatch(path):
            self._send_json(models.alias(match[1], match[2]))
        elif path == "/readyz":
            self._send_json({"status": "ready"})
        elif path == "/api/v1/whoami":
            self._authorize()
            self._send_json(Identity(TOKEN_NAME, admin=True, scopes=tuple(Scope)))
        else:
            self._unknown(path, query, b"")

    def _put(self, path: str, query: dict[str, str], body: bytes) -> None:
        self._authorize()
        match = _ALIAS.fullmatch(path)
        if match is None:
            self._unknown(path, query, body)
            return
        try:
            change = json.loads(body)
            number, expected, reason = change["number"], change["expected"], str(change["reason"])
        except (ValueError, KeyError, TypeError) as exc:
            raise InvalidInput("The alias move has invalid fields.", where="document") from exc
        models = self.server.models
        self._send_json(models.move(match[1], match[2], number, expected=expected, reason=reason))

    def _delete(self, path: str, query: dict[str, str], body: bytes) -> None:
        self._authorize()
        match = _ALIAS.fullmatch(path)
        if match is None or not query.get("expected", "").isdigit():
            self._unknown(path, query, body)
            return
        expected, reason = int(query["expected"]), query.get("reason", "")
        models = self.server.models
        self._send_json(models.move(match[1], match[2], None, expected=expected, reason=reason))

    def _unknown(self, path: str, _query: dict[str, str], _body: bytes) -> None:
        raise NotFound(
            f"The fake registry does not answer {self.command} {path[:200]}",
            where="address",
            hint="It resolves, serves files and moves aliases. For anything else start pt2hub up in the test.",
        )

    def _authorize(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            raise Unauthorized(
                "The token is missing or malformed", hint="Use the token of the fake registry."
            )

    def _send_blob(self, digest: Digest) -> None:
        data = self.server.models.blobs.get(digest)
        if data is None:
            raise NotFound(f"{digest} not found", where="digest")
        wanted = _RANGE.fullmatch(self.headers.get("Range", ""))
        headers = {
            "Content-Type": "application/octet-stream",
            "ETag": f'"{digest}"',
            "Accept-Ranges": "bytes",
        }
        if wanted is None:
            self._send(HTTPStatus.OK, data, headers)
            return
        start, stop = int(wanted[1]), int(wanted[2]) + 1 if wanted[2] else len(data)
        part = data[start:stop]
        headers["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{len(data)}"
        self._send(HTTPStatus.PARTIAL_CONTENT, part, headers)

    def _send_json(self, value: object) -> None:
        self._send(HTTPStatus.OK, json.dumps(encode(value)).encode(), {"Content-Type": "application/json"})

    def _refuse(self, error: Pt2hubError) -> None:
        document = error.as_dict()
        document["detail"] = document.pop("message")
        headers = {"Content-Type": "application/problem+json"}
        self._send(HTTPStatus.BAD_REQUEST, json.dumps(document).encode(), headers)

    def _send(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, VERSION_HEADER: __version__, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
