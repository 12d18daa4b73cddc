"""Resources of a server with their operations: models, versions, builds, aliases, artifacts, policies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from urllib.parse import urlencode

from pt2hub.client.http.paths import build_path, model_path
from pt2hub.domain.digests import canonical_json
from pt2hub.domain.names import parse_alias
from pt2hub.errors import BuildActive, NotFound, PromotionCheckFailed
from pt2hub.wire.responses import (
    AliasList,
    AliasView,
    BuildPage,
    BuildView,
    FoundVersions,
    ModelPage,
    ModelView,
    TargetList,
    VersionPage,
    VersionView,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pt2hub.client.builds.events import OnEvent
    from pt2hub.client.builds.follower import Follower
    from pt2hub.client.builds.until import Until
    from pt2hub.client.http.transport import Transport
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.performance import PolicyView, PromotionPreview
    from pt2hub.wire.responses import AliasMoves, LogView, TargetView, VersionSummary
    from pt2hub.wire.usage import UsageView
    from pt2hub.wire.workers import WorkerView

Query = Mapping[str, str | int | list[str] | None]
_PAGE = 200
"""Versions of one answer of a search."""
_POLICY_HINT = "Write checks: and metrics: at the top level; `checks: []` alone sets no conditions."


class _Page(Protocol):
    @property
    def next(self) -> str | int | None: ...


P = TypeVar("P", bound=_Page)


class Resource:
    """Base of the resources of a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _pages(self, kind: type[P], path: str, query: Query, *, cursor: str = "after") -> Iterator[P]:
        """Fetch the pages of a list.

        Args:
            query: None leaves a parameter out.
            cursor: The parameter that continues the list.
        """
        given = {name: value for name, value in query.items() if value is not None}
        while True:
            page = self._transport.fetch(kind, path, given)
            yield page
            if page.next is None:
                return
            given[cursor] = page.next


class Models(Resource):
    """Models."""

    def get(self, name: str) -> ModelView:
        """Return a model with its aliases and the numbers of its versions.

        Raises:
            NotFound: The model does not exist; the hint has suggestions.
        """
        return self._transport.fetch(ModelView, model_path(name))

    def describe(self, name: str, text: str) -> ModelView:
        """Set a model's description; no version changes.

        Args:
            text: Plain text of at most 2,000 characters, with line breaks; empty to remove the description.

        Raises:
            InvalidInput: The text is too long, or contains control characters.
            NotFound: The model does not exist; the hint has suggestions.
        """
        # In ASCII, so that the server refuses text that UTF-8 cannot encode.
        body = json.dumps({"description": text}).encode()
        return self._transport.ask(ModelView, "PATCH", model_path(name), body)

    def list(self, search: str | None = None, *, labels: Sequence[str] = ()) -> list[ModelView]:
        """Return the models by name.

        Args:
            search: Only those with this text in their name.
            labels: Only those with all of these labels of their own, `KEY=VALUE` or `KEY`.

        Raises:
            InvalidInput: A label is malformed.
        """
        query: Query = {"search": search or None, "label": [*labels] or None}
        pages = self._pages(ModelPage, "/api/v1/models", query)
        return [model for page in pages for model in page.models]


