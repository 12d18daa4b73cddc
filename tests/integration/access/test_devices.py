"""Login of devices without a browser: what they are told until somebody decides, and who may decide."""

from __future__ import annotations

import io
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs
from werkzeug.serving import make_server

from pt2hub.client.config import ClientConfig
from pt2hub.domain.audit import AuditFilter
from pt2hub.domain.tokens import Scope
from support.people import ROOT
from support.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container
    from support.people import Browser
    from support.registry import Registry

FORM: dict[str, Any] = {
    "name": "laptop",
    "scope": ["read", "publish"],
    "models": "vision/*",
    "days": "7",
    "decision": "approve",
}


def ask(browser: Browser) -> dict[str, Any]:
    """A device's request."""
    answer = browser.web.application.test_client().post(
        "/api/v1/device/code", json={"client": "pt2hub on <b>laptop</b>"}
    )
    assert (answer.status_code, answer.headers["Cache-Control"]) == (201, "no-store")
    found: dict[str, Any] = answer.get_json()
    return found


def poll(browser: Browser, asked: dict[str, Any]) -> tuple[int, str, dict[str, Any]]:
    web = browser.web.application.test_client()
    answer = web.post("/api/v1/device/token", json={"device_code": asked["device_code"]})
    found = answer.get_json()
    return answer.status_code, found.get("code", ""), found


def test_a_device_gets_what_the_person_approved_once(browser: Browser, container: Container) -> None:
    asked = ask(browser)
    assert re.fullmatch(r"[B-DF-HJ-NP-TV-XZ]{4}-[B-DF-HJ-NP-TV-XZ]{4}", asked["user_code"])
    assert asked["verification_uri"] == "http://localhost/device"
    assert asked["verification_uri_complete"] == f"http://localhost/device?user_code={asked['user_code']}"
    assert (asked["expires_in"], asked["interval"]) == (600, 5)
    assert poll(browser, asked)[:2] == (400, "authorization_pending")
    browser.sign_in()
    page = browser.text(f"/device?user_code={asked['user_code'].lower().replace('-', '')}")
    assert "pt2hub on &lt;b&gt;laptop&lt;/b&gt;" in page
    done = browser.send("/device", user_code=asked["user_code"], **FORM)
    assert "The device gets its token" in done.get_data(as_text=True)
    assert container.access.tokens() == (), "the token is made when the device fetches it"
    status, _, made = poll(browser, asked)
    assert (status, made["name"], made["patterns"]) == (201, "ada@acme.example", ["vision/*"])
    actor = container.access.verify(made["token"])
    assert actor.may(Scope.PUBLISH, "vision/resnet18")
    assert not actor.may(Scope.BUILD, "vision/resnet18")
    assert poll(browser, asked)[:2] == (400, "expired_token")
    assert browser.send("/device", user_code=asked["user_code"], **FORM).status_code == 404
    created, approved = container.audit_log.entries(AuditFilter(), limit=2).entries
    assert [str(one.action) for one in (created, approved)] == ["token.create", "device.approve"]
    assert {one.principal.name for one in (created, approved)} == {"ada@acme.example"}
    assert approved.change["scopes"] == ["publish", "read"]


def test_a_device_that_asks_too_often_waits_longer_and_one_that_is_denied_ends(
    browser: Browser, served: Registry
) -> None:
    asked = ask(browser)
    codes = [poll(browser, asked)[1] for _ in range(3)]
    assert codes == ["authorization_pending", "slow_down", "slow_down"]
    assert served.sql("SELECT interval_s FROM device_requests") == [(15,)]
    browser.sign_in()
    browser.send("/device", user_code=asked["user_code"], decision="deny")
    assert poll(browser, asked)[:2] == (403, "access_denied")
    assert poll(browser, asked)[:2] == (400, "expired_token")
    late = ask(browser)
    served.sql("UPDATE device_requests SET expires_at = now()")
    assert browser.send("/device", user_code=late["user_code"], **FORM).status_code == 404
    assert poll(browser, late)[:2] == (400, "expired_token")
    served.services.devices.sweep()
    assert served.sql("SELECT count(*) FROM device_requests") == [(0,)]
    assert poll(browser, {"device_code": "x"})[:2] == (400, "expired_token")


def test_a_device_that_was_approved_gets_nothing_after_its_person_was_ended(
    browser: Browser, container: Container
) -> None:
    asked = ask(browser)
    browser.sign_in()
    browser.send("/device", user_code=asked["user_code"], **FORM)
    container.people.end("ada@acme.example", by=ROOT)
    assert poll(browser, asked)[1] == "expired_token"


