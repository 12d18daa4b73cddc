"""Problem documents (RFC 9457) for errors, and the only table of their HTTP statuses."""

from __future__ import annotations

import json
import re
import secrets
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol, TypeAlias

import structlog
from flask import Response, has_request_context, request
from werkzeug.exceptions import HTTPException

from pt2hub import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask
    from werkzeug.wrappers import Response as WerkzeugResponse

PROBLEM_TYPE = "application/problem+json"
RETRY_SECONDS = 2
MAX_URL_BYTES = 8000
"""Maximum length of a request URL; proxies accept 8 KB for the request line. The longest reason for an alias's removal,
percent-encoded, fits."""
_ADDRESS = re.compile(r"(?<!\S)(?:GET )?/api/v1/")
_log = structlog.get_logger(__name__)

STATUS: dict[type[errors.Pt2hubError], HTTPStatus] = {
    errors.UsageError: HTTPStatus.BAD_REQUEST,
    errors.TransientError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.FatalError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.UnknownFactory: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.FactoryArguments: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.BadCodeArchive: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.UnknownEntry: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.BadProgram: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.ProgramNewer: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.InputRefused: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.UnknownInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.WeightsMismatch: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.ExampleOutOfRange: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.DimensionSpecialised: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NoLiveWorker: HTTPStatus.CONFLICT,
    errors.UnknownMetric: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.Unauthorized: HTTPStatus.UNAUTHORIZED,
    errors.TokenRevoked: HTTPStatus.UNAUTHORIZED,
    errors.TokenExpired: HTTPStatus.UNAUTHORIZED,
    errors.IdTokenExpired: HTTPStatus.UNAUTHORIZED,
    errors.IdTokenRejected: HTTPStatus.UNAUTHORIZED,
    errors.IdTokenSignature: HTTPStatus.UNAUTHORIZED,
    errors.IdTokenWrongAudience: HTTPStatus.UNAUTHORIZED,
    errors.IdTokenWrongIssuer: HTTPStatus.UNAUTHORIZED,
    errors.Forbidden: HTTPStatus.FORBIDDEN,
    errors.NoGrant: HTTPStatus.FORBIDDEN,
    errors.AddressRefused: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.AccessDenied: HTTPStatus.FORBIDDEN,
    errors.SignInRequired: HTTPStatus.UNAUTHORIZED,
    errors.SignInDenied: HTTPStatus.UNAUTHORIZED,
    errors.SignInMismatch: HTTPStatus.UNAUTHORIZED,
    errors.SignInCodeRejected: HTTPStatus.UNAUTHORIZED,
    errors.SignInUnavailable: HTTPStatus.NOT_FOUND,
    errors.NotMeasured: HTTPStatus.CONFLICT,
    errors.PromotionCheckFailed: HTTPStatus.CONFLICT,
    errors.PolicyChanged: HTTPStatus.CONFLICT,
    errors.VersionYanked: HTTPStatus.CONFLICT,
    errors.VersionInUse: HTTPStatus.CONFLICT,
    errors.FileFixed: HTTPStatus.CONFLICT,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.Deleted: HTTPStatus.GONE,
    errors.StillNeeded: HTTPStatus.CONFLICT,
    errors.DigestRefused: HTTPStatus.CONFLICT,
    errors.CollectionRefused: HTTPStatus.CONFLICT,
    errors.NotRecorded: HTTPStatus.NOT_FOUND,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.AliasMoved: HTTPStatus.CONFLICT,
    errors.AliasNotMoved: HTTPStatus.CONFLICT,
    errors.ReindexDue: HTTPStatus.CONFLICT,
    errors.LabelChanged: HTTPStatus.CONFLICT,
    errors.LabelImmutable: HTTPStatus.CONFLICT,
    errors.LineageCycle: HTTPStatus.CONFLICT,
    errors.NotReady: HTTPStatus.CONFLICT,
    errors.BuildActive: HTTPStatus.CONFLICT,
    errors.BuildOver: HTTPStatus.CONFLICT,
    errors.UploadIncomplete: HTTPStatus.CONFLICT,
    errors.BlobGone: HTTPStatus.CONFLICT,  # a retry does not help: the content must be uploaded first
    errors.Ambiguous: HTTPStatus.CONFLICT,
    errors.StaleAttempt: HTTPStatus.CONFLICT,
    errors.QuotaExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    errors.RateLimited: HTTPStatus.TOO_MANY_REQUESTS,
    errors.TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.RequestTimeout: HTTPStatus.REQUEST_TIMEOUT,
    errors.UploadTruncated: HTTPStatus.BAD_REQUEST,
    errors.ServerTooOld: HTTPStatus.BAD_REQUEST,  # raised by clients only
    errors.RangeNotSatisfiable: HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    errors.ClientTooOld: HTTPStatus.UPGRADE_REQUIRED,
    errors.SchemaOlder: HTTPStatus.SERVICE_UNAVAILABLE,  # for readiness checks of load balancers
    errors.SchemaNewer: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.BadConfiguration: HTTPStatus.SERVICE_UNAVAILABLE,  # also for readiness checks: the storage cannot be used as configured
    errors.StorageUnsafe: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StorageFull: HTTPStatus.INSUFFICIENT_STORAGE,
    errors.DigestMismatch: HTTPStatus.BAD_REQUEST,  # over HTTP the upload is wrong, not the server
    errors.BlobDamaged: HTTPStatus.INTERNAL_SERVER_ERROR,  # not 503: clients would wait for what no time cures
}
"""Status by class; other classes have the status of their nearest ancestor."""


