"""Publishing from the client: send the spec, upload what it names, follow the builds."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.client.transport import JSON_TYPE
from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import Digest, digest_file
from pt2hub.errors import InvalidInput, NotFound, TransientError
from pt2hub.wire.shapes import BuildView, LogView, StepView, VersionView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from pt2hub.client.transport import Transport

    OnEvent: TypeAlias = "Callable[[BuildEvent], None]"

YAML_TYPE = "application/yaml"
_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 60.0
"""How long a server may be away while builds are followed; they go on without us."""


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """Something that changed in a build.

    Attributes:
        build: The build after the change.
        step: The step that began, moved or ended; None where the build itself changed.
    """

    build: BuildView
    step: StepView | None = None


class Publisher:
    """Everything about versions and builds, over one transport."""

    def __init__(self, transport: Transport) -> None:
        """Uses a server."""
        self._transport = transport

    def submit(self, spec: Mapping[str, Any] | str | Path, *, weights: Path | None = None) -> VersionView:
        """Publishes a spec.

        Args:
            spec: A file (YAML or JSON), or the spec itself.
            weights: A safetensors file, uploaded and named in the spec.

        Raises:
            UsageError: A field is wrong; the error names each one.
            Unauthorized: The token is missing or wrong.
        """
        if weights is None and isinstance(spec, str | Path):
            body, content_type = _text(Path(spec)), YAML_TYPE
        else:
            document = _parsed(Path(spec)) if isinstance(spec, str | Path) else dict(spec)
            if weights is not None:
                document["weights"] = self.upload(weights)
            body, content_type = _as_json(document), JSON_TYPE
        return decode(VersionView, self._transport.post("/api/v1/versions", body, content_type=content_type))

    def upload(self, path: Path) -> Digest:
        """Uploads a file, unless the server has its bytes already.

        Raises:
            NotFound: There is no such file.
            Unauthorized: The token is missing or wrong.
            TooLarge: The server takes no file of that size.
        """
        if not path.is_file():
            raise NotFound("There is no such file", where=str(path))
        digest = digest_file(path)
        address = f"/api/v1/blobs/{digest}"
        if not self._transport.exists(address):
            with path.open("rb") as file:
                self._transport.put(address, file, path.stat().st_size)
        return digest

    def version(self, model: str, number: int) -> VersionView:
        """A version and its builds."""
        return decode(VersionView, self._transport.get(f"/api/v1/models/{model}/versions/{number}"))

    def build(self, build_id: str) -> BuildView:
        """A build."""
        return decode(BuildView, self._transport.get(f"/api/v1/builds/{build_id}"))

    def logs(self, build_id: str, *, after: int = 0) -> list[LogView]:
        """Lines of the latest attempt's log after a position."""
        answer = self._transport.get(f"/api/v1/builds/{build_id}/logs", {"after": after})
        return decode(list[LogView], answer.get("lines") if isinstance(answer, dict) else None, where="lines")

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
        while True:
            current = self._patiently(version)
            for build in current.builds:
                for event in changes(seen.get(build.id), build):
                    if on_event:
                        on_event(event)
                seen[build.id] = build
            if all(BuildState(build.state).final for build in current.builds):
                return current
            time.sleep(_POLL_SECONDS)

    def follow_logs(self, build_id: str) -> Iterator[LogView]:
        """The lines of a build's log as they come, until the build is final."""
        after, attempt = 0, 0
        while True:
            build = self.build(build_id)
            if build.attempt != attempt:  # a new attempt's log begins again
                after, attempt = 0, build.attempt
            for line in self.all_logs(build_id, after=after):
                yield line
                after = line.seq
            if BuildState(build.state).final:
                return
            time.sleep(_POLL_SECONDS)

    def _patiently(self, version: VersionView) -> VersionView:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return self.version(version.model, version.number)
            except TransientError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)


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
    begun = before is None or (before.state, before.attempt) != (after.state, after.attempt)
    final = BuildState(after.state).final
    if begun and not final:
        yield BuildEvent(after)
    for step in after.steps:
        if earlier.get(step.name) != step:
            yield BuildEvent(after, step)
    if begun and final:
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


def _as_json(document: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(document).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidInput(
            f"The spec has no form in JSON: {exc}",
            where="spec",
            hint="Use dicts with text keys, lists, text, numbers, booleans and None.",
        ) from exc
