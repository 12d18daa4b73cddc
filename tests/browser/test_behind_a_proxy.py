"""The server as it stands in production: behind a proxy that ends TLS, which tells it the little that it must know."""

from __future__ import annotations

import http.client
import re
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.domain.tokens import Actor
from pt2hub.errors import ServerUnreachable
from pt2hub.wire.documents import write_document
from support.browser import ROOT, Watch
from support.front import standing_before
from support.registry import V4, a_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from support.site import Site

PAGE = ROOT / "docs" / "how-to" / "behind-a-proxy.md"


@pytest.fixture
def front(site: Site, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A proxy as `docs/how-to/behind-a-proxy.md` has it."""
    with standing_before(site.api.port, tmp_path, **told()) as made:
        yield made


def told(host: str = "localhost:{port}") -> dict[str, str]:
    """The headers that the page's example for nginx sets, for a proxy that is called so."""
    example = PAGE.read_text().partition("```nginx\n")[2].partition("```")[0]
    found = dict(re.findall(r"proxy_set_header ([\w-]+) (\$\w+);", example))
    values = {"$http_host": host, "$remote_addr": "127.0.0.1", "$scheme": "https"}
    return {name: values[value] for name, value in found.items()}


def ask(front: tuple[str, Path], path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    url, authority = front
    context = ssl.create_default_context(cafile=authority)
    connection = http.client.HTTPSConnection(urlsplit(url).netloc, timeout=20, context=context)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read().decode()
    finally:
        connection.close()


def test_people_sign_in_publish_and_watch_through_a_proxy(
    site: Site, chromium: Browser, front: tuple[str, Path]
) -> None:
    url, _ = front
    context = chromium.new_context(base_url=url, ignore_https_errors=True)
    watch = Watch(context, url)
    page = context.new_page()
    page.goto("/sign-in?to=/publish")
    expect(page.locator("main")).not_to_contain_text("not encrypted")
    page.locator("[name=token]").fill(site.token)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{url}/publish")
    assert [(kept.get("secure"), kept.get("httpOnly")) for kept in context.cookies()] == [(True, True)]

    page.locator("#spec").fill(write_document(a_spec(model="proxied/net", targets=[V4])))
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page).to_have_url(f"{url}/models/proxied/net/versions/1?done=published")
    (build,) = site.container.publish.version("proxied/net", 1).builds
    page.goto(f"/builds/{build.id}")
    expect(page.locator("[data-build]")).to_contain_text("Waits for a worker")
    site.container.builds.cancel(build.id, Actor("ada"))
    expect(page.locator("[data-build]")).to_contain_text("cancelled")
    context.close()
    assert watch.complaints == []


def test_the_client_asks_for_an_authority_that_it_knows(
    site: Site, front: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, authority = front
    config = ClientConfig(home=tmp_path / "home", url=url, token=site.token)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    with Client(config) as client:
        assert client.models.get("demo-text/bert-base-ner").name == "demo-text/bert-base-ner"
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with (
        Client(config) as client,
        pytest.raises(ServerUnreachable, match="certificate is not trusted") as told,
    ):
        client.models.list()
    assert "SSL_CERT_FILE" in str(told.value.hint)


def test_redirects_name_no_host_so_that_none_can_be_wrong(front: tuple[str, Path]) -> None:
    status, headers, _ = ask(front, "/models/demo-text//bert-base-ner?a=1")
    assert (status, headers["Location"]) == (308, "/models/demo-text/bert-base-ner?a=1")


def test_only_a_trusted_proxy_is_believed_and_no_header_moves_a_request(
    site: Site, front: tuple[str, Path], tmp_path: Path
) -> None:
    """Others say `X-Forwarded-Proto` in vain; gunicorn's own `SCRIPT_NAME` would lead past a proxy's rules."""
    warning = "not encrypted"
    for source, believed in (("127.0.0.1", True), ("127.0.0.2", False)):
        with standing_before(site.api.port, tmp_path, source=source, **told("hub.example")) as proxy:
            assert (warning in ask(proxy, "/sign-in")[2]) != believed
    assert ask(front, "/api/metrics", SCRIPT_NAME="/api")[0] == 404
