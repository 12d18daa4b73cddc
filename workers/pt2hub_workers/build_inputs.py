"""What a process needs to build a version's model: the source, the weights and uploaded example tensors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pt2hub.domain.digests import Digest
from pt2hub.server.blobs.keys import StorageKey
from pt2hub_workers.outages import persisting

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.builds import Claim
    from pt2hub.server.blobs.ports import Storage
    from pt2hub_workers.halting import Halt
    from pt2hub_workers.rooms import Room


@dataclass(frozen=True, slots=True)
class BuildInputs:
    """The blobs of a version that its model is built from.

    Attributes:
        source: The uploaded archive or program, None for a factory.
        weights: The version's weights, None before its first build recorded them.
        examples: Uploaded example tensors by input name.
    """

    source: Digest | None
    weights: Digest | None
    examples: dict[str, Digest]

    @classmethod
    def of(cls, claim: Claim, weights: Digest | None) -> BuildInputs:
        """Return the inputs of a claimed version.

        Args:
            claim: The attempt.
            weights: The version's weights as far as they are known by now.
        """
        origin, given = claim.spec["source"], claim.spec["inputs"]
        source = origin.get("code") or origin.get("program")
        examples = {item["name"]: Digest(item["example"]) for item in given if item.get("example")}
        return cls(Digest(source) if source else None, weights, examples)

    def fetch(self, room: Room, storage: Storage, halt: Halt) -> dict[str, Any]:
        """Fetch the files into a room; return where its process sees them.

        Raises:
            NotFound: One is gone.
            Halted: The attempt was told to stop.
        """

        def fetched(digest: Digest | None, name: str) -> str | None:
            if digest is None:
                return None
            path = room.incoming(name)
            persisting(lambda: storage.fetch(StorageKey.blob(digest), path), halt)
            return room.seen(path)

        return {
            "source": fetched(self.source, "source.zip"),
            "weights": fetched(self.weights, "weights.safetensors"),
            "examples": {
                name: fetched(digest, f"example-{place}.safetensors")
                for place, (name, digest) in enumerate(self.examples.items())
            },
        }

    def fetch_examples(self, into: Path, storage: Storage, halt: Halt) -> dict[str, Path]:
        """Fetch the example tensors alone into a directory of the worker's own."""
        found = {}
        for place, (name, digest) in enumerate(self.examples.items()):
            found[name] = into / f"example-{place}.safetensors"
            persisting(partial(storage.fetch, StorageKey.blob(digest), found[name]), halt)
        return found