def status_of(kind: type[errors.Pt2hubError]) -> HTTPStatus:
    """Return the HTTP status of an error class."""
    known = (STATUS[cls] for cls in kind.__mro__ if cls in STATUS)
    return next(known, HTTPStatus.INTERNAL_SERVER_ERROR)


def problem(error: errors.Pt2hubError, *, status: int | None = None) -> Response:
    """Create the problem document response of an error.

    Hints contain paths such as `/api/v1/...`, since services do not know the server's URL; they are completed here.

    Args:
        error: The error.
        status: HTTP status if different from the table, as for errors that HTTP itself defines.
    """
    document = error.as_dict()
    number = status or status_of(type(error))
    body = {
        "type": f"urn:pt2hub:error:{error.code}",
        "title": (type(error).__doc__ or "").strip().splitlines()[0],
        "status": int(number),
        "detail": document.pop("message"),
        **document,
        "hint": _absolute_hint(error.hint),
    }
    response = Response(json.dumps(body), status=number, content_type=PROBLEM_TYPE)
    if number == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="pt2hub"'
    if number == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = str(RETRY_SECONDS)
    if isinstance(error, errors.RangeNotSatisfiable) and "size" in error.context:
        response.headers["Content-Range"] = f"bytes */{error.context['size']}"
    return response


Explains: TypeAlias = "Callable[[errors.Pt2hubError], errors.Pt2hubError]"


class Presents(Protocol):
    """A renderer of errors, such as `problem`."""

    def __call__(self, error: errors.Pt2hubError, *, status: int | None = None) -> Response:
        """Return an error as a response."""


def _absolute_hint(hint: str | None) -> str | None:
    """Replace API paths in a hint by complete URLs, within a request."""
    if hint is None or not has_request_context():
        return hint
    return _ADDRESS.sub(f"{request.host_url}api/v1/", hint)


def register(app: Flask, present: Presents = problem, explain: Explains = lambda error: error) -> None:
    """Register error handlers; a second call replaces the renderer.

    Args:
        app: The application.
        present: Renderer of errors.
        explain: Returns the error that says why, such as of a blob that is missing.
    """
    app.register_error_handler(errors.Pt2hubError, lambda error: _ours(explain(error), present=present))
    app.register_error_handler(HTTPException, partial(_of_http, present=present))
    app.register_error_handler(Exception, partial(_unforeseen, present=present))


def _ours(error: errors.Pt2hubError, present: Presents) -> Response:
    response = present(error)
    if "retry_after" in error.context:
        response.headers["Retry-After"] = str(error.context["retry_after"])
    # Pages that get no stream poll instead: nothing failed.
    if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, errors.Busy):
        _log.error("request failed", code=error.code, where=error.where, exc_info=error)
    return response


_UNROUTED = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
_OF_HTTP: dict[int, type[errors.Pt2hubError]] = {
    HTTPStatus.NOT_FOUND: errors.NotFound,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: errors.TooLarge,
}


def _of_http(error: HTTPException, present: Presents = problem) -> WerkzeugResponse:
    if error.code is None or error.code < HTTPStatus.BAD_REQUEST:  # a redirect
        return error.get_response()
    cls = _OF_HTTP.get(error.code, errors.UsageError)
    unrouted = "Page or route not found" if error.code == HTTPStatus.NOT_FOUND else error.description
    response = present(cls(unrouted, hint=_hint(error.code)), status=error.code)
    for name, value in error.get_response().headers:
        if name in {"Allow", "Content-Range"}:
            response.headers[name] = value
    return response


def _name_longest_parameter() -> str:
    """Return the hint for a URL that is too long: which of its parameters to shorten."""
    sizes = (
        {name: len(value) for name, value in request.args.items(multi=True)} if has_request_context() else {}
    )
    if not sizes:
        return f"URLs may have at most {MAX_URL_BYTES} bytes."
    name = max(sizes, key=sizes.__getitem__)
    return f"Shorten {name[:40]}: it has {sizes[name]:,} characters."


def _hint(status: int) -> str | None:
    if status in _UNROUTED:
        return "All routes are described at /api/v1/docs"
    if status == HTTPStatus.REQUEST_URI_TOO_LONG:
        return _name_longest_parameter()
    most = request.max_content_length if has_request_context() else None
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE and most:
        return f"This route accepts at most {most} bytes."
    return None


def _unforeseen(error: Exception, present: Presents) -> Response:
    number = secrets.token_hex(4)
    _log.error("unexpected error", id=number, exc_info=error)
    return present(
        errors.InternalError(
            f"Unexpected internal error ({type(error).__name__}, id {number}).",
            hint="The server's log has the details under this id; please report them.",
            context={"id": number},
        )
    )
