from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING

import pytest

from pt2hub import errors
from pt2hub.wire.problems import from_dict
from support.server import MAX_BLOB_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

DATA = bytes(range(256)) * 16
DIGEST = "sha256:" + hashlib.sha256(DATA).hexdigest()
PATH = f"/api/v1/blobs/{DIGEST}"


@pytest.fixture
def stored(api: FlaskClient, bearer: dict[str, str]) -> None:
    response = api.put(PATH, data=DATA, headers=bearer)
    assert (response.status_code, response.get_json()) == (201, {"digest": DIGEST, "size": len(DATA)})


@pytest.mark.usefixtures("stored")
def test_bytes_come_back_whole(api: FlaskClient) -> None:
    response = api.get(PATH)
    assert (response.status_code, response.data) == (200, DATA)
    assert response.content_length == len(DATA)
    assert response.headers["ETag"] == f'"{DIGEST}"'
    assert "immutable" in response.headers["Cache-Control"]
    assert api.get(PATH, headers={"If-None-Match": f'"{DIGEST}"'}).status_code == 304


@pytest.mark.usefixtures("stored")
def test_head_tells_the_size_and_sends_nothing(api: FlaskClient) -> None:
    response = api.head(PATH)
    assert (response.status_code, response.content_length, response.data) == (200, len(DATA), b"")


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [("0-0", 0, 1), ("10-19", 10, 20), ("4000-", 4000, 4096), ("-5", 4091, 4096), ("4000-9999", 4000, 4096)],
)
def test_a_range_is_exact(api: FlaskClient, asked: str, start: int, stop: int) -> None:
    response = api.get(PATH, headers={"Range": f"bytes={asked}"})
    assert (response.status_code, response.data) == (206, DATA[start:stop])
    assert response.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(DATA)}"
    assert response.content_length == stop - start


@pytest.mark.usefixtures("stored")
def test_a_range_beyond_the_end_is_416(api: FlaskClient) -> None:
    response = api.get(PATH, headers={"Range": "bytes=4096-"})
    assert response.status_code == 416
    assert response.headers["Content-Range"] == f"bytes */{len(DATA)}"


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("header", ["bytes=0-1,5-6", "lines=0-1", "bytes=x-y", "nonsense"])
def test_other_ranges_are_answered_with_the_whole(api: FlaskClient, header: str) -> None:
    response = api.get(PATH, headers={"Range": header})
    assert (response.status_code, response.data) == (200, DATA)


@pytest.mark.usefixtures("stored")
def test_the_same_upload_again_succeeds(api: FlaskClient, bearer: dict[str, str]) -> None:
    assert api.put(PATH, data=DATA, headers=bearer).status_code == 201


def test_where_clients_cannot_reach_the_storage_an_upload_goes_through_the_api(
    api: FlaskClient, bearer: dict[str, str]
) -> None:
    wanted = {"digest": DIGEST, "size": len(DATA)}
    begun = api.post("/api/v1/uploads", json=wanted, headers=bearer)
    assert begun.status_code == 201
    assert begun.get_json()["request"] == {"method": "PUT", "url": PATH, "headers": {}}
    end = f"/api/v1/uploads/{begun.get_json()['id']}/complete"
    early = api.post(end, json={}, headers=bearer)
    assert (early.status_code, early.get_json(force=True)["code"]) == (409, "upload_incomplete")
    assert api.put(PATH, data=DATA, headers=bearer).status_code == 201
    assert api.post(end, json={}, headers=bearer).get_json()["state"] == "stored"
    again = api.post("/api/v1/uploads", json=wanted, headers=bearer)
    assert (again.status_code, again.get_json()["state"]) == (200, "stored")


def test_other_bytes_than_the_digest_says_are_refused_and_nothing_is_left(
    api: FlaskClient, bearer: dict[str, str], tmp_path: Path
) -> None:
    response = api.put(PATH, data=DATA + b"!", headers=bearer)
    assert response.status_code == 400
    assert isinstance(from_dict(response.get_json(force=True)), errors.DigestMismatch)
    assert api.get(PATH).status_code == 404
    assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]


class Body(io.RawIOBase):
    """An endless body that counts what is taken of it."""

    def __init__(self) -> None:
        self.taken = 0

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # as io.RawIOBase has it
        buffer[:] = b"x" * len(buffer)
        self.taken += len(buffer)
        return len(buffer)

    def readable(self) -> bool:
        return True


def put(api: FlaskClient, body: Body, headers: dict[str, str], **environ: object) -> TestResponse:
    # Put into the environ directly: the test client would measure a body first, by reading it.
    return api.put(PATH, headers=headers, environ_overrides={"wsgi.input": body, **environ})


def test_too_large_an_upload_is_refused_before_a_byte_is_read(
    api: FlaskClient, bearer: dict[str, str]
) -> None:
    body = Body()
    response = put(api, body, bearer, CONTENT_LENGTH=str(MAX_BLOB_BYTES + 1))
    assert response.status_code == 413
    error = from_dict(response.get_json(force=True))
    assert isinstance(error, errors.TooLarge)
    assert error.context == {"limit": MAX_BLOB_BYTES}
    assert body.taken == 0


def test_an_upload_without_a_length_ends_at_the_limit(
    api: FlaskClient, bearer: dict[str, str], tmp_path: Path
) -> None:
    body = Body()
    response = put(api, body, bearer, **{"wsgi.input_terminated": True})
    assert response.status_code == 413
    assert MAX_BLOB_BYTES < body.taken <= 2 * MAX_BLOB_BYTES
    assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]


def test_unknown_blobs_are_not_found(api: FlaskClient) -> None:
    assert api.get(PATH).status_code == api.head(PATH).status_code == 404


@pytest.mark.parametrize("digest", ["sha256:abc", "md5:" + "0" * 32, "sha256:" + "A" * 64, "..%2f..%2fetc"])
def test_what_is_no_digest_is_refused(api: FlaskClient, digest: str) -> None:
    assert api.get(f"/api/v1/blobs/{digest}").status_code in {404, 422}