class Versions(Resource):
    """Versions of models."""

    def get(self, model: str, number: int) -> VersionView:
        """Return a version and its builds."""
        return self._transport.fetch(VersionView, f"{model_path(model)}/versions/{number}")

    def add_target(self, model: str, number: int, target: str) -> VersionView:
        """Add a target to a version, which is built as the version's spec says; nothing changes if it is there already.

        Raises:
            NotFound: The version does not exist.
            UnknownTarget: The target's name is malformed.
            UsageError: The version cannot be built for the target; its program may be newer than the target's torch.
            Unauthorized: The token is missing or wrong.
        """
        path = f"{model_path(model)}/versions/{number}/targets"
        return self._transport.ask(VersionView, "POST", path, canonical_json({"target": target}))

    def follow(
        self,
        version: VersionView,
        on_event: OnEvent | None = None,
        *,
        progress: bool | None = None,
        timeout: float | None = None,
        until: Until = "ready",
    ) -> VersionView:
        """Wait until every build of a version has ended. The builds continue after an interrupt.

        Args:
            version: As `publish` returned it.
            on_event: Called for every change, in order.
            progress: Whether to show the builds on stderr; see `options.Options`.
            timeout: Seconds to wait at most.
            until: `measured` also waits for the measuring jobs, unless a build did not succeed. Each build's
                `measurement` has the result.

        Raises:
            BuildActive: The timeout expired before every build and measuring job ended; nothing is cancelled.
        """
        from pt2hub.client.builds.follower import Follower, time_left
        from pt2hub.client.builds.progress import automatic

        left, follower = time_left(timeout), Follower(self._transport)
        with automatic(False if on_event and progress is None else progress) as shown:
            callbacks: list[OnEvent] = [shown, on_event] if on_event else [shown]
            followed = follower.version(version, callbacks, left=left, measured=until == "measured")
        return replace(followed, created=version.created)

    def yank(self, model: str, number: int, *, reason: str) -> VersionView:
        """Hide a version from names without a version and from alias moves; its number and digests still resolve.

        Args:
            reason: Shown to everybody who pulls it, and kept in the version's history.

        Raises:
            NotFound: The version does not exist.
            VersionInUse: Aliases point to it; move them first.
            VersionYanked: It is yanked already, for another reason or by another token.
            Forbidden: The token does not allow `promote` of the model.
        """
        body = json.dumps({"reason": reason}).encode()
        return self._transport.ask(VersionView, "PUT", _yank_path(model, number), body)

    def unyank(self, model: str, number: int, *, reason: str) -> VersionView:
        """End a version's yank; its history is kept.

        Raises:
            NotFound: The version does not exist.
            Conflict: It is not yanked.
            Forbidden: The token does not allow `promote` of the model.
        """
        path = f"{_yank_path(model, number)}?{urlencode({'reason': reason})}"
        return self._transport.ask(VersionView, "DELETE", path)

    def list(self, model: str, *, limit: int | None = None) -> list[VersionSummary]:
        """Return the versions of a model, newest first.

        Args:
            limit: Maximum number of entries.

        Raises:
            NotFound: The model does not exist.
        """
        pages = self._pages(VersionPage, f"{model_path(model)}/versions", {}, cursor="before")
        return list(islice((item for page in pages for item in page.versions), limit))

    def search(self, *conditions: str, limit: int | None = None) -> Sequence[VersionSummary]:
        """Return the versions of all models that meet all conditions, newest first.

        Args:
            conditions: Such as `alias=prod`, `state=ready`, `target=...`, `publisher=ada`, `model=team/`, `since=7d`, and
                labels: `owner=search`, or `owner` with any value.
            limit: Maximum number of entries.

        Raises:
            InvalidInput: A condition is malformed, or names a label that no version has.
        """
        query: Query = {"where": [*conditions], "limit": min(limit or _PAGE, _PAGE)}
        pages = self._pages(FoundVersions, "/api/v1/versions", query)
        return list(islice((item for page in pages for item in page.versions), limit))


