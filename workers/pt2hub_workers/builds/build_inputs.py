"""Inputs of a build: the source, the weights and the uploaded example tensors of a version."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pt2hub.domain.digests import Digest
from pt2hub.server.blobs.keys import StorageKey
from pt2hub_workers.operations.retries import retry_outage

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.builds import Claim
    from pt2hub.server.blobs.ports import Storage
    from pt2hub_workers.operations.cancellation import CancellationToken
    from pt2hub_workers.sandbox.workspaces import Workspace


@dataclass(frozen=True, slots=True)
class BuildInputs:
    """Blobs that a version's model is built from.

    Attributes:
        source: The uploaded archive or program, None for a factory.
        modules: The archive with the modules of a program's operators, None for none.
        weights: The version's weights; None until its first build recorded them.
    """

    source: Digest | None
    weights: Digest | None
    examples: dict[str, Digest]
    modules: Digest | None = None

    @classmethod
    def of(cls, claim: Claim, weights: Digest | None) -> BuildInputs:
        """Return the inputs of a claimed version."""
        origin, given = claim.spec["source"], claim.spec["inputs"]
        source = origin.get("program") or origin.get("code")
        modules = origin.get("code") if "program" in origin else None
        examples = {item["name"]: Digest(item["example"]) for item in given if item.get("example")}
        return cls(
            Digest(source) if source else None, weights, examples, Digest(modules) if modules else None
        )

    def fetch(self, workspace: Workspace, storage: Storage, token: CancellationToken) -> dict[str, Any]:
        """Fetch the files into a workspace; return their paths as its process sees them."""

        def fetch(digest: Digest | None, name: str) -> str | None:
            if digest is None:
                return None
            path = workspace.incoming(name)
            retry_outage(lambda: storage.fetch(StorageKey.blob(digest), path), token)
            return workspace.seen(path)

        return {
            "source": fetch(self.source, "source.zip"),
            "modules": fetch(self.modules, "modules.zip"),
            "weights": fetch(self.weights, "weights.safetensors"),
            "examples": {
                name: workspace.seen(path)
                for name, path in self.fetch_examples(workspace.host / "in", storage, token).items()
            },
        }

    def fetch_examples(self, into: Path, storage: Storage, token: CancellationToken) -> dict[str, Path]:
        """Fetch only the example tensors, into a directory of the worker."""
        found = {}
        for index, (name, digest) in enumerate(self.examples.items()):
            found[name] = into / f"example-{index}.safetensors"
            retry_outage(partial(storage.fetch, StorageKey.blob(digest), found[name]), token)
        return found
