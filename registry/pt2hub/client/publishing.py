"""Publishing from the client: send the spec, upload what it names, follow the builds."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from pt2hub.client.peer import JSON_TYPE
from pt2hub.client.transfers import SMALL, Counted, hashed, meter
from pt2hub.domain.builds import BuildState
from pt2hub.domain.names import parse_model_name
from pt2hub.errors import BadResponse, InvalidInput, NotFound, Pt2hubError, TransientError
from pt2hub.wire.shapes import BuildView, LogView, StepView, VersionView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from pt2hub.client.transport import Transport
    from pt2hub.domain.digests import Digest

    OnEvent: TypeAlias = "Callable[[BuildEvent], None]"

T = TypeVar("T")
YAML_TYPE = "application/yaml"
_POLL_SECONDS = 0.1
_LONGEST_POLL_SECONDS = 1.0
_POLL_GROWTH = 1.3
_PATIENCE_SECONDS = 60.0
"""How long a server may be away while builds are followed; they go on without us."""
_AWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """Something that changed in a build.

    Attributes:
        build: The build after the change.
        step: The step that began, moved or ended; None where the build itself changed.
    """

    build: BuildView
    step: StepView | None = None


class Pace:
    """How long to wait between two looks: short while something moves, longer while nothing does."""

    def __init__(self) -> None:
        """Begins with short pauses."""
        self._pause = _POLL_SECONDS

    def pause(self, *, moved: bool) -> float:
        """Seconds to wait after a look that saw something move, or did not."""
        longer = min(self._pause * _POLL_GROWTH, _LONGEST_POLL_SECONDS)
        self._pause = _POLL_SECONDS if moved else longer
        return self._pause


@dataclass(frozen=True, slots=True)
class _Lines:
    lines: tuple[LogView, ...]


class Publisher:
    """Everything about versions and builds, over one transport."""

    def __init__(self, transport: Transport) -> None:
        """Uses a server."""
        self._transport = transport

    def submit(
        self,
        spec: Mapping[str, Any] | str | Path,
        *,
        weights: Path | None = None,
        progress: bool | None = None,
    ) -> VersionView:
        """Publishes a spec.

        Args:
            spec: A file (YAML or JSON), or the spec itself.
            weights: A safetensors file, uploaded and named in the spec.
            progress: Whether the upload is shown; None where somebody watches.

        Raises:
            UsageError: A field is wrong; the error names each one.
            Unauthorized: The token is missing or wrong.
        """
        if weights is None and isinstance(spec, str | Path):
            body, content_type = _text(Path(spec)), YAML_TYPE
        else:
            document = _parsed(Path(spec)) if isinstance(spec, str | Path) else _fields(spec)
            if weights is not None:
                document["weights"] = self.upload(weights, progress=progress)
            body, content_type = _as_json(document), JSON_TYPE
        return self._transport.ask(VersionView, "POST", "/api/v1/versions", body, content_type=content_type)

    def upload(self, path: Path, *, progress: bool | None = None) -> Digest:
        """Uploads a file, unless the server has its bytes already.

        Args:
            path: The file.
            progress: Whether hashing and sending are shown; None where somebody watches.

        Raises:
            NotFound: There is no such file.
            Unauthorized: The token is missing or wrong.
            TooLarge: The server takes no file of that size.
        """
        try:
            digest = hashed(path, progress)
            address = f"/api/v1/blobs/{digest}"
            if not self._transport.exists(address):
                self._send(path, address, progress)
        except OSError as exc:
            raise NotFound(
                f"The file cannot be read: {exc.strerror or exc}",
                where=str(path),
                hint="Name a file that you may read.",
            ) from exc
        return digest

    def _send(self, path: Path, address: str, progress: bool | None) -> None:
        size = path.stat().st_size
        with path.open("rb") as file, meter(f"uploading {path.name}", size, progress) as seen:
            self._transport.put(address, Counted(file, seen) if size >= SMALL else file, size)

    def version(self, model: str, number: int) -> VersionView:
        """A version and its builds."""
        path = f"/api/v1/models/{parse_model_name(model)}/versions/{number}"
        return self._transport.fetch(VersionView, path)

    def build(self, build_id: str) -> BuildView:
        """A build."""
        return self._transport.fetch(BuildView, _path(build_id))

    def logs(self, build_id: str, *, after: int = 0) -> list[LogView]:
        """Lines of the latest attempt's log after a position."""
        return list(self._transport.fetch(_Lines, f"{_path(build_id)}/logs", {"after": after}).lines)

    def all_logs(self, build_id: str, *, after: int = 0) -> Iterator[LogView]:
        """Every line after a position that is there now, asked for page by page."""
        while lines := self.logs(build_id, after=after):
            yield from lines
            after = lines[-1].seq

    def follow(self, version: VersionView, on_event: OnEvent | None = None) -> VersionView:
        """Waits until every build of a version is final.

        Args:
            version: As `submit` returned it.
            on_event: Called for every change seen, in order.

        Returns:
            The version as it is then; failed builds carry their error.
        """
        seen: dict[str, BuildView] = {}
        pace = Pace()
        while True:
            current = _patiently(lambda: self.version(version.model, version.number))
            events = [event for build in current.builds for event in changes(seen.get(build.id), build)]
            if on_event:
                for event in events:
                    on_event(event)
            if all(over(build) for build in current.builds):
                return current
            seen = {build.id: build for build in current.builds}
            time.sleep(pace.pause(moved=bool(events)))

    def follow_logs(self, build_id: str) -> Iterator[LogView]:
        """The lines of a build's log as they come, until the build is final."""
        after, attempt, pace = 0, 0, Pace()
        while True:
            build = _patiently(lambda: self.build(build_id))
            if build.attempt != attempt:  # a new attempt's log begins again
                after, attempt = 0, build.attempt
            before = after
            for line in self.all_logs(build_id, after=after):
                yield line
                after = line.seq
            if over(build):
                return
            time.sleep(pace.pause(moved=after != before))


