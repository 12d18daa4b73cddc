"""Lineage: recorded at publication and later, without cycles, and shown both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.audit import Action
from pt2hub.domain.lineage import (
    DEFAULT_DEPTH,
    MAX_PARENTS,
    external_link,
    parse_derivations,
    too_many,
)
from pt2hub.errors import LineageCycle
from pt2hub.server.db.reading import readable
from pt2hub.server.db.stores.promotion.aliases import AliasStore
from pt2hub.server.db.stores.publishing.lineage import LineageStore, Parent
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.services import not_found
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.builds.retrained_versions import note_retrained
from pt2hub.wire.lineage import LineageView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.lineage import Derivation
    from pt2hub.domain.principals import Principal
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.publishing.lineage import StoredDerivation
    from pt2hub.server.db.stores.publishing.versions import StoredVersion
    from pt2hub.wire.lineage import DerivationView

MAX_DERIVATIONS = 200
"""Derivations of an answer in each direction."""


class LineageService:
    """Reads and changes the lineage of versions."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def lineage(self, model: str, number: int, *, depth: int = DEFAULT_DEPTH) -> LineageView:
        """Return what a version is derived from, and what is derived from it.

        What the request may not read is left out, together with what is beyond it.

        Args:
            depth: Generations in each direction.

        Raises:
            NotFound: The model or version does not exist.
        """
        with self._sessions.begin() as session:
            version, store = not_found.require_version(session, model, number), LineageStore(session)
            ancestors, more_above = _walk(
                version.id,
                depth,
                lambda ids, limit: store.parents(ids, limit=limit),
                lambda item: item.parent_id,
            )
            descendants, more_below = _walk(
                version.id,
                depth,
                lambda ids, limit: store.children(ids, limit=limit),
                lambda item: item.version_id,
            )
        return LineageView(model, number, ancestors, descendants, truncated=more_above or more_below)

    def change(
        self, model: str, number: int, *, add: Sequence[str], remove: Sequence[str], by: Actor
    ) -> tuple[DerivationView, ...]:
        """Add and remove parents of a version.

        Args:
            add: Derivations, `relation:parent`; an alias is replaced by the version that it is on.
            remove: Parents as they are shown; missing ones are ignored.

        Returns:
            The derivations of the version afterwards.

        Raises:
            InvalidInput: A derivation is malformed, or there are too many.
            NotFound: A version does not exist.
            LineageCycle: The version would be derived from itself.
        """
        wanted = parse_derivations(add, where="add")
        with self._sessions.begin() as session:
            version, store = not_found.require_version(session, model, number), LineageStore(session)
            store.lock()
            before = store.of(version.id)
            store.remove(version.id, _readable_parents(remove))
            _derive(session, version, wanted, by.principal, where="add")
            if remove and before and not any(automatic for _, automatic in before.values()):
                _note_again(session, version)
            after = store.of(version.id)
            if after != before:
                audit_log.record(
                    session,
                    by,
                    Action.VERSION_LINEAGE,
                    f"{model}@{number}",
                    models=[model],
                    before=_texts(before),
                    after=_texts(after),
                )
            return tuple(item.view for item in store.parents([version.id]))


def _note_again(session: Session, version: StoredVersion) -> None:
    """Record what pt2hub knows by itself of a version whose last parent was removed, as it was before that parent."""
    store = LineageStore(session)
    for artifact in store.artifacts(version.id):
        if store.of(version.id):
            return
        note_retrained(session, artifact)


def check_parents(session: Session, derivations: Sequence[Derivation]) -> None:
    """Check that the parents that a spec names exist.

    Raises:
        NotFound: A version does not exist.
    """
    for index, item in enumerate(derivations):
        _parent(session, item, where=f"derived_from[{index}]")


def check_derivations(session: Session, version: StoredVersion, derivations: Sequence[Derivation]) -> None:
    """Check what a submission says that an existing version is derived from; errors as for `derive_published`."""
    store = LineageStore(session)
    before = store.of(version.id)
    parents = []
    for index, item in enumerate(_unknown(derivations, before)):
        parents.append(_parent_without_cycle(session, version, item, where=f"derived_from[{index}]"))
    kept = {text for text, (_, automatic) in before.items() if not (parents and automatic)}
    if (count := len(kept | {parent.text for parent in parents})) > MAX_PARENTS:
        raise too_many(count, where="derived_from")


def derive_published(
    session: Session,
    version: StoredVersion,
    derivations: Sequence[Derivation],
    *,
    created: bool,
    by: Principal,
) -> tuple[list[str], tuple[str, ...]]:
    """Record what a submission says that its version is derived from; parents from before stay.

    The same content may be submitted again when an alias has moved on, maybe to this very version: an alias says what the
    version was made from only when it is first published.

    Args:
        created: Whether the submission created the version.

    Returns:
        The derivations that are new, and a note on each alias that no longer says anything.

    Raises:
        NotFound: A parent does not exist.
        InvalidInput: The version would have too many parents.
        LineageCycle: The version would be derived from itself.
    """
    if not derivations:
        return [], ()
    store = LineageStore(session)
    store.lock()
    before = store.of(version.id)
    known = {item.parent: None if created else _known_parent(item, before) for item in derivations}
    wanted = [item for item in derivations if known[item.parent] is None]
    _derive(session, version, wanted, by, where="derived_from")
    name = f"{version.model}@{version.number}"
    notes = (
        f"{name} stays derived from {parent}: {alias} was an alias of it when the version was published."
        for alias, parent in known.items()
        if parent is not None
    )
    return _texts(dict(store.of(version.id).items() - before.items())), tuple(notes)