class Builds(Resource):
    """Builds and measuring jobs."""

    def get(self, build_id: str) -> BuildView:
        """Return a build, its attempts, and the steps of the latest one."""
        return self._transport.fetch(BuildView, build_path(build_id))

    def cancel(self, build_id: str) -> BuildView:
        """Cancel a queued or running build; a cancelled one stays as it is.

        Raises:
            BuildOver: The build succeeded or failed.
            NotFound: The build does not exist.
        """
        return self._transport.ask(BuildView, "POST", f"{build_path(build_id)}/cancel")

    def retry(self, build_id: str, priority: int | None = None) -> BuildView:
        """Queue a failed or cancelled build again.

        Args:
            priority: Higher runs first; the build's own if omitted.

        Raises:
            BuildActive: The build is queued or running.
            BuildOver: The build succeeded.
            NotFound: The build does not exist.
        """
        query = "" if priority is None else f"?{urlencode({'priority': priority})}"
        return self._transport.ask(BuildView, "POST", f"{build_path(build_id)}/retry{query}")

    def follow(
        self, builds: Sequence[BuildView], on_event: OnEvent | None = None, *, timeout: float | None = None
    ) -> list[BuildView]:
        """Wait until builds or measuring jobs of any versions have ended.

        Args:
            on_event: Called for every change, in order.
            timeout: Seconds to wait at most.

        Raises:
            BuildActive: The timeout expired before every build ended; nothing is cancelled.
        """
        from pt2hub.client.builds.follower import time_left

        callbacks = [on_event] if on_event else []
        return self._follower().builds([build.id for build in builds], callbacks, left=time_left(timeout))

    def logs(
        self, build_id: str, *, after: int = 0, attempt: int | None = None, summary: bool = False
    ) -> Iterator[LogView]:
        """Yield the present lines of an attempt's log.

        Args:
            after: Only lines after this position.
            attempt: Number of the attempt; the latest if omitted.
            summary: Without the compiler's noise.
        """
        return self._follower().lines(build_id, after=after, attempt=attempt, summary=summary)

    def follow_logs(
        self,
        build_id: str,
        *,
        summary: bool = False,
        on_build: Callable[[BuildView], object] | None = None,
    ) -> Iterator[LogView]:
        """Yield the lines of a build's log as they arrive, across attempts, until the build ends."""
        return self._follower().log(build_id, summary=summary, on_build=on_build)

    def _follower(self) -> Follower:
        from pt2hub.client.builds.follower import Follower

        return Follower(self._transport)

    def list(
        self,
        model: str | None = None,
        *,
        number: int | None = None,
        state: str | None = None,
        target: str | None = None,
        kind: str | None = None,
        limit: int = 50,
    ) -> list[BuildView]:
        """Return builds and measuring jobs, newest first, without their steps.

        Args:
            model: Only this model.
            number: Only this version of the model.
            state: Only this state, one of `domain.builds.BuildState`.
            target: Only this target.
            kind: Only this kind, `build` or `measure`.
            limit: Maximum number of entries.
        """
        query = {"model": model, "number": number, "state": state, "target": target, "kind": kind}
        pages = self._pages(BuildPage, "/api/v1/builds", query)
        return list(islice((item for page in pages for item in page.builds), limit))


