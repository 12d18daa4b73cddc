"""The client: publishing, pulling and loading, and the resources of a server."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast, overload

from pt2hub.client.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias, Unpack

    from torch.export import ExportedProgram
    from torch.nn import Module

    from pt2hub.client import resources
    from pt2hub.client.artifact_resources import Artifacts
    from pt2hub.client.device_login import Devices
    from pt2hub.client.exports.exporter import Exports
    from pt2hub.client.file_resources import Files
    from pt2hub.client.label_resources import Labels
    from pt2hub.client.performance.performance import Performance
    from pt2hub.client.publishing.lineage import Lineage
    from pt2hub.client.publishing.options import ModelOptions, SpecOptions
    from pt2hub.client.publishing.published import Published
    from pt2hub.client.retention_resources import Retention
    from pt2hub.client.token_resources import Tokens
    from pt2hub.client.webhook_resources import Webhooks
    from pt2hub.wire.identities import Identity, MintedToken
    from pt2hub.wire.previews import PublishPreview

    Model: TypeAlias = "Module | ExportedProgram | Callable[..., Any]"


class Client(Connection):
    """A pt2hub server. Nothing is sent before the first method is called.

    Attributes:
        config: Address, token and directories.

    Args:
        config: All settings; read from the environment and `config.toml` where omitted.
        url: Address of another server; a token in `config.toml` is not sent there.
    """

    @cached_property
    def aliases(self) -> resources.Aliases:
        """Movable names on versions."""
        from pt2hub.client.resources import Aliases

        return Aliases(self._transport)

    @cached_property
    def artifacts(self) -> Artifacts:
        """Artifacts, and the resolution of references."""
        from pt2hub.client.artifact_resources import Artifacts

        return Artifacts(self._transport)

    @cached_property
    def blobs(self) -> resources.Blobs:
        """Blobs in storage."""
        from pt2hub.client.resources import Blobs

        return Blobs(self._transport)

    @cached_property
    def exports(self) -> Exports:
        """Exports to other runtimes, and across an air gap."""
        from pt2hub.client.exports.exporter import Exports

        return Exports(self, lambda: self._transport)

    @cached_property
    def files(self) -> Files:
        """Attached files of versions."""
        from pt2hub.client.blobs.cache import BlobCache
        from pt2hub.client.file_resources import Files

        return Files(self._transport, BlobCache(self.config.cache, shared=self.config.shared_cache))

    @cached_property
    def labels(self) -> Labels:
        """Labels of models and versions."""
        from pt2hub.client.label_resources import Labels

        return Labels(self._transport)

    @cached_property
    def lineage(self) -> Lineage:
        """What versions are derived from."""
        from pt2hub.client.publishing.lineage import Lineage

        return Lineage(self._transport)

    @cached_property
    def models(self) -> resources.Models:
        """Models and their descriptions."""
        from pt2hub.client.resources import Models

        return Models(self._transport)

    @cached_property
    def performance(self) -> Performance:
        """Measurements: benchmarking, reporting and comparing."""
        from pt2hub.client.performance.performance import Performance

        return Performance(self._transport)

    @cached_property
    def policies(self) -> resources.Policies:
        """Promotion policies of models."""
        from pt2hub.client.resources import Policies

        return Policies(self._transport)

    @cached_property
    def targets(self) -> resources.Targets:
        """Targets that workers offer or offered."""
        from pt2hub.client.resources import Targets

        return Targets(self._transport)

    @cached_property
    def workers(self) -> resources.Workers:
        """Workers, and what each is doing."""
        from pt2hub.client.resources import Workers

        return Workers(self._transport)

    @cached_property
    def devices(self) -> Devices:
        """Requests of this machine for a token, which a person approves in a browser."""
        from pt2hub.client.device_login import Devices

        return Devices(self._transport)

    def exchange(self, id_token: str) -> MintedToken:
        """Exchange an ID token of a trusted provider for a short-lived token of the server.

        Raises:
            IdTokenRejected: The server does not accept the ID token; each reason has its own code.
            NoGrant: None of the server's rules applies to it.
        """
        from pt2hub.wire.identities import MintedToken

        body = json.dumps({"id_token": id_token}).encode()
        return self._transport.ask(MintedToken, "POST", "/api/v1/oidc/token", body)

    @cached_property
    def retention(self) -> Retention:
        """Deletion and retention policies."""
        from pt2hub.client.retention_resources import Retention

        return Retention(self._transport)

    @cached_property
    def tokens(self) -> Tokens:
        """Tokens that this client's token manages."""
        from pt2hub.client.token_resources import Tokens

        return Tokens(self._transport)

    @cached_property
    def webhooks(self) -> Webhooks:
        """Webhooks for models that this client's admin token covers."""
        from pt2hub.client.webhook_resources import Webhooks

        return Webhooks(self._transport)

    @cached_property
    def usage(self) -> resources.Usage:
        """What teams use: versions, stored bytes, builds."""
        from pt2hub.client.resources import Usage

        return Usage(self._transport)

    def whoami(self) -> Identity:
        """Return whom the server takes this client's token for.

        Raises:
            Unauthorized: The token is missing or wrong.
        """
        from pt2hub.wire.identities import Identity

        return self._transport.fetch(Identity, "/api/v1/whoami")

    def check_server(self) -> str:
        """Return the server's release if it is ready: its database and its storage respond.

        Raises:
            Pt2hubError: The server does not answer, or is not ready.
        """
        self._transport.get("/readyz")
        return self._transport.release or "unknown"

    def preview(self, spec: Mapping[str, Any] | str | Path, **options: Unpack[SpecOptions]) -> PublishPreview:
        """Return what publishing a spec would do, with the same errors; arguments as for `publish`.

        Files are uploaded, since the server checks them; nothing else changes.
        """
        from pt2hub.client.publishing.publisher import Publisher

        return Publisher(self._transport, self.config.torchvision_mirror).preview(spec, options)

    @overload
    def publish(
        self, spec: Mapping[str, Any] | str | Path, /, **options: Unpack[SpecOptions]
    ) -> Published: ...

    @overload
    def publish(
        self,
        model: Model,
        /,
        args: Sequence[Any] = ...,
        kwargs: Mapping[str, Any] | None = ...,
        **options: Unpack[ModelOptions],
    ) -> Published: ...

    def publish(
        self,
        source: object,
        /,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Published:
        """Publish a model from a spec, or a live model of this process.

            publish("resnet18.yaml", weights="retrained.safetensors")
            publish(model, (x,), name="team/model", dynamic_shapes={"x": {0: Dim("batch", max=64)}})

        A live model is exported here with torch.export and not changed; its program, weights and example inputs are
        uploaded unless the server has them. With `code` and `entry`, its source code is uploaded instead of the
        program.

        Args:
            source: A spec (a YAML or JSON file, or a dict), or a live model: a torch.nn.Module in eval mode, a
                plain function, or an exported program.
            args: Example arguments of a live model, for export and measurement. Arguments that are not tensors
                are fixed. An exported program has its own.
            **options: `labels`, `derived_from`, `priority`, `wait`, `on_event` and `progress`, see `options.Options`; for a spec the files
                of `options.SpecOptions`, for a model `name` and the others of `options.ModelOptions`.

        Returns:
            The version and its builds; `wait` follows them. The same content gives the same version.

        Raises:
            UsageError: A field or an argument is invalid, or the model cannot be exported.
            Unauthorized: The token is missing or wrong.
        """
        from pt2hub.client.builds.until import parse_until
        from pt2hub.client.publishing.published import Published
        from pt2hub.client.publishing.publisher import Publisher, check_request

        publisher = Publisher(self._transport, self.config.torchvision_mirror)
        if check_request(source, args, kwargs, options):
            version = publisher.submit_model(source, args, kwargs or {}, cast("ModelOptions", options))
        else:
            version = publisher.submit_spec(cast("Mapping[str, Any]", source), cast("SpecOptions", options))
        if until := parse_until(options.get("wait")):
            version = self.versions.follow(
                version, options.get("on_event"), progress=options.get("progress"), until=until
            )
        return Published.of(version, self.config)
