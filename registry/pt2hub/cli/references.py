"""What the arguments of commands name: models, versions, builds."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.client.client import Client
    from pt2hub.wire.shapes import BuildView, VersionView

NO_BUILD = "pt2hub builds lists the latest builds with their ids."
Reference = Annotated[
    str,
    typer.Argument(
        help="team/name for the newest ready version, team/name@3, team/name@prod or team/name@sha256:..."
    ),
]


def model_name(text: str) -> str:
    """A model's name where no version can be meant.

    Raises:
        InvalidInput: A version was named too, or it is no name at all.
    """
    from pt2hub.domain.names import parse_model_name

    name, separator, selector = text.partition("@")
    if separator:
        raise InvalidInput(
            f"{text[:200]!r} names a version where a model belongs",
            where="model",
            hint=f"Leave out @{selector[:80]}; pt2hub show {text[:200]} shows the version.",
        )
    return parse_model_name(name)


def number_of(client: Client, text: str) -> tuple[str, int]:
    """Model and number of the version that a reference names.

    Raises:
        InvalidInput: It is no reference.
        NotFound: It names nothing.
    """
    from pt2hub.domain.names import Reference as Parsed

    parsed = Parsed.parse(text)
    if parsed.number:
        return parsed.model, parsed.number
    resolved = client.resolve(text)
    return resolved.model, resolved.number


def version_of(client: Client, text: str) -> VersionView:
    """The version that a reference names, with its builds; errors as for `number_of`."""
    model, number = number_of(client, text)
    with hinted(f"pt2hub versions {model} lists those that are there, pt2hub models the models."):
        return client.version(model, number)


@contextmanager
def hinted(hint: str) -> Iterator[None]:
    """Says what to do next where the server did not."""
    try:
        yield
    except NotFound as exc:
        if exc.hint:
            raise
        raise NotFound(exc.message, where=exc.where, hint=hint, context=exc.context) from exc


def build_of(client: Client, text: str, target: str | None, *, otherwise: str = "") -> str:
    """The id of a build that is named by it, or by a version and where there are several a target.

    Args:
        client: Asked where a version is named.
        text: A build's id or a version.
        target: Which of the version's builds.
        otherwise: What else may be done where there are several, for the hint.

    Raises:
        NotFound: The version has no such build.
        InvalidInput: It has several.
    """
    if "/" not in text:
        return text
    version = _any_version(client, text)
    found = [build for build in version.builds if target in (None, build.target)]
    if len(found) == 1:
        return found[0].id
    where = f"{version.model}@{version.number}"
    choices = "; ".join(_choice(build) for build in version.builds)
    if found:
        raise InvalidInput(
            "It has several builds", where=where, hint=f"Choose one with --target: {choices}.{otherwise}"
        )
    raise NotFound(f"It has no build for {target}", where=where, hint=f"It has: {choices or 'none'}.")


def _any_version(client: Client, text: str) -> VersionView:
    """The version that a reference names; of a model the newest one, since builds matter before it is ready."""
    if "@" in text:
        return version_of(client, text)
    model = model_name(text)
    newest = client.model(model).newest
    if newest is None:
        raise NotFound(f"{model} has no version yet", where="model", hint=NO_BUILD)
    return client.version(model, newest)


def _choice(build: BuildView) -> str:
    return f"{build.target} ({build.state})"
