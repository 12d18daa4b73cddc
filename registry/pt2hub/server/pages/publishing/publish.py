"""Publishing from a pasted spec, with a preview."""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import redirect, request, url_for

from pt2hub.domain.names import Reference
from pt2hub.errors import InvalidInput, Pt2hubError
from pt2hub.server.api import permissions
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.api.visitors import visitor
from pt2hub.server.pages import sessions
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import parse_priority
from pt2hub.server.pages.templates import fragment, page
from pt2hub.wire.documents import JSON_TYPE, MAX_DOCUMENT_BYTES, YAML_TYPE, parse_document, write_document
from pt2hub.wire.positions import find_positions
from pt2hub.wire.previews import PublishPreview

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.wire.responses import TargetView

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
"""A small spec that is valid on every server."""
_TARGET = "target"
"""The form's field for targets in place of those of the spec."""
_MAX_CHOSEN = 200
_JSON = re.compile(r'\s*\{\s*"')
"""The start of a JSON object; the YAML parser would refuse its tabs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of checking a spec: empty, an error or a preview."""

    preview: PublishPreview | None = None
    error: Pt2hubError | None = None
    lines: dict[str, int] | None = None

    @property
    def status(self) -> HTTPStatus:
        """The HTTP status of a page with this outcome."""
        return status_of(type(self.error)) if self.error else HTTPStatus.OK


@routes.route("/publish", methods=["GET", "POST"])
def publish() -> Response | WerkzeugResponse:
    """Show the form for a spec; on submit, publish it or return the form with its error."""
    text, wanted = request.form.get("spec", ""), request.form.get("priority", "0")
    if request.method != "POST":
        return _new_form()
    if "check" in request.form:
        return _form(text, _check(text), wanted)
    try:
        version = container().publish.submit(
            _read(text), by=sessions.actor(), priority=parse_priority(wanted.strip())
        )
    except Pt2hubError as error:
        return _form(text, _error_outcome(text, error), wanted)
    team, _, name = version.model.partition("/")
    done = "published" if version.created else "published-again"
    there = url_for("pages.version", team=team, name=name, number=version.number, done=done)
    return redirect(there, HTTPStatus.SEE_OTHER)


@routes.post("/publish/check")
def check_spec() -> Response:
    """Check a spec, for a script that shows the outcome next to the form."""
    return fragment("publish_outcome.html", outcome=_check(request.form.get("spec", "")))


def _new_form() -> Response:
    """Return the form, with the spec of a version if the URL names one."""
    origin = request.args.get("from", "").strip()
    try:
        text = _spec_of(origin) if visitor() else ""
    except Pt2hubError as error:
        return _form("", Outcome(error=error), origin=origin)
    return _form(text, _check(text), origin=origin, status=HTTPStatus.OK)


def _form(
    text: str,
    outcome: Outcome,
    wanted: str = "0",
    *,
    origin: str = "",
    status: HTTPStatus | None = None,
) -> Response:
    """Return the form, with the outcome's status unless one is given."""
    return page(
        "publish.html",
        section="publish",
        status=status or outcome.status,
        text=text,
        outcome=outcome,
        priority=wanted,
        origin=origin,
        choices=_choices() if visitor() else [],
        chosen=_chosen_targets(),
    )


def _spec_of(origin: str) -> str:
    if origin in {"", "example"}:
        return EXAMPLE if origin else ""
    wanted = Reference.parse(origin)
    number = wanted.number or container().resolve.resolve(origin).number
    return write_document(container().publish.document(wanted.model, number))


def _check(text: str) -> Outcome:
    if not text.strip():
        return Outcome()
    try:
        return Outcome(preview=container().publish.check(_read(text)))
    except Pt2hubError as error:
        return _error_outcome(text, error)


def _error_outcome(text: str, error: Pt2hubError) -> Outcome:
    paths = [detail.path for detail in error.details] or [error.where or ""]
    return Outcome(error=error, lines=_lines(text, error, paths))


def _lines(text: str, error: Pt2hubError, paths: list[str]) -> dict[str, int]:
    line = error.context.get("line")
    if line:
        return {error.where or "": line}
    return {path: found for path, (found, _) in find_positions(text, paths).items()}


def _read(text: str) -> dict[str, Any]:
    """Return a spec that its sender may publish."""
    body = text.encode("utf-8", "surrogatepass")
    if len(body) > MAX_DOCUMENT_BYTES:
        raise InvalidInput(
            f"The spec is too large ({len(body)} bytes, at most {MAX_DOCUMENT_BYTES})",
            where="document",
            hint="Upload tensors separately and reference them by digest.",
        )
    document = parse_document(body, content_type=JSON_TYPE if _JSON.match(text) else YAML_TYPE)
    permissions.require(document.get("model"))
    chosen = _chosen_targets()
    return {**document, "targets": chosen} if chosen else document


def _chosen_targets() -> list[str]:
    """Return the targets that the form chooses in place of those of the spec."""
    return request.form.getlist(_TARGET)[:_MAX_CHOSEN]


def _choices() -> list[TargetView]:
    """Return the targets that live workers offer."""
    return [item for item in container().workers.targets() if item.live_workers]
