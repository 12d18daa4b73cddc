"""Labels of models and versions: set at publication, and changed later where they may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.audit import Action
from pt2hub.domain.labels import MAX_LABELS, check_key, check_labels, is_fact, note_lookalikes, too_many
from pt2hub.errors import InvalidInput, LabelChanged, LabelImmutable
from pt2hub.server.db.stores.publishing.labels import LabelStore
from pt2hub.server.services import not_found
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.suggestions import suggest_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.principals import Principal
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.publishing.versions import StoredVersion
    from pt2hub.wire.responses import LabelView

_SHOWN = 80


class LabelService:
    """Changes labels."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def of_model(self, model: str) -> tuple[LabelView, ...]:
        """Return the labels of a model itself by key, with who set them.

        Raises:
            NotFound: The model does not exist.
        """
        with self._sessions.begin() as session:
            return LabelStore(session).views(not_found.require_model(session, model), None)

    def change(  # the change's parts, by name
        self,
        model: str,
        number: int | None,
        *,
        put: Mapping[str, str],
        remove: Sequence[str],
        expected: Mapping[str, str | None],
        by: Actor,
    ) -> tuple[LabelView, ...]:
        """Set and remove labels of a version, or of the model itself.

        Args:
            number: Number of the version; None for the model itself.
            put: Values by key; other labels stay.
            remove: Keys; missing ones are ignored.
            expected: Values that the labels must have now, None where they must be missing.

        Returns:
            All labels afterwards, by key.

        Raises:
            InvalidInput: A key or value is malformed, a key is both set and removed, or there are too many labels.
            NotFound: The model or version does not exist.
            LabelChanged: A label does not have the expected value.
            LabelImmutable: A label states a fact, and has another value.
        """
        wanted = check_labels(put)
        gone = {check_key(key) for key in remove}
        for key in expected:
            check_key(key, where="expected")
        if both := sorted(gone & wanted.keys()):
            raise InvalidInput(f"Label {both[0]} is both set and removed", where="labels", hint="Choose one.")
        with self._sessions.begin() as session:
            model_id = not_found.require_model(session, model)
            version = not_found.require_version(session, model, number) if number is not None else None
            version_id, store = version.id if version else None, LabelStore(session)
            now = store.lock(model_id, version_id)
            _check_expected(now, expected)
            _check_facts(now, wanted, gone)
            changed = {key: value for key, value in wanted.items() if now.get(key) != value}
            removed = gone & now.keys()
            if len(now.keys() | changed.keys()) - len(removed) > MAX_LABELS:
                raise too_many(len(now.keys() | changed.keys()) - len(removed))
            store.remove(model_id, version_id, removed)
            store.put(model_id, version_id, changed, by=by.principal)
            _record(session, by, (model, number), now, changed, removed)
            return store.views(model_id, version_id)


def label_published(
    session: Session, version: StoredVersion, labels: Mapping[str, str], *, by: Principal
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Set the labels of a submission.

    The same content may be submitted from another commit: facts stay as they were first written.

    Returns:
        The labels that were set, and a note on each fact that stayed and each other label that changed.
    """
    if not labels:
        return {}, ()
    store, model_id = LabelStore(session), not_found.require_model(session, version.model)
    now = store.lock(model_id, version.id)
    kept = [key for key, value in labels.items() if is_fact(key) and now.get(key, value) != value]
    changed = {key: value for key, value in labels.items() if key not in kept and now.get(key) != value}
    if len(now.keys() | changed.keys()) > MAX_LABELS:
        raise too_many(len(now.keys() | changed.keys()))
    store.put(model_id, version.id, changed, by=by)
    name = f"{version.model}@{version.number}"
    stays = (
        f"Label {key} of {name} stays {now[key][:_SHOWN]}: it states where the version comes from and is set once."
        for key in kept
    )
    changes = (
        f"Label {key} of {name} changed from {now[key][:_SHOWN]} to {value[:_SHOWN]}."
        for key, value in changed.items()
        if key in now
    )
    return changed, (*stays, *changes, *note_lookalikes(changed))


def preview_labels(now: Mapping[str, str], labels: Mapping[str, str], *, name: str) -> Iterator[str]:
    """Yield a note on each label of a submission: whether it would be set or changed, or stay.

    Args:
        now: Labels that the version has; empty for a new one.
        labels: Labels of the submission.
        name: The version, as people read it.
    """
    for key, value in labels.items():
        if now.get(key) == value:
            continue
        if key not in now:
            yield f"Label {key} of {name} would be set to {value[:_SHOWN]}."
        elif is_fact(key):
            yield f"Label {key} of {name} would stay {now[key][:_SHOWN]}: it states where the version comes from and is set once."
        else:
            yield f"Label {key} of {name} would change from {now[key][:_SHOWN]} to {value[:_SHOWN]}."
    yield from note_lookalikes(key for key in labels if key not in now)


def _explain_difference(key: str, now: Mapping[str, str]) -> str:
    near = [] if key in now else suggest_words(key, now)
    if near:
        return f"Did you mean {' or '.join(near)}? Nothing was changed."
    return "Somebody may have changed it in the meantime: read the labels again, then repeat the change."


def _check_expected(now: Mapping[str, str], expected: Mapping[str, str | None]) -> None:
    for key, value in expected.items():
        if now.get(key) == value:
            continue
        found = f"is {now[key][:_SHOWN]!a}" if key in now else "does not exist"
        wanted = "no label" if value is None else f"{value[:_SHOWN]!a}"
        raise LabelChanged(
            f"Label {key} {found}, expected {wanted}",
            where=f"labels.{key}",
            hint=_explain_difference(key, now),
            context={"key": key, "value": now.get(key)},
        )


def _check_facts(now: Mapping[str, str], wanted: Mapping[str, str], gone: set[str]) -> None:
    for key in sorted(now):
        if is_fact(key) and (key in gone or wanted.get(key, now[key]) != now[key]):
            raise LabelImmutable(
                f"Label {key} cannot change: it is {now[key][:_SHOWN]!a}",
                where=f"labels.{key}",
                hint="It states where the version comes from. Use another key for what may change.",
                context={"key": key, "value": now[key]},
            )


def _record(
    session: Session,
    by: Actor,
    subject: tuple[str, int | None],
    now: Mapping[str, str],
    changed: Mapping[str, str],
    removed: set[str],
) -> None:
    if not changed and not removed:
        return
    model, number = subject
    touched = changed.keys() | removed
    audit_log.record(
        session,
        by,
        Action.MODEL_LABEL if number is None else Action.VERSION_LABEL,
        model if number is None else f"{model}@{number}",
        models=[model],
        before={key: now[key] for key in touched if key in now},
        after=dict(changed),
    )
