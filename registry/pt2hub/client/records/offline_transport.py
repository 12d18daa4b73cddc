"""The transport of a client that asks no server: version records answer, as they were at the export."""

from __future__ import annotations

import re
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs, urlsplit

from pt2hub.client.artifacts.origin import LastKnownResolutionWarning
from pt2hub.client.artifacts.puller import resolve
from pt2hub.client.http.transport import Transport
from pt2hub.client.records.record_store import RecordStore
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.domain.lineage import DEFAULT_DEPTH
from pt2hub.errors import Offline
from pt2hub.wire.evaluations import EvaluationPage
from pt2hub.wire.responses import LabelList, LabelView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pt2hub.client.records.version_records import VersionRecord
    from pt2hub.wire.lineage import DerivationView, LineageView
    from pt2hub.wire.resolution import ResolvedReference
    from pt2hub.wire.responses import ModelView

_MODEL = re.compile(r"/api/v1/models/([^/]+/[^/]+)(/evaluations|/labels)?")
_VERSION = re.compile(r"/api/v1/models/([^/]+/[^/]+)/versions/([1-9][0-9]{0,8})(/files|/lineage)?")
_ARTIFACT = re.compile(rf"/api/v1/artifacts/({DIGEST_PATTERN})")
_RESOLVE = "/api/v1/resolve"


class Resolve(Protocol):
    """Returns what a reference was last known to resolve to."""

    def __call__(
        self, reference: str, ask: Callable[[Transport, str], ResolvedReference]
    ) -> ResolvedReference:
        """Return it; `ask` would ask a server."""
        ...


class OfflineTransport(Transport):
    """Answers what version records know; anything else needs the server.

    Args:
        cache: The cache's folder, next to which records are.
    """

    def __init__(self, url: str, cache: Path, resolve: Resolve) -> None:
        super().__init__(url)
        self._records = RecordStore(cache, url)
        self._resolve = resolve
        self._warned: set[str] = set()

    def _json(self, method: str, path: str, **options: Any) -> Any:
        parts = urlsplit(path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if method != "GET":
            raise self._offline("a change")
        if parts.path == _RESOLVE:
            return encode(self._resolve(query["reference"], resolve))
        answer = self._find(parts.path, query)
        if answer is None:
            return super()._json(method, path, **options)
        return encode(answer)

    def _request(self, method: str, path: str, **options: Any) -> Any:  # noqa: ARG002  # nothing is sent
        raise self._offline("this")

    def _find(self, path: str, query: Mapping[str, str]) -> object | None:
        """Return what the records answer to a path; None if only the server can answer it."""
        if found := _VERSION.fullmatch(path):
            record = self._record(found[1], int(found[2]))
            if found[3] == "/lineage":
                return limit_depth(record.lineage, int(query.get("depth", DEFAULT_DEPTH)))
            return record.files if found[3] else record.version
        if found := _MODEL.fullmatch(path):
            records = self._records.of_model(found[1])
            if not records:
                raise self._unknown(found[1])
            if found[2] == "/evaluations":
                return self._evaluations(records, query)
            model = self._noted(records[0]).model
            return _labels(model) if found[2] else model
        if found := _ARTIFACT.fullmatch(path):
            for record in self._records.every():
                for item in record.artifacts:
                    if item.digest == found[1]:
                        self._noted(record)
                        return item
        return None

    def _record(self, model: str, number: int) -> VersionRecord:
        record = self._records.find(model, number)
        if record is None:
            raise self._unknown(f"{model}@{number}")
        return self._noted(record)

    def _noted(self, record: VersionRecord) -> VersionRecord:
        """Return a record, with a warning that names its age, once for each version."""
        from pt2hub.rendering.quantities import format_age

        if record.reference not in self._warned:
            self._warned.add(record.reference)
            age = format_age(max(time.time() - record.exported_at, 0.0))
            text = (
                f"{record.reference} is as it was exported {age} ago. No server was asked: pt2hub is offline."
            )
            warnings.warn(text, LastKnownResolutionWarning, stacklevel=2)
        return record

    def _evaluations(self, records: list[VersionRecord], query: Mapping[str, str]) -> EvaluationPage:
        """Return the evaluations of all versions that are known, on one page."""
        digest = query.get("data_set", "").rpartition("@")[2]
        found = [
            item
            for record in records
            for item in self._noted(record).evaluations
            if query.get("metric") in (None, item.metric) and digest in ("", item.data_digest)
        ]
        return EvaluationPage(tuple(sorted(found, key=lambda item: item.measured_at, reverse=True)))

    def _unknown(self, what: str) -> Offline:
        return Offline(
            "No bundle with it was imported, and pt2hub is offline",
            where=what,
            hint="pt2hub export bundle, on a machine with the server, writes one; pt2hub import reads it.",
        )

    def _offline(self, what: str) -> Offline:
        return Offline(
            f"pt2hub is offline, and {what} needs the server", where=self.url, hint="Unset PT2HUB_OFFLINE."
        )


def _labels(model: ModelView) -> LabelList:
    """Return the labels of a model; records do not know who set them."""
    return LabelList(tuple(LabelView(key, value) for key, value in sorted(model.labels.items())))


def limit_depth(lineage: LineageView, depth: int) -> LineageView:
    """Return a lineage with fewer generations."""
    start = f"{lineage.model}@{lineage.number}"
    ancestors = _within(start, depth, [(item.version, item.parent, item) for item in lineage.ancestors])
    descendants = _within(start, depth, [(item.parent, item.version, item) for item in lineage.descendants])
    cut = len(ancestors) < len(lineage.ancestors) or len(descendants) < len(lineage.descendants)
    return replace(lineage, ancestors=ancestors, descendants=descendants, truncated=lineage.truncated or cut)


def _within(
    start: str, depth: int, edges: list[tuple[str, str, DerivationView]]
) -> tuple[DerivationView, ...]:
    near = {start}
    found: list[DerivationView] = []
    for _ in range(depth):
        step = [edge for edge in edges if edge[0] in near and edge[2] not in found]
        found += [edge[2] for edge in step]
        near = {edge[1] for edge in step}
    return tuple(found)
