"""An OpenID Connect provider at an address of this machine: keys, ID tokens, and people who sign in with a code."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

AUDIENCE = "https://pt2hub.example"
CLIENT, SECRET = "pt2hub", "a secret: 50% of it"
ADA = {
    "sub": "1001",
    "name": "Ada Lovelace",
    "email": "Ada@acme.example",
    "email_verified": True,
    "groups": ["vision-team"],
}
CLAIMS = {"repository": "acme/vision", "ref": "refs/heads/main", "workflow": "release"}


class Provider:
    """An OpenID Connect provider: its configuration, its keys and its pages, at an address of this machine.

    Attributes:
        person: Claims of whoever signs in.
        changes: Claims of their ID tokens that are wrong; None leaves one out.
        keys_address: Where its configuration says that its keys are, if not there.
        key: Signs their ID tokens, where it is not the provider's newest.
        refusal: Error of the token endpoint.
        methods: How clients may authenticate.
    """

    def __init__(self) -> None:
        from joserfc.jwk import KeySet, RSAKey  # every test process reads this module

        self.keys = [RSAKey.generate_key(2048, {"kid": "one"})]
        self.asked = 0
        self.named: str | None = None
        self.keys_address: str | None = None
        self.person: dict[str, Any] = dict(ADA)
        self.changes: dict[str, Any] = {}
        self.key: Any = None
        self.refusal: str | None = None
        self.methods = ["client_secret_basic"]
        self._codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                issuer = provider.named or provider.issuer
                url = urlsplit(self.path)
                if url.path == "/authorize":
                    self._send(
                        200,
                        f'<title>Acme</title><link rel="icon" href="data:,"><a href="/consent?{url.query}">Continue</a>',
                        "text/html",
                    )
                    return
                if url.path == "/consent":
                    self._send(303, "", "text/html", Location=provider.consent(url.query))
                    return
                documents = {
                    "/.well-known/openid-configuration": {
                        "issuer": issuer,
                        "jwks_uri": provider.keys_address or f"{provider.issuer}/keys",
                        "authorization_endpoint": f"{provider.issuer}/authorize",
                        "token_endpoint": f"{provider.issuer}/token",
                        "token_endpoint_auth_methods_supported": provider.methods,
                    },
                    "/keys": KeySet(list(provider.keys)).as_dict(private=False),
                }
                found = documents.get(self.path)
                self._send(200 if found else 404, json.dumps(found), "application/json")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                sent = {name: values[0] for name, values in parse_qs(body).items()}
                status, document = provider.redeem(sent, self.headers.get("Authorization", ""))
                self._send(status, json.dumps(document), "application/json")

            def _send(self, status: int, text: str, kind: str, **headers: str) -> None:
                self.send_response(status)
                for name, value in {"Content-Type": kind, **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def token(self, *, key: Any = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """An ID token for this server, of a job on the main branch."""
        from joserfc import jwt

        now = int(time.time())
        whole = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "repo:acme/vision:ref:refs/heads/main",
            "iat": now,
            "exp": now + 300,
            **CLAIMS,
            **claims,
        }
        signed = key or self.keys[-1]
        top = {"alg": "RS256", "kid": signed.kid, **(header or {})}
        given = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(top, given, signed, algorithms=[str(top["alg"])])

    def consent(self, query: str) -> str:
        """Where a browser goes after its person signed in: back, with a code."""
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        code = secrets.token_urlsafe()
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state'], 'iss': self.issuer})}"

    def visit(self, url: str) -> str:
        """Follows a browser that was sent here, over HTTP; where it is sent back to."""
        with_consent = url.replace("/authorize?", "/consent?")
        request = urllib.request.Request(with_consent)  # this machine's
        opener = urllib.request.build_opener(_Stay)
        with opener.open(request, timeout=10) as answer:
            return str(answer.headers["Location"])

    def redeem(self, sent: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """The answer of the token endpoint."""
        if self.refusal:
            return 400, {"error": self.refusal}
        if not self._knows(sent, authorization):
            return 401, {"error": "invalid_client"}
        asked = self._codes.pop(sent["code"], None)
        proof = base64.urlsafe_b64encode(hashlib.sha256(sent["code_verifier"].encode()).digest())
        if (
            asked is None
            or asked["redirect_uri"] != sent["redirect_uri"]
            or asked["code_challenge"] != proof.decode().rstrip("=")
        ):
            return 400, {"error": "invalid_grant"}
        claims = {
            **dict.fromkeys(CLAIMS),
            "aud": CLIENT,
            "nonce": asked["nonce"],
            **self.person,
            **self.changes,
        }
        return 200, {
            "token_type": "Bearer",
            "access_token": "x",
            "id_token": self.token(key=self.key, **claims),
        }

    def _knows(self, sent: dict[str, str], authorization: str) -> bool:
        if "client_secret_basic" in self.methods:
            pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
            return pair == f"{CLIENT}:a+secret%3A+50%25+of+it"
        return (sent.get("client_id"), sent.get("client_secret")) == (CLIENT, SECRET)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: the response is one."""

    def http_error_303(self, _request: Any, response: Any, *_: Any) -> Any:
        return response


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.close()
