"""Version records: what a server answered about a version when a bundle was written.

A bundle has one record for each of its versions, as a manifest of its own, so that other OCI tools carry it. Its config
is the record, and its layers are documentation that was attached after the publication. What a bundle says is untrusted.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import MANIFEST_TYPE, MODEL, VERSION, Descriptor, Manifest
from pt2hub.domain.attached_files.names import check_name, check_names
from pt2hub.domain.codec import decode, encode, parse_json
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.labels import check_labels
from pt2hub.domain.lineage import MAX_DEPTH, external_link
from pt2hub.domain.names import Reference
from pt2hub.domain.plain_text import find_control
from pt2hub.errors import BadResponse, CorruptArchive, InvalidInput, NotFound
from pt2hub.wire.artifacts import ArtifactView
from pt2hub.wire.evaluations import EvaluationPage, EvaluationView
from pt2hub.wire.files import FileList
from pt2hub.wire.lineage import LineageView
from pt2hub.wire.responses import ModelView, VersionView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.client.http.transport import Transport
    from pt2hub.wire.files import FileView
    from pt2hub.wire.lineage import DerivationView

RECORD_TYPE = "application/vnd.pt2hub.version-record.v1"
RECORD_CONFIG_TYPE = "application/vnd.pt2hub.version-record.v1+json"
RECORD = "io.pt2hub.record"
"""Annotation of an index entry that is a version record."""
MAX_RECORD_BYTES = 64 << 20
"""As much as an answer of a server may have."""
MAX_EVALUATIONS = 1000
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """What a server answered about a version.

    Attributes:
        exported_at: When it answered, in seconds since the epoch.
        version: The version, with labels, files, builds and its newest evaluations.
        model: Its model, with aliases and labels.
        files: The attached files as they were then.
        lineage: What it is derived from, and what is derived from it.
        evaluations: Its evaluations, newest first.
        artifacts: Its artifacts.
    """

    exported_at: float
    version: VersionView
    model: ModelView
    files: FileList
    lineage: LineageView
    evaluations: tuple[EvaluationView, ...] = ()
    artifacts: tuple[ArtifactView, ...] = ()

    @property
    def reference(self) -> str:
        """The version as `team/name@3`."""
        return f"{self.version.model}@{self.version.number}"

    @property
    def later_files(self) -> tuple[FileView, ...]:
        """Documentation that no artifact has, since it was attached later."""
        return tuple(item for item in self.files.files if not item.pinned)

    def as_bytes(self) -> bytes:
        """Return the record as a config blob."""
        return json.dumps(encode(self), sort_keys=True).encode()


def read_record(transport: Transport, model: str, number: int, *, at: float) -> VersionRecord | None:
    """Ask a server for everything about a version; None if it is older than this and lacks some of it.

    Raises:
        Pt2hubError: As for any request.
    """
    base = f"/api/v1/models/{model}"
    try:
        version = transport.fetch(VersionView, f"{base}/versions/{number}")
        return VersionRecord(
            at,
            version,
            transport.fetch(ModelView, base),
            transport.fetch(FileList, f"{base}/versions/{number}/files"),
            transport.fetch(LineageView, f"{base}/versions/{number}/lineage", {"depth": MAX_DEPTH}),
            tuple(_evaluations(transport, version)),
            tuple(
                transport.fetch(ArtifactView, f"/api/v1/artifacts/{build.artifact}")
                for build in version.builds
                if build.artifact
            ),
        )
    except NotFound:
        return None


def record_entry(record: VersionRecord) -> tuple[Descriptor, dict[Digest, bytes]]:
    """Return the index entry of a record, and its manifest and config."""
    config = record.as_bytes()
    layers = tuple(_layer(item) for item in record.later_files)
    described = Descriptor(RECORD_CONFIG_TYPE, digest_bytes(config), len(config))
    data = Manifest(RECORD_TYPE, described, layers).as_bytes()
    digest = digest_bytes(data)
    annotations = {MODEL: record.version.model, VERSION: str(record.version.number), RECORD: RECORD_TYPE}
    entry = Descriptor(MANIFEST_TYPE, digest, len(data), annotations)
    return entry, {digest: data, described.digest: config}


def parse_record(data: bytes, where: str) -> VersionRecord:
    """Return the record in a config blob, checked as far as the server checks what it takes.

    Args:
        where: The bundle, for errors.

    Raises:
        CorruptArchive: It is malformed, or says what no server accepts.
    """
    try:
        record = decode(VersionRecord, parse_json(data))
        _check(record)
    except (ValueError, BadResponse) as exc:
        raise CorruptArchive(f"A version record is malformed: {exc}", where=where) from exc
    except InvalidInput as exc:
        raise CorruptArchive(f"A version record is invalid: {exc.message}", where=where) from exc
    return record


def _evaluations(transport: Transport, version: VersionView) -> Iterable[EvaluationView]:
    """Yield the newest evaluations of a version among those of its model."""
    if not version.evaluations:
        return
    found, query = 0, {"limit": 200}
    while True:
        page = transport.fetch(EvaluationPage, f"/api/v1/models/{version.model}/evaluations", query)
        for item in page.evaluations:
            if item.number == version.number and found < MAX_EVALUATIONS:
                found += 1
                yield item
        if page.next is None or found >= MAX_EVALUATIONS:
            return
        query = {**query, "before": page.next}


def _layer(item: FileView) -> Descriptor:
    from pt2hub.domain.attached_files.files import AttachedFile

    return AttachedFile(item.name, item.kind, item.media_type, item.digest, item.size).as_layer()


def _check(record: VersionRecord) -> None:
    """Check what people are shown, and what names files.

    Raises:
        InvalidInput: A part is one that no server accepts.
    """
    if not (math.isfinite(record.exported_at) and record.exported_at >= 0):
        raise InvalidInput("the time of the export is not a time")
    version, own = record.version, (record.version.model, record.version.number)
    if Reference.parse(record.reference).number != version.number:
        raise InvalidInput(f"{record.reference[:_SHOWN]!a} is not a version")
    evaluated = {(item.model, item.number) for item in (*record.evaluations, *version.evaluations)}
    built = {(item.model, item.number) for item in record.artifacts}
    if (
        record.model.name != version.model
        or (evaluated | built) - {own}
        or (record.lineage.model, record.lineage.number) != own
    ):
        raise InvalidInput(f"parts of it belong to another version than {record.reference}")
    _check_labels([(item.key, item.value) for item in version.labels])
    _check_labels(list(record.model.labels.items()))
    for files in (record.files.files, version.files):
        check_names([check_name(item.name) for item in files])
        if any(item.size < 1 for item in files):
            raise InvalidInput("a file has no bytes")
    for item in (
        *version.derived_from,
        *version.derivatives,
        *record.lineage.ancestors,
        *record.lineage.descendants,
    ):
        _check_derivation(item)
    for evaluation in (*record.evaluations, *version.evaluations):
        _check_evaluation(evaluation)


def _check_labels(labels: list[tuple[str, str]]) -> None:
    if len(dict(labels)) < len(labels):
        raise InvalidInput("a label is given twice")
    check_labels(dict(labels))


def _check_derivation(item: DerivationView) -> None:
    texts = (item.version, item.relation, item.parent)
    if any(find_control(text) for text in texts) or item.link not in (None, external_link(item.parent)):
        raise InvalidInput(f"invalid parent {item.parent[:_SHOWN]!a}")


def _check_evaluation(item: EvaluationView) -> None:
    if any(find_control(text) for text in (item.metric, item.unit, item.data_set)) or item.count < 1:
        raise InvalidInput(f"invalid evaluation by {item.metric[:_SHOWN]!a}")