def _path(build_id: str) -> str:
    return f"/api/v1/builds/{quote(build_id, safe='')}"


def _patiently(look: Callable[[], T]) -> T:
    """What a look at the server gives, tried again while a restart explains that it fails."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return look()
        except (TransientError, BadResponse) as exc:
            if time.monotonic() > deadline or not _passing(exc):
                raise
            time.sleep(1)


def over(build: BuildView) -> bool:
    """Whether a build can change no more; a state of a newer server counts once the build has an end."""
    try:
        return BuildState(build.state).final
    except ValueError:
        return build.finished_at is not None


def _passing(error: Pt2hubError) -> bool:
    """Whether a restart explains the error: a proxy says so in its own words."""
    return isinstance(error, TransientError) or error.context.get("status") in _AWAY


def changes(before: BuildView | None, after: BuildView) -> Iterator[BuildEvent]:
    """What happened between two looks at a build.

    Args:
        before: The earlier look, None at the first.
        after: The later look.
    """
    if before is None or before.attempt != after.attempt:
        earlier: dict[str, StepView] = {}
    else:
        earlier = {step.name: step for step in before.steps}
    moved = before is None or (before.state, before.attempt) != (after.state, after.attempt)
    ended = over(after) or after.state == BuildState.QUEUED  # handed back: its steps came before
    if moved and not ended:
        yield BuildEvent(after)
    for step in after.steps:
        if earlier.get(step.name) != step:
            yield BuildEvent(after, step)
    if (moved and ended) or (before and not moved and before.note != after.note):
        yield BuildEvent(after)


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise NotFound(
            f"The spec cannot be read: {exc.strerror or exc}",
            where=str(path),
            hint="Name a YAML or JSON file.",
        ) from exc


def _parsed(path: Path) -> dict[str, Any]:
    from pt2hub.wire.documents import parse_document  # it brings yaml, which following builds does without

    try:
        return parse_document(_text(path))  # as the server reads it, so that 1e-3 is a number here too
    except InvalidInput as exc:
        raise InvalidInput(exc.message, where=f"{path}: {exc.where}", hint=exc.hint) from exc


def _fields(spec: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(spec)
    except (TypeError, ValueError) as exc:
        raise InvalidInput(
            f"{type(spec).__name__} is no spec",
            where="spec",
            hint="Give a file's path, or the spec as a dict.",
        ) from exc


def _as_json(document: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(document).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidInput(
            f"The spec has no form in JSON: {exc}",
            where="spec",
            hint="Use dicts with text keys, lists, text, numbers, booleans and None.",
        ) from exc