def _unknown(derivations: Sequence[Derivation], before: dict[str, tuple[str, bool]]) -> list[Derivation]:
    """Return the derivations of a version that an earlier submission of it has not made; see `_known_parent`."""
    return [item for item in derivations if _known_parent(item, before) is None]


def _known_parent(item: Derivation, before: dict[str, tuple[str, bool]]) -> str | None:
    """Return the parent that an alias stood for in an earlier submission of the version; None if there is none."""
    if item.reference is None or item.reference.number is not None:
        return None
    return next(
        (
            parent
            for parent, (relation, automatic) in before.items()
            if relation == item.relation
            and not automatic
            and parent.partition("@")[0] == item.reference.model
        ),
        None,
    )


def _derive(
    session: Session,
    version: StoredVersion,
    derivations: Sequence[Derivation],
    by: Principal,
    *,
    where: str,
) -> None:
    """Add derivations to a version while lineage is locked; what pt2hub recorded by itself gives way to them."""
    store = LineageStore(session)
    for index, item in enumerate(derivations):
        place = f"{where}[{index}]"
        parent = _parent_without_cycle(session, version, item, where=place)
        if index == 0:
            store.remove_automatic(version.id)
        known = store.of(version.id)
        if parent.text in known and known[parent.text][0] != item.relation:
            store.remove(version.id, [parent.text])
        store.add(version.id, item.relation, parent, by=by)
    if (count := len(store.of(version.id))) > MAX_PARENTS:
        raise too_many(count, where=where)


def _parent_without_cycle(
    session: Session, version: StoredVersion, item: Derivation, *, where: str
) -> Parent:
    """Return the parent that a derivation of a version names, unless it is derived from the version."""
    parent = _parent(session, item, where=where)
    if parent.id is not None and LineageStore(session).is_ancestor(version.id, of=parent.id):
        raise _cycle(version, parent, where)
    return parent


def _parent(session: Session, item: Derivation, *, where: str) -> Parent:
    """Return the parent that a derivation names; what may not be read does not exist."""
    reference = item.reference
    if reference is None:
        return Parent(item.parent)
    not_found.require_readable(reference.model, where=where)
    number = reference.number
    if number is None:
        model_id = VersionStore(session).model_id(reference.model)
        aliases = AliasStore(session).names(model_id) if model_id is not None else {}
        number = aliases.get(reference.alias or "")
        if number is None:
            raise not_found.no_alias(session, reference.model, reference.alias or "", where=where)
    found = VersionStore(session).by_number(reference.model, number)
    if found is None:
        raise not_found.no_version(session, reference.model, number, where=where)
    return Parent(f"{found.model}@{found.number}", found.model, found.id, found.identity)


def _cycle(version: StoredVersion, parent: Parent, where: str) -> LineageCycle:
    name = f"{version.model}@{version.number}"
    if parent.id == version.id:
        return LineageCycle(
            f"{name} cannot be derived from itself",
            where=where,
            hint="Name the version that it was made from.",
        )
    return LineageCycle(
        f"{name} cannot be derived from {parent.text}, which is derived from it",
        where=where,
        hint=f"pt2hub lineage show {name} shows what is derived from it.",
        context={"version": name, "parent": parent.text},
    )


def _readable_parents(parents: Sequence[str]) -> list[str]:
    """Return the parents to remove without those that the request may not see."""
    return [text for text in parents if external_link(text) or readable().covers(text.partition("@")[0])]


def _texts(derivations: dict[str, tuple[str, bool]]) -> list[str]:
    return [f"{relation}:{parent}" for parent, (relation, _) in sorted(derivations.items())]


def _walk(
    start: int,
    depth: int,
    read: Callable[[Sequence[int], int], list[StoredDerivation]],
    beyond: Callable[[StoredDerivation], int | None],
) -> tuple[tuple[DerivationView, ...], bool]:
    """Follow derivations from a version, a generation at a time, each version once.

    Returns:
        The derivations, nearest first, and whether some are left out.
    """
    found: list[DerivationView] = []
    seen, front = {start}, [start]
    for _ in range(depth):
        items = read(front, MAX_DERIVATIONS - len(found) + 1) if front else []
        found += [item.view for item in items]
        if len(found) > MAX_DERIVATIONS:
            return tuple(found[:MAX_DERIVATIONS]), True
        ids = [id_ for item in items if (id_ := beyond(item)) is not None]
        front = [id_ for id_ in dict.fromkeys(ids) if id_ not in seen]
        seen |= set(front)
    return tuple(found), bool(front and read(front, 1))
