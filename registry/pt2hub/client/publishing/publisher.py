"""Publishing: uploads the files of a spec or a live model, and submits the spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.client import output
from pt2hub.client.documents import encode_document, read_bytes, read_document
from pt2hub.client.http.server_info import JSON_TYPE
from pt2hub.client.publishing.attached_files import has_paths
from pt2hub.client.publishing.options import ModelOptions, SpecOptions, check_options
from pt2hub.client.publishing.pretrained.names import is_name, may_contain_name
from pt2hub.client.publishing.spec_files import NOTHING, SpecFiles
from pt2hub.client.publishing.spec_labels import NO_LABELS, SpecLabels
from pt2hub.client.resources import Blobs
from pt2hub.errors import InvalidInput
from pt2hub.wire.previews import PublishPreview
from pt2hub.wire.responses import VersionView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.client.http.transport import Transport
    from pt2hub.client.publishing.pretrained.names import FetchedWeights

YAML_TYPE = "application/yaml"


class Publisher:
    """Publishes specs and live models over one transport.

    Args:
        mirror: Where torchvision's weights are fetched from; None for where torchvision says.
    """

    def __init__(self, transport: Transport, mirror: str | None = None) -> None:
        self._transport = transport
        self._mirror = mirror

    def submit(
        self,
        spec: Mapping[str, Any] | str | Path,
        *,
        parts: SpecFiles = NOTHING,
        labels: SpecLabels = NO_LABELS,
        priority: int = 0,
        progress: bool | None = None,
    ) -> VersionView:
        """Publish a spec.

        Args:
            spec: A file (YAML or JSON), or the spec itself.
            progress: Whether the upload is shown; None where somebody watches.

        Raises:
            UsageError: Fields are invalid; the error names each one.
            Unauthorized: The token is missing or wrong.
        """
        body, content_type = self._encode(spec, parts, labels, progress=progress)
        path = f"/api/v1/versions?priority={priority}" if priority else "/api/v1/versions"
        return self._transport.ask(VersionView, "POST", path, body, content_type=content_type)

    def preview(
        self, spec: Mapping[str, Any] | str | Path, options: SpecOptions | None = None
    ) -> PublishPreview:
        """Return what publishing a spec would do; its files are uploaded, which the check reads.

        Raises:
            UsageError: Fields are invalid; the error names each one.
            Unauthorized: The token is missing or wrong.
        """
        given: SpecOptions = options or {}
        body, content_type = self._encode(
            spec, SpecFiles.of(given), SpecLabels.of(given), progress=given.get("progress")
        )
        path = "/api/v1/versions/preview"
        return self._transport.ask(PublishPreview, "POST", path, body, content_type=content_type)

    def _encode(
        self,
        spec: Mapping[str, Any] | str | Path,
        parts: SpecFiles,
        labels: SpecLabels,
        *,
        progress: bool | None,
    ) -> tuple[bytes, str]:
        """Return the request's body and its type, after the files were uploaded."""
        text = read_bytes(Path(spec), "spec") if isinstance(spec, str | Path) else None
        has_names = text is not None and (may_contain_name(text) or b"files" in text)
        if text is not None and not (parts or labels or has_names):
            return text, YAML_TYPE
        document = read_document(Path(spec), "spec") if isinstance(spec, str | Path) else spec
        named = isinstance(document, dict) and is_name(document.get("weights"))
        if parts or named or has_paths(document):
            folder = Path(spec).parent if isinstance(spec, str | Path) else Path()
            upload = partial(Blobs(self._transport).upload, progress=progress)
            fetch = partial(self._fetch, progress=progress)
            document = parts.named_in(document, upload, fetch, folder=folder)
        return encode_document(labels.added_to(document), "spec"), JSON_TYPE

    def submit_spec(self, spec: Mapping[str, Any] | str | Path, options: SpecOptions) -> VersionView:
        """Publish a spec with the files among the options; see `Client.publish`."""
        parts, progress = SpecFiles.of(options), options.get("progress")
        if parts.saved:
            output.announce(f"splitting {parts.saved}", progress)
        return self.submit(
            spec,
            parts=parts,
            labels=SpecLabels.of(options),
            priority=options.get("priority", 0),
            progress=progress,
        )

    def submit_model(
        self, model: object, args: Sequence[Any], kwargs: Mapping[str, Any], options: ModelOptions
    ) -> VersionView:
        """Publish a live model; see `Client.publish`. Imports torch.

        Raises:
            BadConfiguration: torch is not installed.
            UsageError: Something of the model or the spec cannot be published.
            Unauthorized: The token is missing or wrong.
        """
        from tempfile import TemporaryDirectory

        from pt2hub.extras import require_torch

        require_torch("Publishing a model")
        from pt2hub.client.publishing.live_models import trace

        priority, progress = options.get("priority", 0), options.get("progress")
        if options.get("code") is None or options.get("entry") is None:
            output.announce(f"exporting {options['name']}", progress)
        with TemporaryDirectory(prefix="pt2hub-") as scratch:
            spec, parts = trace(model, args, kwargs, options, Path(scratch))
            parts = replace(parts, attached=options.get("files") or {})
            return self.submit(
                spec, parts=parts, labels=SpecLabels.of(options), priority=priority, progress=progress
            )

    def _fetch(self, name: str, into: Path, *, progress: bool | None) -> FetchedWeights:
        from pt2hub.client.publishing.pretrained.fetch import fetch

        return fetch(name, into, mirror=self._mirror, progress=progress)


def check_request(
    source: object, args: Sequence[Any], kwargs: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> bool:
    """Return whether the source is a live model rather than a spec.

    Raises:
        InvalidInput: The source is neither, or the arguments belong to the other.
    """
    if isinstance(source, Mapping) and any(map(_is_tensor, source.values())):
        raise InvalidInput(
            "Expected a spec, got a dict of tensors",
            where="spec",
            hint="Publish the model itself: pt2hub.publish(model, (x,), name=...). Or save the tensors with "
            "safetensors.torch.save_file, and give the file with a spec: weights=.",
        )
    if not isinstance(source, str | Path | Mapping):
        if not (callable(source) or _is_program(source)):
            raise InvalidInput(
                f"Expected a spec or a model, got {type(source).__name__}",
                where="spec",
                hint="Pass a spec as a path or dict, a torch.nn.Module, a function, or an exported program.",
            )
        check_options(options, ModelOptions, "a model")
        _check_arguments(args, kwargs)
        return True
    check_options(options, SpecOptions, "a spec")
    if args or kwargs:
        raise InvalidInput(
            "args and kwargs cannot be combined with a spec, which has its own inputs",
            where="args",
            hint="Pass example arguments only with a model; a spec takes files: weights=, code=, program=.",
        )
    return False


def _is_program(source: object) -> bool:
    """Return whether a value is an exported program, without importing torch."""
    return any(cls.__name__ == "ExportedProgram" for cls in type(source).__mro__)


def _is_tensor(value: object) -> bool:
    return any(cls.__name__ == "Tensor" for cls in type(value).__mro__)


def _check_arguments(args: object, kwargs: object) -> None:
    if not isinstance(args, list | tuple):
        raise InvalidInput(
            f"args must be a tuple, got {type(args).__name__}",
            where="args",
            hint="Write a single argument as (x,).",
        )
    if not isinstance(kwargs, Mapping | None) or not all(isinstance(name, str) for name in kwargs or ()):
        raise InvalidInput(
            "kwargs must be a dict with text keys", where="kwargs", hint='Write {"mask": mask}.'
        )
