"""An OpenID Connect provider at an address of this machine."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

AUDIENCE = "https://pt2hub.example"
CLAIMS = {"repository": "acme/vision", "ref": "refs/heads/main", "workflow": "release"}


class Provider:
    """An OpenID Connect provider: its configuration and its keys, at an address of this machine."""

    def __init__(self) -> None:
        from joserfc.jwk import KeySet, RSAKey  # every test process reads this module

        self.keys = [RSAKey.generate_key(2048, {"kid": "one"})]
        self.asked = 0
        self.named: str | None = None
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                issuer = provider.named or provider.issuer
                documents = {
                    "/.well-known/openid-configuration": {
                        "issuer": issuer,
                        "jwks_uri": f"{provider.issuer}/keys",
                    },
                    "/keys": KeySet(list(provider.keys)).as_dict(private=False),
                }
                found = documents.get(self.path)
                self.send_response(200 if found else 404)
                self.end_headers()
                self.wfile.write(json.dumps(found).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

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

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.close()
