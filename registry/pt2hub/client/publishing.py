"""Publishing from the client: send the spec, upload what it names, follow the builds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.client import watching
from pt2hub.client.events import BuildEvent, changes, over
from pt2hub.client.following import Follower, Pace, build_path
from pt2hub.client.options import ModelOptions, SpecOptions, check_options
from pt2hub.client.parts import NOTHING, Parts
from pt2hub.client.peer import JSON_TYPE
from pt2hub.client.pretrained.names import is_name, mentioned
from pt2hub.domain.names import parse_model_name
from pt2hub.errors import InvalidInput, NotFound
from pt2hub.wire.shapes import BuildView, VersionView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pt2hub.client.events import OnEvent
    from pt2hub.client.pretrained.names import Fetched
    from pt2hub.client.transport import Transport
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.shapes import LogView

__all__ = ["BuildEvent", "Pace", "Publisher", "changes", "over"]

YAML_TYPE = "application/yaml"


class Publisher:
    """Everything about versions and builds, over one transport."""

    def __init__(self, transport: Transport, mirror: str | None = None) -> None:
        """Uses a server.

        Args:
            transport: Speaks to it.
            mirror: Where torchvision's weights are fetched from; None for where torchvision says.
        """
        self._transport = transport
        self._mirror = mirror

    def submit(
        self,
        spec: Mapping[str, Any] | str | Path,
        *,
        parts: Parts = NOTHING,
        priority: int = 0,
        progress: bool | None = None,
    ) -> VersionView:
        """Publishes a spec.

        Args:
            spec: A file (YAML or JSON), or the spec itself.
            parts: Files that are uploaded and named in the spec.
            priority: Of the builds; higher comes first.
            progress: Whether the upload is shown; None where somebody watches.

        Raises:
            UsageError: A field is wrong; the error names each one.
            Unauthorized: The token is missing or wrong.
        """
        text = _text(Path(spec)) if isinstance(spec, str | Path) else None
        if text is not None and not parts and not mentioned(text):
            body, content_type = text, YAML_TYPE
        else:
            document = _parsed(Path(spec)) if isinstance(spec, str | Path) else spec
            if parts or (isinstance(document, dict) and is_name(document.get("weights"))):
                upload = partial(self.upload, progress=progress)
                document = parts.named_in(document, upload, partial(self._fetch, progress=progress))
            body, content_type = _as_json(document), JSON_TYPE
        path = f"/api/v1/versions?priority={priority}" if priority else "/api/v1/versions"
        return self._transport.ask(VersionView, "POST", path, body, content_type=content_type)

    def submit_spec(self, spec: Mapping[str, Any] | str | Path, options: SpecOptions) -> VersionView:
        """Publishes a spec with the files among the options; see `Client.publish`."""
        parts, progress = Parts.of(options), options.get("progress")
        if parts.saved:
            watching.announce(f"taking {parts.saved} apart", progress)
        return self.submit(spec, parts=parts, priority=options.get("priority", 0), progress=progress)

    def submit_model(
        self, model: object, args: Sequence[Any], kwargs: Mapping[str, Any], options: ModelOptions
    ) -> VersionView:
        """Publishes a live model; see `Client.publish`. Imports torch.

        Raises:
            BadConfiguration: torch is not installed.
            UsageError: Something of the model or the spec cannot be published.
            Unauthorized: The token is missing or wrong.
        """
        from tempfile import TemporaryDirectory

        from pt2hub.extras import require_torch

        require_torch("Publishing a model")
        from pt2hub.client.tracing import traced

        priority, progress = options.get("priority", 0), options.get("progress")
        if options.get("code") is None:
            watching.announce(f"exporting {options['name']}", progress)
        with TemporaryDirectory(prefix="pt2hub-") as scratch:
            spec, parts = traced(model, args, kwargs, options, Path(scratch))
            return self.submit(spec, parts=parts, priority=priority, progress=progress)

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

    def _fetch(self, name: str, into: Path, *, progress: bool | None) -> Fetched:
        from pt2hub.client.pretrained.fetching import fetch

        return fetch(name, into, mirror=self._mirror, progress=progress)

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

    def follow(
        self, version: VersionView, on_event: OnEvent | None = None, *, timeout: float | None = None
    ) -> VersionView:
        """Waits until every build of a version is final.

        Args:
            version: As `submit` returned it.
            on_event: Called for every change seen, in order.
            timeout: Seconds after which it waits no longer.

        Returns:
            The version as it is then; failed builds carry their error.

        Raises:
            BuildActive: The time is over and a build is not; nothing is cancelled.
        """
        return self._follower().version(version, on_event, timeout=timeout)

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


def check_request(
    source: object, args: Sequence[Any], kwargs: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> bool:
    """Whether a live model is to be published, or else a spec.

    Raises:
        InvalidInput: It is neither, or what comes with it belongs to the other.
    """
    if isinstance(source, Mapping) and any(map(_is_tensor, source.values())):
        raise InvalidInput(
            "A dict of tensors is weights, and no spec",
            where="spec",
            hint="Publish the model itself: pt2hub.publish(model, (x,), name=...). Or save the tensors with "
            "safetensors.torch.save_file, and give the file with a spec: weights=.",
        )
    if not isinstance(source, str | Path | Mapping):
        if not (callable(source) or _is_program(source)):
            raise InvalidInput(
                f"{type(source).__name__} is no spec, and no model",
                where="spec",
                hint="Give a file's path, the spec as a dict, a torch.nn.Module, a function, or an exported program.",
            )
        check_options(options, ModelOptions, "a model")
        _check_arguments(args, kwargs)
        return True
    check_options(options, SpecOptions, "a spec")
    if args or kwargs:
        raise InvalidInput(
            "A spec says its own inputs",
            where="args",
            hint="Give example arguments with a model, or files by name: weights=, code=, program=.",
        )
    return False


def _is_program(source: object) -> bool:
    """Whether it is an exported program, which alone of torch's models cannot be called; torch is not imported."""
    return any(cls.__name__ == "ExportedProgram" for cls in type(source).__mro__)


def _is_tensor(value: object) -> bool:
    return any(cls.__name__ == "Tensor" for cls in type(value).__mro__)


def _check_arguments(args: object, kwargs: object) -> None:
    if not isinstance(args, list | tuple):
        raise InvalidInput(
            f"{type(args).__name__} is no tuple of arguments",
            where="args",
            hint="Write a single one as (x,).",
        )
    if not isinstance(kwargs, Mapping | None) or not all(isinstance(name, str) for name in kwargs or ()):
        raise InvalidInput(
            "The keyword arguments are no dict by name", where="kwargs", hint='Write {"mask": mask}.'
        )


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
        return json.dumps(dict(document)).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidInput(
            f"The spec has no form in JSON: {exc}",
            where="spec",
            hint="Use dicts with text keys, lists, text, numbers, booleans and None.",
        ) from exc
