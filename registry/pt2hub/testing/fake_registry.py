"""`FakeRegistry`: a registry in memory, with the real client over it."""

from __future__ import annotations

import tempfile
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.client.exports.bundle import REFERENCE, Bundle, read_digest, read_document
from pt2hub.domain.artifacts import (
    ARTIFACT_TYPE,
    CODE_TYPE,
    CONFIG_SCHEMA,
    CONFIG_TYPE,
    NO_TENSORS,
    WEIGHTS_TYPE,
    ArtifactConfig,
    Constants,
    Descriptor,
    Environment,
    Manifest,
    NativeCode,
    ProgramKey,
    Signature,
    SingleFile,
    Toolchain,
    VersionIdentity,
)
from pt2hub.domain.attached_files.files import AttachedFile
from pt2hub.domain.attached_files.kinds import kind_of, media_type_of
from pt2hub.domain.attached_files.names import check_name
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import canonical_json, digest_bytes
from pt2hub.domain.names import Reference
from pt2hub.domain.targets import parse_target
from pt2hub.testing.fake_models import FakeModels
from pt2hub.testing.fake_server import FakeServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TOKEN = "pt2_fake"  # noqa: S105  # no secret: it opens this registry only
_POLL_S = 0.02
_EMPTY_TREE = '[1, {"type": null, "context": null, "children_spec": []}]'


