"""Forms of outputs, from golden values that a server sends and nobody vouches for but their digest."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.exports.golden_outputs import read_output_forms
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import BadResponse, DigestMismatch
from support.artifacts import a_config
from support.blob_sources import MemoryBlob

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import ArtifactConfig
    from pt2hub.domain.digests import Digest


class Server:
    """A transport whose server has these blobs."""

    def __init__(self, blobs: dict[Digest, bytes]) -> None:
        self._blobs = {f"/api/v1/blobs/{digest}": data for digest, data in blobs.items()}

    def read(self, path: str) -> bytes:
        return self._blobs[path]

    def size(self, path: str) -> int:
        return len(self._blobs[path])

    def blob(self, path: str, size: int) -> MemoryBlob:
        return MemoryBlob(self._blobs[path][:size])


def tensors(*names: str) -> bytes:
    """A safetensors file with a float of one element under each name."""
    entries = {
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * index, 4 * index + 4]}
        for index, name in enumerate(names)
    }
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4 * len(names))


def read(golden: bytes, outputs: bytes = b"", *, sent: bytes | None = None) -> Any:
    """The forms, where the server has these golden values, or sends others in their place."""
    from dataclasses import replace

    config: ArtifactConfig = a_config()
    digest = digest_bytes(golden)
    config = replace(config, version=replace(config.version, golden=digest), dtype=None)
    server = Server({digest: golden if sent is None else sent, digest_bytes(outputs): outputs})
    return read_output_forms(server, config)  # type: ignore[arg-type]  # three of a transport's methods


def document(outputs: bytes) -> bytes:
    return json.dumps({"outputs": digest_bytes(outputs)}).encode()


def test_the_forms_are_those_of_the_outputs_of_the_model_itself() -> None:
    outputs = tensors("a/single/0", "a/double/0", "b/single/0")
    assert read(document(outputs), outputs) == [((1,), "float32")]


def test_other_golden_values_than_the_versions_are_refused() -> None:
    outputs = tensors("a/single/0")
    with pytest.raises(DigestMismatch):
        read(b"{}", outputs, sent=document(outputs))


@pytest.mark.parametrize("golden", [b"", b"not json", b"[" * 100_000, b"[]", b"{}", b'{"outputs": "../x"}'])
def test_golden_values_that_are_no_document_are_refused(golden: bytes) -> None:
    with pytest.raises(BadResponse):
        read(golden)


@pytest.mark.parametrize("name", ["weird", "a/single/x", "a/single/-1", "a/b/single/0"])
def test_outputs_with_other_names_are_refused(name: str) -> None:
    outputs = tensors(name)
    with pytest.raises(BadResponse, match="have the name"):
        read(document(outputs), outputs)
