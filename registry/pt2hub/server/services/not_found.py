"""Errors for missing models, versions and aliases, and for versions that are not ready, with suggestions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.builds import BuildState, readiness
from pt2hub.domain.names import lacks_team, parse_model_name
from pt2hub.errors import Deleted, InvalidInput, NotFound, NotReady
from pt2hub.server.db.reading import readable
from pt2hub.server.db.stores.builds.builds import BuildStore
from pt2hub.server.db.stores.promotion.aliases import AliasStore
from pt2hub.server.db.stores.publishing.versions import StoredVersion, VersionStore
from pt2hub.server.db.stores.retention.tombstones import Tombstone, TombstoneStore
from pt2hub.server.services.suggestions import suggest_models, suggest_words

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def require_readable(model: str, *, where: str = "model") -> None:
    """Check that the request may read a model, before anything is looked up by its name.

    Raises:
        NotFound: The model may not be read; whether it exists is not said.
    """
    if error := unreadable(model, where=where):
        raise error


def unreadable(model: str, *, where: str = "model") -> NotFound | None:
    """Return the error for a model that may not be read, whether it exists or not; None for one that may."""
    if readable().covers(model):
        return None
    return NotFound(
        f"Model {model} not found",
        where=where,
        hint="pt2hub models lists the models that you may read.",
        context={"suggestions": []},
    )


def require_model(session: Session, name: str) -> int:
    """Return the id of a model.

    Raises:
        InvalidInput: The name is malformed.
        NotFound: The model does not exist; the hint has suggestions.
    """
    model_id = VersionStore(session).model_id(_parse_model(session, name))
    if model_id is None:
        raise no_model(session, name)
    return model_id


def require_version(session: Session, model: str, number: int) -> StoredVersion:
    """Return a version.

    Raises:
        InvalidInput: The name is malformed.
        NotFound: The version or the model does not exist.
    """
    version = VersionStore(session).by_number(_parse_model(session, model), number)
    if version is None:
        raise no_version(session, model, number)
    return version


def _parse_model(session: Session, name: str) -> str:
    """Return a valid model name; where only the team is missing, the error suggests the models of that name."""
    try:
        return parse_model_name(name)
    except InvalidInput as exc:
        if not lacks_team(name):
            raise
        bare = f"/{name}"
        suggestions = suggest_models(bare, VersionStore(session).alike(bare))
        advice = f" Did you mean {' or '.join(suggestions)}?" if suggestions else ""
        raise exc.replace(hint=f"{exc.hint}{advice}", context={"suggestions": suggestions}) from exc


def no_model(session: Session, name: str, *, where: str = "model") -> NotFound:
    """Return the error for a model that does not exist, with suggestions."""
    if tombstone := TombstoneStore(session).named("model", name):
        return _deleted(f"Model {name}", tombstone, where=where)
    suggestions = suggest_models(name, VersionStore(session).alike(name))
    advice = f"Did you mean {' or '.join(suggestions)}? " if suggestions else ""
    return NotFound(
        f"Model {name} not found",
        where=where,
        hint=f"{advice}pt2hub models lists the models, pt2hub publish creates one.",
        context={"suggestions": suggestions},
    )


def no_version(session: Session, model: str, number: int, *, where: str = "version") -> NotFound:
    """Return the error for a version that does not exist, or for its model if that is missing."""
    if tombstone := TombstoneStore(session).version(model, number):
        return _deleted(f"{model}@{number}", tombstone, where=where)
    there = VersionStore(session).numbers(model, around=number)
    if there is None:
        return no_model(session, model, where=where)
    if there.oldest == there.newest:
        hint = f"Its only version is {there.newest}"
    else:
        hint = f"Its versions are {there.oldest} to {there.newest}"
    if there.below and there.above:
        hint += f"; the nearest are {there.below} and {there.above}"
    return NotFound(
        f"Version {model}@{number} not found",
        where=where,
        hint=f"{hint}. pt2hub versions {model} lists them.",
        context={"oldest": there.oldest, "newest": there.newest},
    )


def no_build(session: Session, build_id: str) -> NotFound:
    """Return the error for a build that does not exist or was deleted."""
    return deleted_build(session, build_id) or NotFound(
        f"Build {build_id[:80]!r} not found",
        where="build",
        hint="List the builds with pt2hub builds or GET /api/v1/builds.",
    )


def deleted_build(session: Session, build_id: str) -> Deleted | None:
    """Return the error for a build that was deleted, alone or with its version; None for models that may not be read."""
    tombstone = TombstoneStore(session).of_build(build_id)
    if tombstone is None or not readable().covers(tombstone.model or ""):
        return None
    version = f" of {tombstone.name}" if tombstone.kind == "version" else ""
    return _deleted(f"Build {build_id}{version}", tombstone, where="build")


def no_artifact(session: Session, model: str, digest: str, *, where: str) -> Deleted | None:
    """Return the error for an artifact of a model that was deleted; None where it was not."""
    tombstone = TombstoneStore(session).of_artifact(digest)
    if tombstone is None or tombstone.model != model:
        return None
    return _deleted(f"Artifact {digest} of {model}", tombstone, where=where)


def deleted_artifact(session: Session, digest: str, *, where: str = "artifact") -> Deleted | None:
    """Return the error for a deleted artifact of a model that may be read; None for others."""
    tombstone = TombstoneStore(session).of_artifact(digest)
    if tombstone is None or not readable().covers(tombstone.model or ""):
        return None
    return _deleted(f"Artifact {digest} of {tombstone.model}", tombstone, where=where)


def _deleted(what: str, tombstone: Tombstone, *, where: str) -> Deleted:
    model = tombstone.model or tombstone.name
    there = (
        "pt2hub models lists the models"
        if tombstone.kind == "model"
        else f"pt2hub versions {model} lists the versions"
    )
    return Deleted(
        f"{what} {tombstone.origin}",
        where=where,
        hint=f"{there} that are there. Numbers are not used again.",
        context={
            "model": model,
            "reason": tombstone.reason,
            "by": tombstone.by.name if tombstone.by else None,
            "at": tombstone.at,
            "forced": tombstone.forced,
        },
    )


def no_alias(session: Session, model: str, name: str, *, where: str = "alias") -> NotFound:
    """Return the error for an alias that does not exist or was removed, or for its model if that is missing."""
    versions, store = VersionStore(session), AliasStore(session)
    model_id = versions.model_id(model)
    if model_id is None:
        return no_model(session, model, where=where)
    aliases = store.names(model_id)
    if aliases.get(name, True) is None:
        hint = f"It was removed: pt2hub alias log {model} {name} shows its history."
    else:
        suggestions = suggest_words(name, [other for other, number in aliases.items() if number])
        names = " or ".join(f"{model}@{other}" for other in suggestions)
        hint = f"Did you mean {names}? " if names else ""
        hint += f"pt2hub alias ls {model} lists its aliases."
    there = versions.numbers(model)
    newest = f" The newest version is {model}@{there.newest}." if there else ""
    return NotFound(f"Alias {model}@{name} not found", where=where, hint=f"{hint}{newest}")


def not_ready(session: Session, version: StoredVersion, *, where: str = "version") -> NotReady:
    """Return the error for a version that has no artifact yet, with the state of each build."""
    name = f"{version.model}@{version.number}"
    context = {"model": version.model, "number": version.number}
    states = BuildStore(session).states(version.id)
    failed = [target for target, state in states if state == BuildState.FAILED]
    if failed and len(failed) == len(states):
        what = "its build failed" if len(failed) == 1 else "its builds failed"
        return NotReady(
            f"{name} has no artifact: {what} ({', '.join(failed)})",
            where=where,
            hint=f"pt2hub show {name} shows why; pt2hub retry {name}{' --all' * (len(failed) > 1)} queues it again.",
            context=context,
        )
    return NotReady(
        f"{name} has no artifact yet",
        where=where,
        hint=f"It is {version_state_text(session, version)}. pt2hub show {name} shows details.",
        context=context,
    )


def none_ready(session: Session, model: str, *, where: str = "reference") -> NotFound | NotReady:
    """Return the error for a model without a ready version, or that does not exist."""
    newest = VersionStore(session).newest(model)
    if newest is None:
        return no_model(session, model, where=where)
    name = f"{model}@{newest.number}"
    if newest.yanked:
        return NotReady(
            f"No version of {model} is ready that is not yanked",
            where=where,
            hint=f"The newest, {name}, is yanked: {newest.yanked.reason}. Its number still resolves: use {name}. "
            f"pt2hub versions {model} lists the others.",
            context={"model": model, "number": newest.number},
        )
    return NotReady(
        f"No version of {model} is ready",
        where=where,
        hint=f"The newest, {name}, is {version_state_text(session, newest)}. pt2hub show {name} shows details.",
        context={"model": model, "number": newest.number},
    )


def version_state_text(session: Session, version: StoredVersion) -> str:
    """Return the readiness of a version, and the state of each of its builds."""
    builds = BuildStore(session)
    state = readiness(builds.first_submitted(version.id))
    each = ", ".join(f"{target} {state}" for target, state in builds.states(version.id))
    return f"{state} ({each})"
