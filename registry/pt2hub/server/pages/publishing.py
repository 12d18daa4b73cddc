"""Publishing from a pasted spec, checked while it is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import redirect, request, url_for

from pt2hub.domain.names import Reference
from pt2hub.errors import InvalidInput, Pt2hubError
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages import sessions
from pt2hub.server.pages.numbers import priority
from pt2hub.server.pages.rendering import fragment, page
from pt2hub.server.pages.routes import routes
from pt2hub.server.pages.spec_lines import lines_of
from pt2hub.wire.documents import JSON_TYPE, MAX_DOCUMENT_BYTES, YAML_TYPE, parse_document, write_document
from pt2hub.wire.prospects import Prospect

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

EXAMPLE = """\
model: your-team/resnet18
source:
  factory: torchvision.models:resnet18
  kwargs: {num_classes: 10}
inputs:
- name: x
  shape: [batch, 3, 224, 224]
  generate: {normal: {}}
dims:
  batch: {min: 1, max: 32, example: 2}
targets: [auto]
"""
"""A spec to begin with: small, and right on every server."""
_JSON = re.compile(r'\s*\{\s*"')
"""JSON proper: YAML would take most of it, but no tabs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is said of a spec: that nothing was written, what is wrong with it, or what it would do.

    Attributes:
        prospect: What publishing it would do.
        error: What is wrong.
        lines: Line of each field that the error names, by path.
    """

    prospect: Prospect | None = None
    error: Pt2hubError | None = None
    lines: dict[str, int] | None = None

    @property
    def status(self) -> HTTPStatus:
        """Of a page that says it."""
        return status_of(type(self.error)) if self.error else HTTPStatus.OK


@routes.route("/publish", methods=["GET", "POST"])
def publish() -> Response | WerkzeugResponse:
    """The form for a spec; sent, it publishes, or comes back with everything that was typed and what is wrong."""
    text, wanted = request.form.get("spec", ""), request.form.get("priority", "0")
    if request.method != "POST":
        return _begin()
    if "check" in request.form:
        return _form(text, _checked(text), wanted)
    try:
        version = container().publish.submit(_read(text), priority=priority(wanted.strip()))
    except Pt2hubError as error:
        return _form(text, _wrong(text, error), wanted)
    team, _, name = version.model.partition("/")
    done = "published" if version.created else "published-again"
    there = url_for("pages.version", team=team, name=name, number=version.number, done=done)
    return redirect(there, HTTPStatus.SEE_OTHER)


@routes.post("/publish/check")
def check_spec() -> Response:
    """What is said of a spec, for a script that shows it beside the form."""
    return fragment("publish_outcome.html", outcome=_checked(request.form.get("spec", "")))


def _begin() -> Response:
    """The form, with the spec of a version where the address names one."""
    origin = request.args.get("from", "").strip()
    try:
        text = _spec_of(origin) if sessions.visitor() else ""
    except Pt2hubError as error:
        return _form("", Outcome(error=error), origin=origin)
    return _form(text, _checked(text), origin=origin, status=HTTPStatus.OK)


def _form(
    text: str,
    outcome: Outcome,
    wanted: str = "0",
    *,
    origin: str = "",
    status: HTTPStatus | None = None,
) -> Response:
    """The form; its status is that of the outcome unless another one is given."""
    return page(
        "publish.html",
        room="publish",
        status=status or outcome.status,
        text=text,
        outcome=outcome,
        priority=wanted,
        origin=origin,
    )


def _spec_of(origin: str) -> str:
    if origin in {"", "example"}:
        return EXAMPLE if origin else ""
    wanted = Reference.parse(origin)
    number = wanted.number or container().resolve.resolve(origin).number
    return write_document(container().publish.document(wanted.model, number))


def _checked(text: str) -> Outcome:
    if not text.strip():
        return Outcome()
    try:
        return Outcome(prospect=container().publish.check(_read(text)))
    except Pt2hubError as error:
        return _wrong(text, error)


def _wrong(text: str, error: Pt2hubError) -> Outcome:
    paths = [detail.path for detail in error.details] or [error.where or ""]
    return Outcome(error=error, lines=_lines(text, error, paths))


def _lines(text: str, error: Pt2hubError, paths: list[str]) -> dict[str, int]:
    line = error.context.get("line")
    return {error.where or "": line} if line else lines_of(text, paths)


def _read(text: str) -> dict[str, Any]:
    body = text.encode("utf-8", "surrogatepass")
    if len(body) > MAX_DOCUMENT_BYTES:
        raise InvalidInput(
            f"The spec has {len(body)} bytes",
            where="document",
            hint=f"At most {MAX_DOCUMENT_BYTES} are read: tensors are uploaded, and named by their digests.",
        )
    return parse_document(body, content_type=JSON_TYPE if _JSON.match(text) else YAML_TYPE)
