"""Command-line arguments that name models, versions or builds."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.client.client import Client
    from pt2hub.wire.responses import BuildView, VersionView

NO_BUILD = "To list the latest builds with their ids: pt2hub builds"
Reference = Annotated[
    str,
    typer.Argument(
        help="team/name for the newest ready version, team/name@3, team/name@prod or team/name@sha256:..."
    ),
]


def model_name(text: str) -> str:
    """Return a model's name from an argument that must not name a version.

    Raises:
        InvalidInput: The text names a version, or is not a model name.
    """
    from pt2hub.domain.names import parse_model_name

    name, separator, selector = text.partition("@")
    if separator:
        raise InvalidInput(
            f"model must be a name without a version, got {text[:200]!r}",
            where="model",
            hint=f"Leave out @{selector[:80]}. To show the version: pt2hub show {text[:200]}",
        )
    return parse_model_name(name)


def number_of(client: Client, text: str) -> tuple[str, int]:
    """Return the model and the number of the version that a reference names.

    Raises:
        InvalidInput: The text is not a reference.
        NotFound: The model or version does not exist.
    """
    from pt2hub.domain.names import Reference as Parsed

    parsed = Parsed.parse(text)
    if parsed.number:
        return parsed.model, parsed.number
    resolved = client.artifacts.resolve(text)
    return resolved.model, resolved.number


def subject_of(client: Client, text: str) -> tuple[str, int | None]:
    """Return the model that a text names, and the number of the version if it names one; errors as for `number_of`."""
    return number_of(client, text) if "@" in text else (model_name(text), None)


def version_of(client: Client, text: str) -> VersionView:
    """Return the version that a reference names, with its builds; errors as for `number_of`."""
    model, number = number_of(client, text)
    with add_hint(f"To list its versions: pt2hub versions {model}; to list models: pt2hub models"):
        return client.versions.get(model, number)


@contextmanager
def add_hint(hint: str) -> Iterator[None]:
    """Add a hint to a `NotFound` error of the server that has none."""
    try:
        yield
    except NotFound as exc:
        if exc.hint:
            raise
        raise NotFound(exc.message, where=exc.where, hint=hint, context=exc.context) from exc


def build_of(client: Client, text: str, target: str | None, *, otherwise: str = "") -> str:
    """Return the id of the build that an id, or a version and a target, name.

    Args:
        text: The id of a build, or a version.
        target: Needed if the version has several builds.
        otherwise: An alternative to choosing a target, for the hint.

    Raises:
        NotFound: The version has no such build.
        InvalidInput: The version has several builds.
    """
    if "/" not in text:
        return text
    version = any_version(client, text)
    found = [build for build in version.builds if target in (None, build.target)]
    if len(found) == 1:
        return found[0].id
    where = f"{version.model}@{version.number}"
    choices = "; ".join(_choice(build) for build in version.builds)
    if found:
        raise InvalidInput(
            "The version has several builds",
            where=where,
            hint=f"Choose one with --target: {choices}.{otherwise}",
        )
    raise NotFound(
        f"The version has no build for {target}", where=where, hint=f"Its builds: {choices or 'none'}."
    )


def any_version(client: Client, text: str) -> VersionView:
    """Return the version that a reference names, for a model its newest one, ready or not."""
    if "@" in text:
        return version_of(client, text)
    model = model_name(text)
    newest = client.models.get(model).newest
    if newest is None:
        raise NotFound(f"{model} has no version yet", where="model", hint=NO_BUILD)
    return client.versions.get(model, newest)


def _choice(build: BuildView) -> str:
    return f"{build.target} ({build.state})"
