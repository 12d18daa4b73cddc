"""The single `model.pt2` over a real socket: the bytes that the worker recorded, or a broken connection."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import os
import socket
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from pt2hub import archive
from pt2hub.domain.artifacts import Constants, SingleFile
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.errors import BlobDamaged, CorruptArchive, NotFound, RangeNotSatisfiable
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.wire.problems import from_dict
from support.api_process import ApiProcess, answer
from support.packages import layout, package, safetensors
from support.registry import V4

if TYPE_CHECKING:
    from pathlib import Path


LARGE = 3 << 20
"""Bytes of a tensor, more than are read at a time."""


@dataclass(frozen=True)
class Parts:
    """An artifact's files, and the single file that belongs to them."""

    code: bytes
    weights: bytes
    constants: Constants
    single: SingleFile
    whole: bytes


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """An artifact with large and small constants in another order than the weights', and with a literal."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "built.pt2").write_bytes(package())
    literals = safetensors({"_tensor_constant0": ("I64", (2,), b"L" * 16)})
    result = archive.split(folder / "built.pt2", folder / "code.zip", extra={archive.LITERALS: literals})
    weights = folder / "weights.safetensors"
    tensors = {
        "large": ("F32", (LARGE // 4,), os.urandom(LARGE)),
        **{f"small{number}": ("F32", (5,), os.urandom(20)) for number in range(30)},
        "unused": ("F32", (1,), b"U" * 4),
    }
    weights.write_bytes(safetensors(tensors))
    rows = [(f"small{number}", "float32", (5,), 64 * number) for number in reversed(range(30))]
    table = layout(
        64 * 31 + LARGE + 100,
        *rows,
        ("_tensor_constant0", "int64", (2,), 64 * 30, "extra"),
        ("large", "float32", (LARGE // 4,), 64 * 31),
    )
    constants = replace(table, blob_member=result.blob_member)
    out = folder / "model.pt2"
    blob = archive.blob_chunks(constants, weights, literals)
    single = archive.write_single_file(result.code, result.blob_member, blob, constants.blob_size, out)
    return Parts(result.code.read_bytes(), weights.read_bytes(), constants, single, out.read_bytes())


@pytest.fixture(scope="module")
def path(own_api: ApiProcess, parts: Parts) -> str:
    """Where the single file of a published artifact is."""
    return published(own_api, parts, parts.weights)


def published(own_api: ApiProcess, parts: Parts, weights: bytes, **spec: object) -> str:
    digest = own_api.registry.published(
        own_api.registry.submit(**spec),
        code=parts.code,
        weights_data=weights,
        constants=parts.constants,
        single_file=parts.single,
    )
    return f"/api/v1/artifacts/{digest}/model.pt2"


def layer(own_api: ApiProcess, data: bytes) -> Path:
    """The file that holds a layer."""
    found = own_api.folder / "blobs" / StorageKey.blob(digest_bytes(data)).path
    found.chmod(0o600)
    return found


def left_over(own_api: ApiProcess) -> list[Path]:
    """Temporary files that stay; a client reads the last byte before the server has tidied up."""
    deadline = time.monotonic() + 10
    while (found := list((own_api.folder / "tmp").glob("pt2hub-single-*"))) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def test_the_whole_file_is_the_one_that_was_recorded(own_api: ApiProcess, parts: Parts, path: str) -> None:
    response, body = own_api.ask("GET", path)
    assert response.status == 200
    assert Digest("sha256:" + hashlib.sha256(body).hexdigest()) == parts.single.digest
    assert response.headers["Content-Length"] == str(parts.single.size)
    assert response.headers["ETag"] == f'"{parts.single.digest}"'
    assert response.headers["Content-Disposition"] == f'attachment; filename="resnet18-1-{V4}.pt2"'
    assert response.headers["Accept-Ranges"] == "bytes"
    assert left_over(own_api) == []
    pulled = own_api.registry.sql(
        "SELECT number FROM version_pulls JOIN versions ON versions.id = version_id WHERE pulled_on = current_date"
    )
    assert (1,) in pulled, "retention policies keep what is downloaded in this way"


def test_its_size_is_told_without_assembling_it(own_api: ApiProcess, parts: Parts, path: str) -> None:
    response, body = own_api.ask("HEAD", path)
    assert (response.status, response.headers["Content-Length"], body) == (200, str(parts.single.size), b"")
    known, body = own_api.ask("GET", path, **{"If-None-Match": f'"{parts.single.digest}"'})
    assert (known.status, body) == (304, b"")


@pytest.mark.parametrize("pieces", [2, 7])
def test_ranges_glued_together_are_the_whole(
    own_api: ApiProcess, parts: Parts, path: str, pieces: int
) -> None:
    size = parts.single.size
    edges = [size * number // pieces for number in range(pieces + 1)]
    glued = b""
    for start, stop in itertools.pairwise(edges):
        response, body = own_api.ask("GET", path, Range=f"bytes={start}-{stop - 1}")
        assert (response.status, response.headers["ETag"]) == (206, f'"{parts.single.digest}"')
        assert response.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{size}"
        glued += body
    assert glued == parts.whole


def test_a_suffix_longer_than_the_file_is_the_file(own_api: ApiProcess, parts: Parts, path: str) -> None:
    response, body = own_api.ask("GET", path, Range=f"bytes=-{parts.single.size + 1}")
    assert (response.status, body) == (206, parts.whole)


@pytest.mark.parametrize("asked", ["0-0", "-1", "-30", "100-", "1048575-1048577"])
def test_a_range_is_exact(own_api: ApiProcess, parts: Parts, path: str, asked: str) -> None:
    first, _, last = asked.partition("-")
    start = int(first) if first else parts.single.size - int(last)
    stop = int(last) + 1 if first and last else parts.single.size
    response, body = own_api.ask("GET", path, Range=f"bytes={asked}")
    assert (response.status, body) == (206, parts.whole[start:stop])


def test_a_range_of_another_file_is_answered_with_this_one_whole(
    own_api: ApiProcess, parts: Parts, path: str
) -> None:
    other = digest_bytes(b"another")
    response, body = own_api.ask("GET", path, **{"Range": "bytes=5-", "If-Range": f'"{other}"'})
    assert (response.status, len(body)) == (200, parts.single.size)
    same, body = own_api.ask("GET", path, **{"Range": "bytes=5-", "If-Range": f'"{parts.single.digest}"'})
    assert (same.status, len(body)) == (206, parts.single.size - 5)
    weak, _ = own_api.ask("GET", path, **{"Range": "bytes=5-", "If-Range": f'W/"{parts.single.digest}"'})
    assert weak.status == 200


@pytest.mark.parametrize(("wanted", "status"), [("*", 206), ('"{}"', 206), ('W/"{}"', 412), ('"other"', 412)])
def test_who_asks_for_certain_bytes_gets_those_or_a_problem(
    own_api: ApiProcess, parts: Parts, path: str, wanted: str, status: int
) -> None:
    match = wanted.format(parts.single.digest)
    response, _ = own_api.ask("GET", path, **{"If-Match": match, "Range": "bytes=0-9"})
    assert response.status == status
    assert (response.headers["Content-Type"] == "application/problem+json") == (status == 412)


def test_a_range_beyond_the_end_names_the_length(own_api: ApiProcess, parts: Parts, path: str) -> None:
    with own_api.connect() as connection:
        connection.sendall(own_api.head("GET", path, f"Range: bytes={parts.single.size}-", token=False))
        status, document = answer(connection)
    assert (status, type(from_dict(document))) == (416, RangeNotSatisfiable)
    response, _ = own_api.ask("GET", path, Range=f"bytes={parts.single.size}-")
    assert response.headers["Content-Range"] == f"bytes */{parts.single.size}"
    assert response.headers["Content-Type"] == "application/problem+json"


def test_what_no_artifact_is_has_no_file(own_api: ApiProcess, parts: Parts) -> None:
    for digest in (digest_bytes(b"none"), digest_bytes(parts.weights)):
        with own_api.connect() as connection:
            connection.sendall(own_api.head("GET", f"/api/v1/artifacts/{digest}/model.pt2", token=False))
            status, document = answer(connection)
        assert (status, type(from_dict(document))) == (404, NotFound)


def test_weights_that_are_gone_or_cut_are_an_error_before_the_first_byte(
    own_api: ApiProcess, parts: Parts
) -> None:
    weights = parts.weights[:-4] + b"gone"
    path = published(own_api, parts, weights, checks={"tolerance": 0.01})
    file = layer(own_api, weights)
    file.write_bytes(weights[:-1])
    for method in ("GET", "HEAD"):
        assert own_api.ask(method, path)[0].status == 500
    file.unlink()
    with own_api.connect() as connection:
        connection.sendall(own_api.head("GET", path, token=False))
        status, document = answer(connection)
    error = from_dict(document)
    assert (status, type(error), error.where) == (500, BlobDamaged, digest_bytes(weights))
    assert "pt2hub admin heal" in (error.hint or "")


def test_weights_with_another_header_are_an_error_before_the_first_byte(
    own_api: ApiProcess, parts: Parts
) -> None:
    weights = parts.weights.replace(b'"small3"', b'"small_"')
    path = published(own_api, parts, weights, checks={"tolerance": 0.02})
    with own_api.connect() as connection:
        connection.sendall(own_api.head("GET", path, token=False))
        status, document = answer(connection)
    assert (status, type(from_dict(document))) == (500, CorruptArchive)
    assert from_dict(document).where == "small3"
    assert left_over(own_api) == []


def test_weights_damaged_in_the_middle_break_the_connection_and_never_look_whole(
    own_api: ApiProcess, parts: Parts
) -> None:
    weights = parts.weights[:-4] + b"dama"
    path = published(own_api, parts, weights, checks={"tolerance": 0.03})
    damaged = bytearray(weights)
    damaged[len(weights) // 2] ^= 1
    layer(own_api, weights).write_bytes(damaged)
    for asked in ({}, {"Range": "bytes=100-"}):
        with pytest.raises(http.client.IncompleteRead):
            own_api.ask("GET", path, **asked)
    assert own_api.ask("GET", path, Range="bytes=0-99")[1] == parts.whole[:100]
    assert "digest_mismatch" in own_api.log or "DigestMismatch" in own_api.log
    assert left_over(own_api) == []


def test_who_hangs_up_in_the_middle_leaves_nothing_behind(own_api: ApiProcess, path: str) -> None:
    with own_api.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(own_api.head("GET", path, token=False))
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert left_over(own_api) == []
