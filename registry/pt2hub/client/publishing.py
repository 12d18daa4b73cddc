"""Publishing from the client: send the spec, upload what it names, follow the builds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.client.events import BuildEvent, changes, over
from pt2hub.client.following import Follower, Pace, build_path
from pt2hub.client.peer import JSON_TYPE
from pt2hub.domain.names import parse_model_name
from pt2hub.errors import InvalidInput, NotFound
from pt2hub.wire.shapes import BuildView, VersionView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pt2hub.client.events import OnEvent
    from pt2hub.client.transport import Transport
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.shapes import LogView

__all__ = ["BuildEvent", "Pace", "Publisher", "changes", "over"]

YAML_TYPE = "application/yaml"


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
        priority: int = 0,
        progress: bool | None = None,
    ) -> VersionView:
        """Publishes a spec.

        Args:
            spec: A file (YAML or JSON), or the spec itself.
            weights: A safetensors file, uploaded and named in the spec.
            priority: Of the builds; higher comes first.
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
        path = f"/api/v1/versions?priority={priority}" if priority else "/api/v1/versions"
        return self._transport.ask(VersionView, "POST", path, body, content_type=content_type)

    def upload(self, path: Path, *, progress: bool | None = None) -> Digest:
        """Uploads a file, unless the server has its bytes already.

        Args:
            path: The file.
            progress: Whether hashing and sending are shown; None where somebody watches.

        Raises:
            NotFound: There is no such file.
            Conflict: The file changed meanwhile.
            Unauthorized: The token is missing or wrong.
            TooLarge: The server takes no file of that size.
            StorageUnavailable: The storage that the server named did not take the bytes.
        """
        from pt2hub.client.uploading import upload  # following builds does without

        return upload(self._transport, path, progress)

    def version(self, model: str, number: int) -> VersionView:
        """A version and its builds."""
        path = f"/api/v1/models/{parse_model_name(model)}/versions/{number}"
        return self._transport.fetch(VersionView, path)

    def build(self, build_id: str) -> BuildView:
        """A build."""
        return self._transport.fetch(BuildView, build_path(build_id))

    def logs(
        self, build_id: str, *, after: int = 0, attempt: int | None = None, summary: bool = False
    ) -> list[LogView]:
        """Lines of an attempt's log after a position.

        Args:
            build_id: The build.
            after: Position of the last line known.
            attempt: Number of the attempt, the latest where omitted.
            summary: Leave the compiler's noise out.
        """
        page = self._follower().page(build_id, after=after, attempt=attempt, summary=summary)
        return list(page.lines)

    def all_logs(
        self, build_id: str, *, after: int = 0, attempt: int | None = None, summary: bool = False
    ) -> Iterator[LogView]:
        """Every line after a position that is there now, asked for page by page; see `logs`."""
        follower = self._follower()
        while True:
            page = follower.page(build_id, after=after, attempt=attempt, summary=summary)
            if not page.lines:
                return
            yield from page.lines
            after = page.lines[-1].seq
            attempt = attempt or page.attempt  # another one may begin meanwhile

    def follow(self, version: VersionView, on_event: OnEvent | None = None) -> VersionView:
        """Waits until every build of a version is final.

        Args:
            version: As `submit` returned it.
            on_event: Called for every change seen, in order.

        Returns:
            The version as it is then; failed builds carry their error.
        """
        return self._follower().version(version, on_event)

    def follow_logs(
        self,
        build_id: str,
        *,
        summary: bool = False,
        on_build: Callable[[BuildView], object] | None = None,
    ) -> Iterator[LogView]:
        """The lines of a build's log as they come, from attempt to attempt, until the build is final.

        Args:
            build_id: The build.
            summary: Leave the compiler's noise out.
            on_build: Called with the build at first and at each change, between the lines.
        """
        return self._follower().log(build_id, summary=summary, on_build=on_build)

    def _follower(self) -> Follower:
        return Follower(self._transport)


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
