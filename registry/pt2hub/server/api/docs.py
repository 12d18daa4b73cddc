"""The page for people that shows the OpenAPI document.

It is rendered here, without scripts. The pages that come with flask-openapi3 (Swagger UI, Redoc, RapiDoc,
Elements, Scalar) all start by an inline script, some load from other hosts, and each is about a megabyte of
JavaScript; this one is read in any browser under the strictest content security policy.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

from flask import Response, current_app, render_template_string, url_for
from markupsafe import Markup, escape

from pt2hub import errors
from pt2hub.server.api.problems import status_of
from pt2hub.wire.compatibility import OLDEST_CLIENT

_STYLE = Path(__file__).with_name("docs.css").read_text()
_PAGE = Path(__file__).with_name("docs.html").read_text()
_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Nothing may be loaded or sent, and no style but the page's own applies."""
SITE = "pt2hub.site"
"""Under this name an application keeps what leads from here to its other pages: labels and endpoints."""


def page(document: dict[str, Any]) -> Response:
    """The page that shows an OpenAPI document.

    Args:
        document: As `openapi.json` has it, with descriptions.
    """
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    sections = [
        (tag, [item for item in operations if tag["name"] in item[2].get("tags", ())])
        for tag in document["tags"]
    ]
    text = render_template_string(
        _PAGE,
        style=_STYLE,
        site=[(label, url_for(endpoint)) for label, endpoint in current_app.extensions.get(SITE, ())],
        document=document,
        sections=sections,
        codes=_codes(),
        prose=_prose,
        oldest_client=".".join(map(str, OLDEST_CLIENT)),
    )
    response = Response(text, content_type="text/html; charset=utf-8")
    response.headers["Content-Security-Policy"] = _POLICY
    return response


def _prose(text: str | None) -> Markup:
    """A description as a sentence, with what stands between backticks as code."""
    shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape((text or "").strip())))
    return Markup(shown if not shown or shown.endswith((".", ":")) else f"{shown}.")  # noqa: S704  # escaped above


def _codes() -> list[tuple[str, int, str, str]]:
    """Code, status, kind and meaning of every error that we raise, by status."""
    ours = f"{errors.__name__}."
    found = [
        cls for cls in errors.walk() if cls is not errors.Pt2hubError and cls.__module__.startswith(ours)
    ]
    rows = [
        (cls.code, int(status_of(cls)), cls.kind, (cls.__doc__ or "").strip().splitlines()[0])
        for cls in found
    ]
    return sorted(rows, key=lambda row: (row[1], row[0]))
