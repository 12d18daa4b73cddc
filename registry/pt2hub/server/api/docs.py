"""HTML page for the OpenAPI document.

It is rendered without scripts. The pages that flask-openapi3 offers (Swagger UI, Redoc, RapiDoc, Elements, Scalar)
need inline scripts, some load from other hosts, and each is about a megabyte of JavaScript; this one works in any browser
under the strictest content security policy.
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
"""The page may load and send nothing and use only its own style."""
SITE = "pt2hub.site"
"""Key of the application's extension with the page's navigation: labels and endpoints."""


def page(document: dict[str, Any]) -> Response:
    """Render an OpenAPI document as a page.

    Args:
        document: The OpenAPI document with descriptions.
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
    """Format a description as a sentence, with text in backticks as code."""
    shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape((text or "").strip())))
    return Markup(shown if not shown or shown.endswith((".", ":")) else f"{shown}.")  # noqa: S704  # escaped above


def _codes() -> list[tuple[str, int, str, str]]:
    """Return code, status, kind and meaning of every error, by status."""
    ours = f"{errors.__name__}."
    found = [
        cls for cls in errors.walk() if cls is not errors.Pt2hubError and cls.__module__.startswith(ours)
    ]
    rows = [
        (cls.code, int(status_of(cls)), cls.kind, (cls.__doc__ or "").strip().splitlines()[0])
        for cls in found
    ]
    return sorted(rows, key=lambda row: (row[1], row[0]))
