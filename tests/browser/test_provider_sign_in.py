"""A person in a browser: in through the provider's page, a role, a token, a device, and out again."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from werkzeug.serving import make_server

from pt2hub.domain.people import Role
from support.browser import DESK, MS, Watch, open_menu
from support.people import ROOT, make_app, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flask import Flask
    from playwright.sync_api import Browser, Page

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container
    from support.browser import Axe, Shoot
    from support.oidc_provider import Provider


@pytest.fixture
def address(container: Container, config: ServerConfig, provider: Provider) -> Iterator[str]:
    """A server on which people sign in with the provider; it knows its own address."""
    apps: list[Flask] = []

    def serve(environ: dict[str, object], start: object) -> Iterable[bytes]:
        return apps[0](environ, start)  # type: ignore[arg-type]  # as WSGI has them

    server = make_server("127.0.0.1", 0, serve, threaded=True)
    url = f"http://127.0.0.1:{server.server_port}"
    apps.append(make_app(container, replace(config, provider=settings_of(provider, url))))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
    yield url
    server.shutdown()
    server.server_close()


@pytest.fixture
def window(chromium: Browser, address: str, provider: Provider) -> Iterator[Page]:
    """A page of a browser with cookies of its own, which may go to the provider and nowhere else."""
    context = chromium.new_context(base_url=address, viewport=DESK)
    context.set_default_timeout(MS)
    watch = Watch(context, address)
    yield context.new_page()
    context.close()
    assert [text for text in watch.complaints if provider.issuer not in text] == []


def test_a_person_signs_in_makes_a_token_approves_a_device_and_signs_out(
    window: Page, container: Container, axe: Axe, shoot: Shoot
) -> None:
    container.roles.assign("vision-team", Role.ADMIN, "vision/*", by=ROOT)
    window.goto("/teams")
    expect(window).to_have_url(re.compile("/sign-in"))
    shoot(window, "sign-in-provider")
    axe(window)
    window.goto("/sign-in?to=/tokens")
    window.get_by_role("link", name="Sign in with Acme").click()
    expect(window).to_have_title("Acme")
    window.get_by_role("link", name="Continue").click()
    expect(window).to_have_url(re.compile("/tokens$"))
    expect(window.get_by_role("banner")).to_contain_text("ada@acme.example")

    window.locator('input[name="name"]').fill("laptop")
    window.get_by_role("button", name="Create token").click()
    created = window.locator(".done")
    expect(created).to_contain_text("Copy it now")
    token = created.locator("pre").inner_text()
    assert container.access.verify(token).name == "ada@acme.example"
    shoot(window, "tokens")
    axe(window)
    window.goto("/tokens")
    window.get_by_role("button", name="Revoke laptop").click()
    expect(window.locator(".done")).to_contain_text("The token was revoked.")

    window.get_by_role("link", name="Roles and teams").click()
    window.locator('input[name="group"]').fill("interns")
    window.locator('input[name="models"]').fill("vision/*")
    window.get_by_role("button", name="Give the role").click()
    expect(window.get_by_role("table")).to_contain_text("interns")
    shoot(window, "teams")
    axe(window)

    code = container.devices.request("pt2hub on laptop").user_code
    window.goto(f"/device?user_code={code}")
    shoot(window, "device")
    axe(window)
    window.goto(f"/device?user_code={code}")
    window.get_by_role("button", name="Approve").click()
    expect(window.locator(".done")).to_contain_text("The device gets its token.")

    open_menu(window)
    window.get_by_role("button", name="Sign out").click()
    expect(window.get_by_role("link", name="Sign in", exact=True)).to_be_visible()
    window.goto("/tokens")
    expect(window).to_have_url(re.compile("/sign-in"))
