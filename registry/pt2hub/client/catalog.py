"""What a server has: models, versions, builds, and the aliases on them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from pt2hub.domain.digests import canonical_json
from pt2hub.domain.names import parse_alias, parse_model_name
from pt2hub.errors import NotFound
from pt2hub.wire.shapes import (
    AliasList,
    AliasView,
    BuildPage,
    BuildView,
    ModelPage,
    ModelView,
    TargetView,
    VersionPage,
)
from pt2hub.wire.workers import WorkerList

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.client.transport import Transport
    from pt2hub.wire.shapes import VersionSummary
    from pt2hub.wire.workers import WorkerView


@dataclass(frozen=True, slots=True)
class _Targets:
    targets: tuple[TargetView, ...]


class Catalog:
    """Reads lists page by page, describes models, ends and repeats builds, and moves aliases, over one transport."""

    def __init__(self, transport: Transport) -> None:
        """Uses a server."""
        self._transport = transport

    def models(self, search: str | None = None) -> Iterator[ModelView]:
        """Models in the order of their names.

        Args:
            search: A part of the name; all models where omitted.
        """
        query: dict[str, str | int] = {"search": search} if search else {}
        while True:
            page = self._transport.fetch(ModelPage, "/api/v1/models", query)
            yield from page.models
            if page.next is None:
                return
            query["after"] = page.next

    def model(self, name: str) -> ModelView:
        """A model.

        Raises:
            NotFound: There is no such model; near names are in the hint.
        """
        return self._transport.fetch(ModelView, _path(name))

    def describe(self, name: str, text: str) -> ModelView:
        """Says what a model is, for people; see `Client.describe`."""
        body = json.dumps(
            {"description": text}
        ).encode()  # in ASCII: what has no form in UTF-8, the server refuses
        return self._transport.ask(ModelView, "PATCH", _path(name), body)

    def versions(self, model: str) -> Iterator[VersionSummary]:
        """Versions of a model, newest first.

        Raises:
            NotFound: There is no such model.
        """
        query: dict[str, str | int] = {}
        while True:
            page = self._transport.fetch(VersionPage, f"{_path(model)}/versions", query)
            yield from page.versions
            if page.next is None:
                return
            query["before"] = page.next

    def builds(self, **filters: str | int | None) -> Iterator[BuildView]:
        """Builds and measuring jobs, newest first, without their steps.

        Args:
            **filters: Any of `model`, `number`, `state`, `target`, `kind`; None is no filter.
        """
        query = {name: value for name, value in filters.items() if value is not None}
        while True:
            page = self._transport.fetch(BuildPage, "/api/v1/builds", query)
            yield from page.builds
            if page.next is None:
                return
            query["after"] = page.next

    def targets(self) -> tuple[TargetView, ...]:
        """The targets that workers offer or offered."""
        return self._transport.fetch(_Targets, "/api/v1/targets").targets

    def workers(self, *, gone: bool = False) -> tuple[WorkerView, ...]:
        """The workers that live, and what each is doing.

        Args:
            gone: Those too that left or were lost within a day.
        """
        query: dict[str, str | int] = {"gone": "true"} if gone else {}
        return self._transport.fetch(WorkerList, "/api/v1/workers", query).workers

    def cancel(self, build_id: str) -> BuildView:
        """Ends a build that is queued or running; one that was cancelled before stays as it is.

        Raises:
            BuildOver: It has succeeded or failed.
            NotFound: There is no such build.
        """
        return self._transport.ask(BuildView, "POST", f"{_build_path(build_id)}/cancel")

    def retry(self, build_id: str, priority: int | None = None) -> BuildView:
        """Queues a build again that failed or was cancelled.

        Args:
            build_id: The build.
            priority: Higher comes first; the build's own where omitted.

        Raises:
            BuildActive: It is queued or running.
            BuildOver: It has succeeded.
            NotFound: There is no such build.
        """
        query = "" if priority is None else f"?{urlencode({'priority': priority})}"
        return self._transport.ask(BuildView, "POST", f"{_build_path(build_id)}/retry{query}")

    def aliases(self, model: str) -> list[AliasView]:
        """The aliases of a model, by name.

        Raises:
            NotFound: There is no such model.
        """
        return list(self._transport.fetch(AliasList, f"{_path(model)}/aliases").aliases)

    def alias(self, model: str, name: str) -> AliasView:
        """An alias with its history.

        Raises:
            NotFound: There never was such an alias.
        """
        return self._transport.fetch(AliasView, _alias_path(model, name))

    def current(self, model: str, name: str) -> int | None:
        """The version an alias is on now; None where there is no such alias."""
        try:
            return self.alias(model, name).number
        except NotFound:
            return None

    def move(
        self,
        model: str,
        name: str,
        number: int,
        *,
        expected: int | None,
        reason: str,
        force: bool = False,
    ) -> AliasView:
        """Puts an alias on a version.

        Args:
            model: The model's name.
            name: The alias's name.
            number: The version.
            expected: The version it is on now as far as the caller knows, None where it does not exist.
            reason: Why; kept in the history.
            force: Even where the model's policy refuses.

        Raises:
            AliasMoved: It is on another version than expected; the error shows the move that won.
            GateRefused: The model's policy refuses; the error holds the comparisons.
            Forbidden: Only an admin's token may force a move.
            NotReady: The version has no artifact.
            NotFound: There is no such version.
        """
        forced = {"force": True} if force else {}  # an older server knows no such field
        body = canonical_json({"number": number, "expected": expected, "reason": reason, **forced})
        return self._transport.ask(AliasView, "PUT", _alias_path(model, name), body)

    def remove(self, model: str, name: str, *, expected: int, reason: str) -> AliasView:
        """Takes an alias away; its history stays. Arguments and errors as for `move`."""
        query = urlencode({"expected": expected, "reason": reason})
        return self._transport.ask(AliasView, "DELETE", f"{_alias_path(model, name)}?{query}")


def _path(model: str) -> str:
    return f"/api/v1/models/{parse_model_name(model)}"


def _build_path(build_id: str) -> str:
    return f"/api/v1/builds/{quote(build_id, safe='')}"


def _alias_path(model: str, name: str) -> str:
    return f"{_path(model)}/aliases/{parse_alias(name)}"