class Aliases(Resource):
    """Movable names on versions."""

    def get(self, model: str, name: str) -> AliasView:
        """Return an alias with its history.

        Raises:
            NotFound: The alias never existed.
        """
        return self._transport.fetch(AliasView, _alias_path(model, name))

    def preview(self, model: str, name: str, number: int) -> PromotionPreview:
        """Return which promotion checks a move would pass or fail for this client's token; nothing is moved.

            print(client.aliases.preview("vision/resnet18", "prod", 4))

        Raises:
            NotReady: The version has no artifact.
            NotFound: The version does not exist.
            VersionYanked: The version is yanked.
        """
        from pt2hub.wire.performance import PromotionPreview

        return self._transport.fetch(
            PromotionPreview, f"{_alias_path(model, name)}/preview", {"number": number}
        )

    def move(  # noqa: PLR0913  # each is an option by name
        self,
        model: str,
        name: str,
        number: int,
        *,
        reason: str,
        expected: int | Literal["current"] | None = "current",
        force: bool = False,
        wait: bool = False,
        timeout: float | None = None,
        on_event: OnEvent | None = None,
    ) -> AliasView:
        """Move an alias to a version, creating it if necessary.

        Args:
            expected: The version that the alias is on, None for a new alias. If omitted, its current version: then a
                concurrent move that the caller did not see is not detected.
            force: Move the alias even if the model's policy refuses; requires an admin token.
            wait: Where the policy lacks nothing but measurements of jobs that are under way, wait for these and
                move the alias as soon as it passes, if it still is where it was at first.
            timeout: Seconds after which it waits no longer; as long as they take where omitted.

        Raises:
            AliasMoved: The alias is on another version than expected, or was moved meanwhile.
            PromotionCheckFailed: The model's policy refuses; the error holds the comparisons.
            Forbidden: Only an admin's token may force a move, or the token is no promoter of a protected alias.
            NotReady: The version has no artifact.
            VersionYanked: The version is yanked.
            NotFound: The version does not exist.
            BuildActive: The timeout expired before a measuring job ended; the alias stays.
        """
        known = self._number(model, name) if expected == "current" else expected
        forced = {"force": True} if force else {}  # older servers do not know the field
        body = canonical_json({"number": number, "expected": known, "reason": reason, **forced})
        path = _alias_path(model, name)
        if not wait:
            return self._transport.ask(AliasView, "PUT", path, body)
        from pt2hub.client.builds.follower import time_left

        left = time_left(timeout)
        while True:
            try:
                return self._transport.ask(AliasView, "PUT", path, body)
            except PromotionCheckFailed as refused:
                waits_for = refused.context.get("waits_for")
                if not isinstance(waits_for, list) or not waits_for:
                    raise
                jobs = [str(job) for job in waits_for]
            self._wait_to_move(f"{model}@{name}", jobs, on_event, left)

    def _wait_to_move(
        self, alias: str, jobs: Sequence[str], on_event: OnEvent | None, left: Callable[[], float]
    ) -> None:
        from pt2hub.client.builds.follower import Follower

        try:
            Follower(self._transport).builds(jobs, [on_event] if on_event else [], left=left)
        except BuildActive as late:
            raise BuildActive(
                f"{alias} was not moved. {late.message}",
                where=late.where,
                hint=f"Measuring continues; repeat the move to wait again. {late.hint or ''}".strip(),
                context=late.context,
            ) from late

    def wait(
        self,
        model: str,
        name: str,
        *,
        at: int | None = None,
        after: int | None = None,
        timeout: float | None = None,
    ) -> AliasMoves:
        """Wait until an alias moves, which need not exist yet.

            client.aliases.wait("vision/resnet18", "prod", at=7, timeout=600)

        Args:
            at: Wait until it was moved to this version, or return at once if it is there; any move counts where omitted.
            after: `sequence` of the last known move: later ones count, also those before this call.
            timeout: Seconds to wait at most.

        Returns:
            The moves since the call or since `after`, and where the alias is now. Two moves in quick succession are both
            in it.

        Raises:
            AliasNotMoved: The timeout expired.
            NotFound: The model does not exist.
            Unauthorized: The token was revoked, or has expired.
        """
        from pt2hub.client.alias_waits import wait_for_alias

        path = f"{_alias_path(model, name)}/moves"
        return wait_for_alias(self._transport, path, at=at, after=after, timeout=timeout)

    def remove(self, model: str, name: str, *, reason: str, expected: int) -> AliasView:
        """Remove an alias; its history is kept. Arguments and errors as for `move`."""
        query = urlencode({"expected": expected, "reason": reason})
        return self._transport.ask(AliasView, "DELETE", f"{_alias_path(model, name)}?{query}")

    def _number(self, model: str, name: str) -> int | None:
        """Return the version that an alias names; None if the alias does not exist."""
        try:
            return self.get(model, name).number
        except NotFound:
            return None

    def list(self, model: str) -> list[AliasView]:
        """Return the aliases of a model, by name.

        Raises:
            NotFound: The model does not exist.
        """
        return list(self._transport.fetch(AliasList, f"{model_path(model)}/aliases").aliases)