def test_people_alone_approve_and_give_no_more_than_they_have(browser: Browser, container: Container) -> None:
    asked = ask(browser)
    code = asked["user_code"]
    assert browser.web.get(f"/device?user_code={code}").headers["Location"].startswith("/sign-in?to=/device")
    assert browser.send("/device", user_code=code, **FORM).status_code == 401
    browser.send("/sign-in", token=container.access.create_token("root", admin=True))
    assert "sign in with the provider" in browser.text(f"/device?user_code={code}")
    for decision in ("approve", "deny"):
        assert browser.send("/device", user_code=code, **(FORM | {"decision": decision})).status_code == 403
    browser.sign_in()
    for changes, status in (
        ({"scope": ["promote"]}, 403),
        ({"scope": ["admin"]}, 403),
        ({"models": "*"}, 403),
        ({"models": "x"}, 422),
        ({"name": ""}, 422),
        ({"user_code": "BBBB-BBBB"}, 404),
        ({"user_code": ""}, 404),
    ):
        answer = browser.send("/device", **({"user_code": code} | FORM | changes))
        assert answer.status_code == status, changes
    assert poll(browser, asked)[1] == "authorization_pending"


@pytest.fixture
def address(browser: Browser) -> Iterator[str]:
    """The server's address, for commands."""
    server = make_server("127.0.0.1", 0, browser.web.application, threaded=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
    with capture_logs():
        yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Terminal(io.StringIO):
    """A person's terminal."""

    def isatty(self) -> bool:
        return True


def test_pt2hub_login_waits_for_the_browser_and_stores_the_token(
    browser: Browser,
    address: str,
    container: Container,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PT2HUB_HOME", str(tmp_path))
    monkeypatch.delenv("PT2HUB_TOKEN", raising=False)
    monkeypatch.setattr("sys.stdin", Terminal())
    browser.sign_in()

    def approve() -> None:
        for _ in range(100):
            waiting = _codes(container)
            if waiting:
                browser.send("/device", user_code=waiting[0], **FORM)
                return
            time.sleep(0.05)

    thread = threading.Thread(target=approve)
    thread.start()
    told = Shell(capsys)("login", address)
    thread.join()
    assert told.code == 0, told.err
    assert re.search(r"Open http://localhost/device in a browser and enter the code \w{4}-\w{4}", told.err)
    assert f"ada@acme.example on {address}, with a token that allows publish, read for vision/*" in told.out
    stored = ClientConfig.from_environ().settings_file.read()["token"]
    assert container.access.verify(str(stored)).person is not None
    assert stored not in told.out + told.err


def _codes(container: Container) -> list[str]:
    with container._sessions.begin() as session:  # what a person reads from the terminal
        found = session.connection().exec_driver_sql("SELECT user_code FROM device_requests")
        return [row[0] for row in found]


def test_without_a_sign_in_login_asks_for_a_token(
    shell: Shell, served: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PT2HUB_TOKEN")
    asked: list[str] = []
    token = served.services.access.create_token("ada")
    monkeypatch.setattr("typer.prompt", lambda text, **_: asked.append(text) or token)
    monkeypatch.setattr("sys.stdin", Terminal())
    for args in (("login",), ("login", "--token")):
        told = shell(*args)
        assert (told.code, told.out.startswith("ada on http://")) == (0, True), told.err
    assert len(asked) == 2


def test_the_operators_commands(
    served: Registry,
    config: ServerConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PT2HUB_DATABASE_URL", str(config.database_url))
    monkeypatch.setenv("PT2HUB_STORAGE", str(tmp_path))
    monkeypatch.setenv("PT2HUB_HOME", str(tmp_path))
    shell = Shell(capsys)
    said = shell("admin", "assign-role", "vision-team", "--team", "vision", "--role", "publisher")
    assert "The group vision-team is publisher of vision/*." in said.out
    _, document = shell.json("admin", "assign-role", "platform", "--models", "*", "--role", "admin")
    assert shell("admin", "assign-role", "x", "--role", "admin").code == 1
    listed = shell.json("admin", "roles")[1]["roles"]
    assert [item["group"] for item in listed] == ["platform", "vision-team"]
    assert shell("admin", "remove-role", str(document["id"])).code == 0
    assert "vision-team" in shell("admin", "roles").out
    assert "Nobody has signed in yet." in shell("admin", "people").out
    refused = shell("admin", "end-person", "ada")
    assert (refused.code, "[not_found]" in refused.err) == (1, True)
    actions = [row[0] for row in served.sql("SELECT action FROM audit_log ORDER BY id")]
    assert actions == ["role.assign", "role.assign", "role.remove"]
