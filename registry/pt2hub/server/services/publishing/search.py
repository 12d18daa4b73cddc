"""Search over everything that has a page: models, versions, builds, targets and people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pt2hub.domain.builds import BuildKind
from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.domain.names import Reference
from pt2hub.errors import InvalidInput
from pt2hub.rendering.targets import short_target
from pt2hub.server.db.reading import readable
from pt2hub.server.db.stores.publishing.catalog import CatalogStore
from pt2hub.server.db.stores.publishing.search import SearchStore
from pt2hub.server.db.stores.retention.tombstones import TombstoneStore
from pt2hub.server.services.not_found import deleted_artifact, deleted_build
from pt2hub.wire.search import SearchHit, SearchResults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.orm import Session

    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.publishing.search import FoundVersion
    from pt2hub.wire.responses import ModelView

DEFAULT_HITS = 8
MAX_HITS = 50
MAX_SEARCH_CHARS = 210
"""Longer than a model's name with a digest's beginning."""
_HEX = re.compile(r"(sha256:)?([0-9a-f]{6,64})")
_FULL = 64
OWNS_MODELS, OWNS_VERSIONS = "owns models", "owns versions"
_MAX_ALIASES = 3
"""Aliases that are named beside a model."""


class SearchService:
    """Search over everything that has a page."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def search(self, typed: str, *, limit: int = DEFAULT_HITS) -> SearchResults:
        """Return what a text names or what has it in its name; what may not be read is left out.

        Models, targets, publishers and owners are found by a part of their names; versions by `team/name@3`, `team/name@prod`
        or six or more characters of a digest of their artifacts, weights or identity; builds by six or more
        characters of their ids.

        Args:
            limit: Maximum number of each kind.
        """
        wanted = typed.strip()[:MAX_SEARCH_CHARS].lower()
        if not wanted:
            return SearchResults(())
        with self._sessions.begin() as session:
            store = SearchStore(session)
            hits = (
                *_models(session, wanted, limit),
                *_referenced(store, typed.strip()[:MAX_SEARCH_CHARS]),
                *_with_digest(store, wanted, limit),
                *_builds(store, wanted, limit),
                *_targets(store, wanted, limit),
                *_publishers(store, wanted, limit),
                *_owners(store, wanted, limit),
            )
        return SearchResults(hits)

    def is_deleted(self, typed: str) -> bool:
        """Return whether a text names something deleted that may be read.

        A version is named by `team/name@3`, an artifact by its whole digest, a build by its whole id.
        """
        with self._sessions.begin() as session:
            if re.fullmatch(DIGEST_PATTERN, typed):
                return deleted_artifact(session, typed) is not None
            if deleted_build(session, typed):
                return True
            try:
                wanted = Reference.parse(typed)
            except InvalidInput:
                return False
            if wanted.number is None or not readable().covers(wanted.model):
                return False
            return TombstoneStore(session).version(wanted.model, wanted.number) is not None


def _models(session: Session, wanted: str, limit: int) -> Iterator[SearchHit]:
    """Yield the models whose names contain the text; one that it names comes first."""
    store = CatalogStore(session)
    named = store.named([wanted]) if "/" in wanted else {}
    others = store.models(wanted, after="", limit=limit)
    for model in [*named.values(), *(other for other in others if other.name not in named)][:limit]:
        exact = wanted in (model.name, model.name.partition("/")[2])
        yield SearchHit("model", model.name, _describe(model), exact, model.name)


def _describe(model: ModelView) -> str:
    ready = f"newest ready version {model.newest_ready}" if model.newest_ready else "none ready"
    aliases = [f"{name} {number}" for name, number in model.aliases.items()]
    return " · ".join([ready, *aliases[:_MAX_ALIASES]])


def _referenced(store: SearchStore, typed: str) -> Iterator[SearchHit]:
    """Yield the version that the text refers to by its number or an alias."""
    if "@" not in typed:
        return
    try:
        wanted = Reference.parse(typed)
    except InvalidInput:
        return
    if wanted.number is not None or wanted.alias is not None:
        found = store.by_reference(wanted.model, number=wanted.number, alias=wanted.alias)
        if found is not None:
            yield _version(found, exact=True)


def _with_digest(store: SearchStore, wanted: str, limit: int) -> Iterator[SearchHit]:
    match = _HEX.fullmatch(wanted.partition("@")[2] or wanted)
    if match is None:
        return
    digits = match.group(2)
    for found in store.by_digest(f"sha256:{digits}", limit):
        yield _version(found, exact=len(digits) == _FULL)


def _version(found: FoundVersion, *, exact: bool) -> SearchHit:
    name = f"{found.model}@{found.number}"
    return SearchHit("version", name, found.matched, exact, found.model, found.number)


def _builds(store: SearchStore, wanted: str, limit: int) -> Iterator[SearchHit]:
    match = _HEX.fullmatch(wanted)
    if match is None or match.group(1):
        return
    for build in store.builds(wanted, limit):
        what = "measuring job, " if build.kind == BuildKind.MEASURE else ""
        detail = f"{what}{build.state} · {build.model}@{build.number} on {short_target(build.target)}"
        yield SearchHit("build", build.id, detail, build.id == wanted, build.model, build.number)


def _targets(store: SearchStore, wanted: str, limit: int) -> Iterator[SearchHit]:
    """Yield the targets whose names, in full or in short, contain the text."""
    names = store.targets()
    short = {name: short_target(name, names) for name in names}
    found = [name for name in names if wanted in name.lower() or wanted in short[name].lower()]
    for name in found[:limit]:
        yield SearchHit("target", name, short[name], wanted in (name.lower(), short[name].lower()))


def _publishers(store: SearchStore, wanted: str, limit: int) -> Iterator[SearchHit]:
    for name in store.publishers(wanted, limit):
        yield SearchHit("publisher", name, "published versions", wanted == name.lower())


def _owners(store: SearchStore, wanted: str, limit: int) -> Iterator[SearchHit]:
    """Yield who owns models or versions, by their labels; whoever owns models is named once."""
    of_models = store.owners(wanted, limit, of_models=True)
    of_versions = [name for name in store.owners(wanted, limit, of_models=False) if name not in of_models]
    found = [*((name, OWNS_MODELS) for name in of_models), *((name, OWNS_VERSIONS) for name in of_versions)]
    for name, detail in found[:limit]:
        yield SearchHit("owner", name, detail, wanted == name.lower())