class Blobs(Resource):
    """Blobs in storage."""

    def upload(self, path: str | Path, *, progress: bool | None = None) -> Digest:
        """Upload a file unless the server has it, and return its digest, which specs use.

        Args:
            progress: Whether to show hashing and sending; None for only on a terminal or in a notebook.

        Raises:
            NotFound: The file does not exist.
            Conflict: The file changed during the upload.
            Unauthorized: The token is missing or wrong.
            TooLarge: The file exceeds the server's limit.
            StorageUnavailable: The storage did not accept the bytes.
        """
        from pt2hub.client.blobs.upload import upload

        return upload(self._transport, Path(path), progress)

    def fetch(
        self, digest: Digest, folder: str | Path, *, models: Sequence[str] = (), progress: bool | None = None
    ) -> Path:
        """Download a blob into a folder, or a manifest of one of some models, and return the file; it is verified.

        Args:
            models: Models that may have a manifest with this digest.
            progress: Whether to show the download; None for only on a terminal or in a notebook.

        Raises:
            NotFound: The server has neither.
            DigestMismatch: The server sent other bytes.
            ServerUnreachable: The server did not answer.
        """
        from pt2hub.client.blobs.mirror import fetch

        return fetch(self._transport, digest, Path(folder), models, progress=progress)


class Targets(Resource):
    """Targets that workers offer or offered."""

    def list(self) -> list[TargetView]:
        """Return the targets and their queues."""
        return list(self._transport.fetch(TargetList, "/api/v1/targets").targets)


class Workers(Resource):
    """Workers, and what each is doing."""

    def list(self, *, gone: bool = False) -> list[WorkerView]:
        """Return the live workers.

        Args:
            gone: Include workers that left or were lost within the last day.
        """
        from pt2hub.wire.workers import WorkerList

        query: dict[str, str | int] = {"gone": "true"} if gone else {}
        return list(self._transport.fetch(WorkerList, "/api/v1/workers", query).workers)


class Usage(Resource):
    """What teams use."""

    def get(self, team: str | None = None) -> UsageView:
        """Return the usage of all teams, or of one, and their limits.

        Raises:
            NotFound: The team has no models.
        """
        from pt2hub.wire.usage import UsageView

        return self._transport.fetch(UsageView, "/api/v1/usage", {"team": team} if team else {})


class Policies(Resource):
    """Promotion policies of models."""

    def get(self, model: str) -> PolicyView:
        """Return the policy of a model; revision 0 if it never had one.

        Raises:
            NotFound: The model does not exist.
        """
        from pt2hub.wire.performance import PolicyView

        return self._transport.fetch(PolicyView, f"{model_path(model)}/policy")

    def set(
        self, model: str, document: Mapping[str, Any] | str | Path, revision: int | None = None
    ) -> PolicyView:
        """Replace the policy of a model.

        Args:
            document: The policy, or a YAML or JSON file of it.
            revision: The expected current revision, 0 if there is no policy. If omitted, the actual one.

        Raises:
            InvalidInput: A field is invalid.
            UnknownMetric: A metric is unknown.
            PolicyChanged: The policy is at another revision; the error names its author.
        """
        from pt2hub.client.documents import encode_document, read_document
        from pt2hub.wire.performance import PolicyView

        if not isinstance(document, Mapping):
            document = read_document(Path(document), "policy", hint=_POLICY_HINT)
        known = self.get(model).revision if revision is None else revision
        body = encode_document({"document": dict(document), "revision": known}, "policy")
        return self._transport.ask(PolicyView, "PUT", f"{model_path(model)}/policy", body)


def _yank_path(model: str, number: int) -> str:
    return f"{model_path(model)}/versions/{number}/yank"


def _alias_path(model: str, name: str) -> str:
    return f"{model_path(model)}/aliases/{parse_alias(name)}"
