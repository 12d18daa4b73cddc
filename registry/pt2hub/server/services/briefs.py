"""What the page of a version says of its artifacts."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import NativeCode
from pt2hub.domain.codec import decode
from pt2hub.domain.compiling import weights_form
from pt2hub.domain.names import parse_model_name
from pt2hub.errors import BadResponse, NotFound, StorageUnavailable, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.briefs import BriefStore
from pt2hub.server.db.stores.histories import HistoryStore
from pt2hub.server.db.stores.versions import VersionStore
from pt2hub.server.services import missing
from pt2hub.server.services.documents import read_json

if TYPE_CHECKING:
    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.ports import Reads
    from pt2hub.server.db.engine import Sessions
    from pt2hub.wire.briefs import ArtifactBrief

_REMEMBERED = 4096
"""Artifacts whose needs a process remembers, some hundred bytes each: they never change."""


class BriefService:
    """Artifacts in brief."""

    def __init__(self, sessions: Sessions, storage: Reads) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            storage: Holds configs.
        """
        self._sessions = sessions
        self._remembered = lru_cache(_REMEMBERED)(partial(_native, storage))

    def artifacts(self, model: str, number: int) -> tuple[ArtifactBrief, ...]:
        """The artifacts of a version, in the order the targets were submitted.

        Args:
            model: The model's name.
            number: The version's number.

        Raises:
            InvalidInput: The text is no model's name.
            NotFound: There is no such version.
        """
        with self._sessions.begin() as session:
            versions = VersionStore(session)
            version = versions.by_number(parse_model_name(model), number)
            model_id = versions.model_id(model)
            if version is None or model_id is None:
                raise missing.no_version(session, model, number)
            batch = HistoryStore(session).example_batches([model_id]).get(model_id)
            store = BriefStore(session)
            figures = store.latencies(model_id, number, batch)
            return tuple(store.artifacts(version.id, figures, partial(weights_form, version.spec)))

    def native(self, config: Digest) -> NativeCode | None:
        """What the libraries of an artifact need of a machine.

        Args:
            config: Digest of the artifact's config.

        Returns:
            None where the config cannot be read: then its target alone says where it runs.
        """
        try:
            return self._remembered(config)
        except (NotFound, BadResponse, TooLarge, StorageUnavailable):
            return None


def _native(storage: Reads, digest: Digest) -> NativeCode:
    config = read_json(storage, StorageKey.blob(digest))
    native = decode(NativeCode, config.get("native") if isinstance(config, dict) else None, where=digest)
    return replace(native, needed=(), aoti_symbols=())  # no verdict is about these, and they are long
