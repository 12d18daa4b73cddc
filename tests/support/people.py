"""A server on which people sign in with a provider that runs here, and a client of it that acts as a browser."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from pt2hub.domain.people import Role
from pt2hub.domain.sign_in import SignInProvider
from pt2hub.domain.tokens import Actor
from pt2hub.server.api.app import create_app
from pt2hub.server.pages.installation import install
from support.oidc_provider import CLIENT, SECRET

if TYPE_CHECKING:
    from flask import Flask
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container
    from support.oidc_provider import Provider

HERE = {"Sec-Fetch-Site": "same-origin"}
ROOT = Actor("root", admin=True)


def settings_of(provider: Provider, url: str = "http://localhost") -> SignInProvider:
    """How a server is registered with the provider."""
    return SignInProvider(provider.issuer, CLIENT, url, SECRET, "Acme")


class Browser:
    """A browser of one person."""

    def __init__(self, web: FlaskClient, provider: Provider) -> None:
        self.web = web
        self.provider = provider

    def begin(self, to: str = "/") -> str:
        """Follows the link of the sign-in page; where the provider sends the browser back to."""
        begun = self.web.get("/sign-in/provider", query_string={"to": to})
        assert begun.status_code == 303, begun.get_data(as_text=True)
        return self.provider.visit(begun.headers["Location"])

    def sign_in(self, to: str = "/", **claims: object) -> TestResponse:
        """Signs a person in."""
        self.provider.person = self.provider.person | claims
        parts = urlsplit(self.begin(to))
        return self.web.get(f"{parts.path}?{parts.query}")

    def send(self, url: str, **form: object) -> TestResponse:
        """Submits a form of a page."""
        return self.web.post(url, data=form, headers=HERE)

    def text(self, url: str) -> str:
        """The text of a page."""
        return self.web.get(url).get_data(as_text=True)


@pytest.fixture
def browser(container: Container, config: ServerConfig, provider: Provider) -> Browser:
    """A browser at a server on which the group `vision-team` publishes as the team vision."""
    container.roles.assign("vision-team", Role.PUBLISHER, "vision/*", by=ROOT)
    return Browser(make_web(container, replace(config, provider=settings_of(provider))), provider)


def make_app(container: Container, config: ServerConfig) -> Flask:
    """A server with other settings."""
    app = create_app(container, config)
    install(app)
    return app


def make_web(container: Container, config: ServerConfig) -> FlaskClient:
    """A client of a server with other settings, with cookies of its own."""
    return make_app(container, config).test_client()
