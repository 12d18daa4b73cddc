"""Reports of evaluations, safe to repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.client.http.server_away import retry_request
from pt2hub.client.performance.reporter import to_plain
from pt2hub.domain.digests import canonical_json, digest_bytes
from pt2hub.errors import InvalidInput, TransientError
from pt2hub.wire.performance import Reported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pt2hub.client.http.transport import Transport


def report_evaluations(transport: Transport, evaluations: Sequence[Mapping[str, Any]]) -> Reported:
    """Send evaluations in one request, with retries, which keys make harmless; see `Performance.report_evaluations`."""
    body = canonical_json({"evaluations": [_prepare(index, item) for index, item in enumerate(evaluations)]})
    return retry_request(
        lambda: transport.ask(Reported, "POST", "/api/v1/evaluations", body), transport.url, TransientError
    )


def _prepare(index: int, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an evaluation as plain JSON with a key, by default the digest of its content."""
    path = f"evaluations[{index}]"
    if not hasattr(item, "keys"):
        raise InvalidInput(
            "An evaluation must be an object", where=path, hint="Write its fields: version, metric, value..."
        )
    whole = {str(name): to_plain(value, f"{path}.{name}") for name, value in dict(item).items()}
    if whole.get("key") is None:
        whole["key"] = digest_bytes(canonical_json({**whole, "key": None}))
    return whole
