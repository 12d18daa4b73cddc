"""Clients, the API as it runs in production and a real S3 server, with networks between them that misbehave.

Nothing is lost and nothing is half there: an upload ends with the blob stored whole, or it is as if it had never
been tried, and the next try succeeds.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from pt2hub.client.blobs.partial import count_bytes
from pt2hub.domain.digests import hex_of
from pt2hub.errors import DigestMismatch, StorageUnavailable
from pt2hub.server.blobs.s3.storage import PART_BYTES, SINGLE_BYTES
from support.api_process import running_api
from support.hub import MIDDLE, SIZE, Blob, Hub, a_blob, cached, proxies, pulled
from support.postgres import create_database
from support.proxy import CONFLICT
from support.registry import a_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.client.client import Client
    from pt2hub.server.db.embedded import EmbeddedPostgres
    from support.s3 import S3Server


@pytest.fixture(scope="module")
def hub(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: EmbeddedPostgres,
    migrated_template: str,
    s3_server: S3Server,
) -> Iterator[Hub]:
    """The API as it runs in production."""
    database = create_database(postgres, template=migrated_template)
    with proxies(s3_server) as (near, public, settings):
        prefix = settings["PT2HUB_STORAGE"].rpartition("/")[2]
        with running_api(tmp_path_factory.mktemp("api"), database, **settings) as api:
            yield Hub(f"http://127.0.0.1:{api.port}", api.token, near, public, s3_server, prefix)
            assert "X-Amz-Signature" not in api.log


@pytest.fixture
def calm(hub: Hub) -> Iterator[Hub]:
    """The hub; what a test breaks is whole again for the next one."""
    yield hub
    hub.near.faults.clear()
    hub.public.faults.clear()


@pytest.fixture
def client(calm: Hub, tmp_path: Path) -> Iterator[Client]:
    with calm.client(tmp_path / "home") as made:
        yield made


@pytest.fixture
def blob(tmp_path: Path) -> Blob:
    return a_blob(tmp_path)


# -- as it should be -------------------------------------------------------------------------------------


def test_bytes_go_past_the_api_both_ways(calm: Hub, client: Client, blob: Blob) -> None:
    near, up, down = calm.near.up, calm.public.up, calm.public.down
    assert client.blobs.upload(blob.path) == blob.digest
    assert calm.public.up - up > SIZE
    assert pulled(client, blob) == blob.data
    assert calm.public.down - down > SIZE
    assert calm.near.up - near < SIZE / 10
    assert calm.is_stored(blob.digest)
    asked = len(calm.public.requests)
    assert client.blobs.upload(blob.path) == blob.digest
    assert len(calm.public.requests) == asked, "what is stored is not sent again"


def test_a_range_is_answered_where_the_redirect_leads(calm: Hub, client: Client, blob: Blob) -> None:
    client.blobs.upload(blob.path)
    url = f"{calm.url}/api/v1/blobs/{blob.digest}"
    command = ["curl", "-sSL", "--fail", "-r", "1000-1999", url]
    assert subprocess.run(command, capture_output=True, check=True).stdout == blob.data[1000:2000]
    with urllib3.PoolManager() as pool:
        response = pool.request("GET", url, headers={"Range": f"bytes={SIZE - 5}-"})
        assert (response.status, response.data) == (206, blob.data[-5:])
        assert response.headers["Content-Range"] == f"bytes {SIZE - 5}-{SIZE - 1}/{SIZE}"
        response = pool.request("GET", url, headers={"Range": f"bytes={SIZE}-"})
        assert response.status == 416
        response = pool.request("HEAD", url)
        assert (response.status, response.headers["Content-Length"]) == (200, str(SIZE))


def test_attached_files_go_past_the_api_as_all_bytes_do(
    calm: Hub, client: Client, blob: Blob, tmp_path: Path
) -> None:
    card = tmp_path / "README.md"
    card.write_text("# A net")
    up, near = calm.public.up, calm.near.up
    version = client.publish(a_spec(model="files/net"), files={"calibration.bin": blob.path})
    assert calm.public.up - up > SIZE
    client.files.add("files/net", version.number, card)
    assert client.files.get("files/net", version.number, "calibration.bin").read_bytes() == blob.data
    assert calm.near.up - near < SIZE / 10
    url = f"{calm.url}/api/v1/models/files/net/versions/1/files/README.md"
    with urllib3.PoolManager() as pool:
        response = pool.request("GET", url, headers={"Range": "bytes=2-"})
    assert (response.status, response.data) == (206, b"A net")
    assert response.headers["Content-Disposition"].startswith("attachment")


# -- one request -----------------------------------------------------------------------------------------


PASSING: dict[str, dict[str, Any]] = {
    "reset": {"do": "reset", "times": 1, "after": MIDDLE},
    "truncate": {"do": "truncate", "times": 1, "after": MIDDLE},
    "answer lost": {"do": "reset", "times": 1, "down": True},
    "answer cut": {"do": "truncate", "times": 1, "down": True, "after": 20},
    "SlowDown": {"do": "answer", "times": 2},
    "conflict": {"do": "answer", "times": 2, "status": 409, "body": CONFLICT},
    "flip": {"do": "flip", "times": 1, "after": MIDDLE},
    "slow": {"do": "slow", "after": MIDDLE, "rate": 4 << 20},
    "late": {"do": "delay", "after": MIDDLE, "seconds": 0.5},
}


@pytest.mark.parametrize("name", PASSING)
def test_an_upload_endures_what_passes(calm: Hub, client: Client, blob: Blob, name: str) -> None:
    fault = calm.public.fault(on=blob.put, **PASSING[name])
    assert client.blobs.upload(blob.path) == blob.digest
    assert fault.hit >= 1, "or this tests nothing"
    calm.public.faults.clear()
    assert calm.is_stored(blob.digest)
    assert pulled(client, blob) == blob.data


LASTING: dict[str, dict[str, Any]] = {
    "reset": {"do": "reset", "after": MIDDLE},
    "truncate": {"do": "truncate", "after": MIDDLE},
    "SlowDown": {"do": "answer"},
    "conflict": {"do": "answer", "status": 409, "body": CONFLICT},
    "flip": {"do": "flip", "after": MIDDLE},
}


@pytest.mark.usefixtures("hasty")
def test_an_upload_that_fails_leaves_nothing_and_the_next_one_succeeds(calm: Hub, tmp_path: Path) -> None:
    blobs = {name: a_blob(tmp_path) for name in LASTING}

    def fail(name: str) -> StorageUnavailable:
        calm.public.fault(on=blobs[name].put, **LASTING[name])
        with calm.client(tmp_path / name) as client, pytest.raises(StorageUnavailable) as caught:
            client.blobs.upload(blobs[name].path)
        return caught.value

    with ThreadPoolExecutor(len(LASTING)) as pool:
        errors = dict(zip(LASTING, pool.map(fail, LASTING), strict=True))
    for name, error in errors.items():
        assert "The storage, not pt2hub's server," in error.message, name
        assert str(error.where).startswith(calm.public.url), name
        assert error.hint, name
        assert "X-Amz" not in str(error), name
        assert not calm.is_stored(blobs[name].digest), name
        assert not [key for key in calm.listed("blobs") if hex_of(blobs[name].digest) in key], name
    calm.public.faults.clear()
    with calm.client(tmp_path / "home") as client:
        for blob in blobs.values():
            assert client.blobs.upload(blob.path) == blob.digest
            assert calm.is_stored(blob.digest)


@pytest.mark.usefixtures("hasty")
def test_a_storage_that_clients_cannot_reach_is_named_with_the_setting(
    calm: Hub, client: Client, blob: Blob
) -> None:
    with calm.public.refusing(), pytest.raises(StorageUnavailable, match="Connection refused") as caught:
        client.blobs.upload(blob.path)
    assert "PT2HUB_S3_PUBLIC_ENDPOINT_URL" in str(caught.value.hint)
    assert not calm.is_stored(blob.digest)
    assert client.blobs.upload(blob.path) == blob.digest


def test_an_api_that_cannot_reach_s3_for_a_moment_is_waited_for(
    calm: Hub, client: Client, blob: Blob
) -> None:
    fault = calm.near.fault("answer", f"^(HEAD|GET|PUT) .*{hex_of(blob.digest)}", times=3)
    assert client.blobs.upload(blob.path) == blob.digest
    assert fault.hit == 3
    assert calm.is_stored(blob.digest)


def test_what_is_large_goes_in_parts_through_the_same_api(calm: Hub, client: Client, tmp_path: Path) -> None:
    large = a_blob(tmp_path, SINGLE_BYTES + 1)
    fault = calm.public.fault("reset", "^PUT .*partNumber=3", times=1, after=MIDDLE)
    asked = calm.public.asked("^PUT .*incoming/")
    assert client.blobs.upload(large.path) == large.digest
    assert fault.hit == 1
    assert calm.public.asked("^PUT .*incoming/") - asked == -(-len(large.data) // PART_BYTES) + 1
    assert pulled(client, large) == large.data
    assert (calm.listed("incoming"), calm.unfinished()) == ([], [])


# -- downloads -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        {"do": "reset", "down": True, "after": MIDDLE},  # each time, and each time more is there
        {"do": "truncate", "down": True, "after": MIDDLE},
        {"do": "answer", "times": 2},
        {"do": "answer", "times": 1, "status": 403, "body": b"<Error><Code>AccessDenied</Code></Error>"},
        {"do": "slow", "down": True, "after": MIDDLE, "rate": 4 << 20},
        {"do": "delay", "down": True, "after": MIDDLE, "seconds": 0.5},
    ],
    ids=lambda fault: f"{fault['do']} {fault.get('status', '')}".strip(),
)
def test_a_download_goes_on_to_its_end(calm: Hub, client: Client, blob: Blob, fault: dict[str, Any]) -> None:
    client.blobs.upload(blob.path)
    befell = calm.public.fault(on=blob.get, **fault)
    assert pulled(client, blob) == blob.data
    assert befell.hit >= 1
    assert len(cached(client)) == 2  # the file and what is known of it


PULLING = """
import sys
from pathlib import Path
from pt2hub.client.blobs.cache import BlobCache
from pt2hub.client.http.transport import Transport
url, folder, digest, size = sys.argv[1:5]
transport = Transport(url)
BlobCache(Path(folder)).get(digest, int(size), lambda: transport.blob(f"/api/v1/blobs/{digest}", int(size)))
"""


def test_after_a_kill_in_the_middle_only_what_is_missing_comes_from_s3(
    calm: Hub, client: Client, tmp_path: Path
) -> None:
    blob = a_blob(tmp_path, 48 << 20)
    size = len(blob.data)
    client.blobs.upload(blob.path)
    slow = calm.public.fault("slow", blob.get, down=True, rate=4 << 20)
    command = [sys.executable, "-c", PULLING, calm.url, str(client.config.cache), blob.digest, str(size)]
    down = calm.public.down
    with subprocess.Popen(command) as process:
        until = time.monotonic() + 60
        while calm.public.down - down < size // 2 and time.monotonic() < until:
            time.sleep(0.02)
        process.kill()
    there = sum(count_bytes(path) for path in (client.config.cache / "partial").iterdir() if path.is_dir())
    assert size // 4 < there < size
    assert slow.hit > 4, "several connections"
    calm.public.faults.clear()
    time.sleep(0.2)  # what was under way
    down = calm.public.down
    assert pulled(client, blob) == blob.data
    assert size - there <= calm.public.down - down < size - there + (1 << 20)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("fault", "refusal"),
    [
        ({"do": "answer"}, StorageUnavailable),
        ({"do": "flip", "down": True, "after": MIDDLE, "times": 1}, DigestMismatch),
    ],
    ids=["SlowDown", "flip"],
)
def test_a_download_that_fails_leaves_no_file_and_the_next_one_succeeds(
    calm: Hub, client: Client, blob: Blob, fault: dict[str, Any], refusal: type[Exception]
) -> None:
    client.blobs.upload(blob.path)
    befell = calm.public.fault(on=blob.get, **fault)
    with pytest.raises(refusal) as caught:
        pulled(client, blob)
    assert "X-Amz" not in str(caught.value)
    assert befell.hit >= 1
    assert cached(client) == []
    calm.public.faults.clear()
    assert pulled(client, blob) == blob.data
