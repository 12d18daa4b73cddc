"""ID tokens of CI jobs."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pt2hub.client.ci import id_token
from pt2hub.errors import BadConfiguration, ServerUnreachable

AUDIENCE = "https://pt2hub.example"


def test_a_variable_has_the_token() -> None:
    assert id_token(AUDIENCE, {"PT2HUB_ID_TOKEN": " a.b.c\n"}) == "a.b.c"


def test_a_job_without_one_is_told_how_to_get_it() -> None:
    with pytest.raises(BadConfiguration) as caught:
        id_token(AUDIENCE, {})
    assert "id-token: write" in str(caught.value.hint)


@pytest.mark.parametrize("secret", ["right", "wrong"])
def test_github_is_asked_for_a_token_for_this_server(secret: str) -> None:
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            allowed = self.headers["Authorization"] == "Bearer right"
            self.send_response(200 if allowed else 403)
            self.end_headers()
            self.wfile.write(json.dumps({"value": "x.y.z"}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    environ = {
        "ACTIONS_ID_TOKEN_REQUEST_URL": f"http://127.0.0.1:{server.server_port}/token?api-version=2",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": secret,
    }
    try:
        if secret == "right":
            assert id_token(AUDIENCE, environ) == "x.y.z"
        else:
            with pytest.raises(ServerUnreachable, match="403"):
                id_token(AUDIENCE, environ)
    finally:
        server.shutdown()
        server.server_close()
    assert seen == ["/token?api-version=2&audience=https%3A%2F%2Fpt2hub.example"]
