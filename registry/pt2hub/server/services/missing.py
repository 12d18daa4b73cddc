"""Errors about what is not there, or not yet, that say what is there and which command shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.builds import BuildState, readiness
from pt2hub.errors import NotFound, NotReady
from pt2hub.server.db.stores.aliases import AliasStore
from pt2hub.server.db.stores.builds import BuildStore
from pt2hub.server.db.stores.versions import StoredVersion, VersionStore
from pt2hub.server.services.near import near_models, near_words

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def no_model(session: Session, name: str, *, where: str = "model") -> NotFound:
    """The error for a model that does not exist; near names are in its hint.

    Args:
        session: Reads the names there are.
        name: The name asked for.
        where: What held it.
    """
    near = near_models(name, VersionStore(session).alike(name))
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return NotFound(
        f"There is no model {name}",
        where=where,
        hint=f"{meant}pt2hub models lists the models, pt2hub publish makes one.",
        context={"near": near},
    )


def no_version(session: Session, model: str, number: int, *, where: str = "version") -> NotFound:
    """The error for a version that does not exist, or for its model if that is what is missing."""
    there = VersionStore(session).numbers(model, near=number)
    if there is None:
        return no_model(session, model, where=where)
    if there.oldest == there.newest:
        hint = f"Its only version is {there.newest}"
    else:
        hint = f"Its versions are {there.oldest} to {there.newest}"
    if there.below and there.above:
        hint += f"; the nearest are {there.below} and {there.above}"
    return NotFound(
        f"There is no version {model}@{number}",
        where=where,
        hint=f"{hint}. pt2hub versions {model} lists them.",
        context={"oldest": there.oldest, "newest": there.newest},
    )


def no_alias(session: Session, model: str, name: str, *, where: str = "alias") -> NotFound:
    """The error for an alias that does not exist or was removed, or for its model if that is what is missing."""
    versions, store = VersionStore(session), AliasStore(session)
    model_id = versions.model_id(model)
    if model_id is None:
        return no_model(session, model, where=where)
    aliases = store.names(model_id)
    if aliases.get(name, True) is None:
        hint = f"It was removed: pt2hub alias {model} {name} shows its history."
    else:
        near = near_words(name, [other for other, number in aliases.items() if number])
        hint = f"Did you mean {' or '.join(f'{model}@{other}' for other in near)}? " if near else ""
        hint += f"pt2hub alias {model} lists its aliases."
    there = versions.numbers(model)
    newest = f" The newest version is {model}@{there.newest}." if there else ""
    return NotFound(f"There is no alias {name} of {model}", where=where, hint=f"{hint}{newest}")


def not_ready(session: Session, version: StoredVersion, *, where: str = "version") -> NotReady:
    """The error for a version that has no artifact yet; the hint says where each build stands."""
    name = f"{version.model}@{version.number}"
    states = BuildStore(session).states(version.id)
    failed = [target for target, state in states if state == BuildState.FAILED]
    if failed and len(failed) == len(states):
        what = "its build failed" if len(failed) == 1 else "its builds failed"
        return NotReady(
            f"{name} has no artifact: {what} ({', '.join(failed)})",
            where=where,
            hint=f"pt2hub show {name} says why; pt2hub retry {name}{' --all' * (len(failed) > 1)} queues it again.",
        )
    return NotReady(
        f"{name} has no artifact yet",
        where=where,
        hint=f"It is {standing(session, version)}. pt2hub show {name} says more.",
    )


def none_ready(session: Session, model: str, *, where: str = "reference") -> NotFound | NotReady:
    """The error for a model of which no version is ready, or which does not exist."""
    newest = VersionStore(session).newest(model)
    if newest is None:
        return no_model(session, model, where=where)
    name = f"{model}@{newest.number}"
    return NotReady(
        f"No version of {model} is ready",
        where=where,
        hint=f"The newest, {name}, is {standing(session, newest)}. pt2hub show {name} says more.",
    )


def standing(session: Session, version: StoredVersion) -> str:
    """Where a version stands, and each of its builds."""
    builds = BuildStore(session)
    state = readiness(builds.first_submitted(version.id))
    each = ", ".join(f"{target} {state}" for target, state in builds.states(version.id))
    return f"{state} ({each})"
