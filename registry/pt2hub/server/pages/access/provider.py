"""Sign-in with the OpenID Connect provider: the browser goes there, and comes back with a code."""

from __future__ import annotations

import base64
import binascii
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.domain.sign_in import CALLBACK
from pt2hub.errors import Pt2hubError, SignInUnavailable
from pt2hub.server.api.client_address import client_address
from pt2hub.server.api.context import container, context
from pt2hub.server.pages import sessions
from pt2hub.server.pages.access.login import local_url, sign_in_page
from pt2hub.server.pages.blueprint import routes

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.domain.sign_in import SignInProvider

_COOKIE = "pt2hub_sign_in"
_HOST_COOKIE = f"__Host-{_COOKIE}"
"""Over HTTPS: browsers take a cookie of this name from this host alone, so that no other one plants an attempt of its own."""
_PATH = "/sign-in"
_LIFETIME = timedelta(minutes=10)


@routes.get("/sign-in/provider")
def sign_in_elsewhere() -> Response | WerkzeugResponse:
    """Send the browser to the provider. A cookie keeps the attempt's secret and the page to return to."""
    to = local_url(request.args.get("to", ""))
    try:
        provider = _provider()
        container().rate_limits.count_sign_in(client_address())
        attempt = container().sign_in.begin(provider)
    except Pt2hubError as error:
        return sign_in_page(to, error)
    answer = redirect(attempt.url, HTTPStatus.SEE_OTHER)
    answer.headers["Cache-Control"] = "no-store"
    _set_cookie(answer, provider, f"{attempt.secret}.{_encode(to)}", max_age=_LIFETIME)
    return answer


@routes.get(CALLBACK)
def sign_in_answer() -> Response | WerkzeugResponse:
    """Take a browser back from the provider: open a session, or say why there is none."""
    configured = context().config.provider
    name = _HOST_COOKIE if configured and _is_encrypted(configured) else _COOKIE
    secret, _, encoded = request.cookies.get(name, "").partition(".")
    to = local_url(_decode(encoded))
    try:
        provider = _provider()
        container().rate_limits.count_sign_in(client_address())
        person = container().sign_in.finish(provider, request.args.to_dict(), secret)
        sessions.open_session_for(person)
    except Pt2hubError as error:
        answer: Response | WerkzeugResponse = sign_in_page(to, error)
    else:
        answer = redirect(to, HTTPStatus.SEE_OTHER)
    answer.headers["Cache-Control"] = "no-store"
    # The URL of this page has the code: no page that follows learns it.
    answer.headers["Referrer-Policy"] = "no-referrer"
    if configured:
        _set_cookie(answer, configured, "", max_age=timedelta())
    return answer


def _set_cookie(
    answer: WerkzeugResponse, provider: SignInProvider, value: str, *, max_age: timedelta
) -> None:
    encrypted = _is_encrypted(provider)
    answer.set_cookie(
        _HOST_COOKIE if encrypted else _COOKIE,
        value,
        max_age=max_age,
        path="/" if encrypted else _PATH,  # browsers refuse the other name with a path
        httponly=True,
        samesite="Lax",  # the provider's page leads back here, which is another site's navigation
        secure=encrypted,
    )


def _is_encrypted(provider: SignInProvider) -> bool:
    return provider.public_url.startswith("https:")


def _provider() -> SignInProvider:
    provider = context().config.provider
    if provider is None:
        raise SignInUnavailable(
            "This server has no provider to sign in with",
            where="provider",
            hint="Sign in with a token. The server's operator sets a provider: PT2HUB_OIDC_ISSUER",
        )
    return provider


def _encode(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text.encode()).decode()
    except (binascii.Error, ValueError):
        return url_for("pages.front")