class FakeRegistry:
    """A registry in memory that answers resolutions, pulls, locks and alias moves as the real server does.

        with FakeRegistry() as registry:
            registry.add_version("team/net", targets=["torch2.13-cpu-x86_64_v3"])
            registry.client.aliases.move("team/net", "prod", 1, reason="first")
            assert deploy(registry.client) == "team/net@1"

    The client is the real one, with a cache of its own that is deleted at the end. `add_bundle` brings real artifacts, which
    load; those of `add_version` are made up: they are pulled and locked, and do not load.

    Attributes:
        url: Address of the registry.
        token: The token that it takes.
    """

    def __init__(self) -> None:
        self.token = _TOKEN
        self._models = FakeModels()
        self._folder = tempfile.TemporaryDirectory(prefix="pt2hub-fake-")
        self._server: FakeServer | None = None
        self._port = 0
        self.come_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Address of the registry."""
        return f"http://127.0.0.1:{self._port}"

    @cached_property
    def client(self) -> Client:
        """A client of the registry."""
        return Client(ClientConfig(home=Path(self._folder.name), url=self.url, token=self.token))

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables with which `pt2hub.load` and the command line use the registry, and nothing of the user's."""
        return {
            "PT2HUB_URL": self.url,
            "PT2HUB_TOKEN": self.token,
            "PT2HUB_HOME": self._folder.name,
            "PT2HUB_CACHE": str(Path(self._folder.name) / "cache"),
            "PT2HUB_SHARED_CACHE": "",
            "PT2HUB_STORAGE": "",
            "PT2HUB_OFFLINE": "",
        }

    def close(self) -> None:
        """Stop the registry and delete the client's cache."""
        if "client" in self.__dict__:
            self.client.close()
        self.go_away()
        self._folder.cleanup()

    def go_away(self) -> None:
        """Stop answering, as a server that is down; `come_back` ends it."""
        if self._server:
            self._server.is_away = True
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def come_back(self) -> None:
        """Answer again, at the same address, with everything that there was."""
        if self._server is None:
            self._server = FakeServer(self._models, self.token, self._port)
            self._port = self._server.server_port
            thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), daemon=True)
            thread.start()

    def add_bundle(self, path: str | Path) -> list[str]:
        """Add the artifacts of a bundle, which `pt2hub export bundle` wrote; return their references.

        An alias by which one was exported is set.

        Raises:
            CorruptArchive: The bundle is malformed.
        """
        bundle = Bundle.open(Path(path))
        found = []
        for entry in bundle.manifests:
            digest = read_digest(entry["digest"], bundle)
            manifest = read_document(Manifest, bundle.read(digest), bundle)
            for item in (digest, manifest.config.digest, *(layer.digest for layer in manifest.layers)):
                self._models.blobs[item] = b"".join(bundle.chunks(item, 0, bundle.size(item)))
            config = read_document(ArtifactConfig, self._models.blobs[manifest.config.digest], bundle)
            version = config.version
            self._models.add_artifact(version.model, version.number, config.target.name, digest)
            self._set_alias(entry.get(REFERENCE, ""), version.number)
            found.append(f"{version.model}@{version.number}")
        return list(dict.fromkeys(found))

    def add_version(
        self,
        model: str,
        *,
        targets: Sequence[str],
        code: bytes = b"code",
        weights: bytes = NO_TENSORS,
        files: Mapping[str, bytes] | None = None,
    ) -> int:
        """Add a made-up version with an artifact for each target; return its number.

        Args:
            code: Bytes of the code layer.
            weights: Bytes of the weights layer.
            files: Attached files by name.

        Raises:
            InvalidInput: The name of the model, or of a file, is malformed.
            UnknownTarget: The name of a target is malformed.
        """
        number = self._models.next_number(model)
        for target in targets:
            config = _make_up(model, number, target)
            data = canonical_json(encode(config))
            attached = (self._attach(check_name(name), content) for name, content in (files or {}).items())
            layers = (self._store(CODE_TYPE, code), self._store(WEIGHTS_TYPE, weights), *attached)
            manifest = Manifest(ARTIFACT_TYPE, self._store(CONFIG_TYPE, data), layers)
            self._models.blobs[manifest.digest] = manifest.as_bytes()
            self._models.add_artifact(model, number, target, manifest.digest)
        return number

    def yank(self, model: str, number: int, *, reason: str) -> None:
        """Yank a version, as `client.versions.yank` does on a real server.

        Raises:
            NotFound: The model or version does not exist.
            VersionInUse: Aliases point to the version.
            VersionYanked: It is yanked already.
        """
        self._models.yank(model, number, reason)

    def _store(self, media_type: str, data: bytes) -> Descriptor:
        digest = digest_bytes(data)
        self._models.blobs[digest] = data
        return Descriptor(media_type, digest, len(data))

    def _attach(self, name: str, data: bytes) -> Descriptor:
        stored = self._store(media_type_of(name), data)
        return AttachedFile(name, kind_of(name), stored.mediaType, stored.digest, stored.size).as_layer()

    def _set_alias(self, reference: str, number: int) -> None:
        alias = Reference.parse(reference).alias if reference else None
        if alias:
            model = reference.partition("@")[0]
            held = {item.name: item.number for item in self._models.aliases(model).aliases}
            self._models.move(model, alias, number, expected=held.get(alias), reason="imported")


def _make_up(model: str, number: int, target_name: str) -> ArtifactConfig:
    """Return the config of an artifact that no build made."""
    target, some = parse_target(target_name), digest_bytes(f"{model}@{number}".encode())
    torch = f"{target.torch}.0"
    return ArtifactConfig(
        schema=CONFIG_SCHEMA,
        version=VersionIdentity(model, number, some, {}, {}, some, some),
        target=target,
        toolchain=Toolchain(torch, "3.11", "none", "glibc 2.17", "fake"),
        environment=Environment("none", target.arch, 1, 0, torch),
        signature=Signature((), (), {}, target.device, _EMPTY_TREE, _EMPTY_TREE),
        constants=Constants("", 0, (), baked=True),
        native=NativeCode(target.arch if target.device == "cpu" else "x86_64", (), (), (), "2.17", ""),
        key=ProgramKey(some, {}),
        single_file=SingleFile(some, 0, ()),
        steps=(),
        verification={},
        provenance={"build": "made up by pt2hub.testing"},
    )
