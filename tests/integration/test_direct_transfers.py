"""Clients, the API as it runs in production and a real S3 server, with networks between them that misbehave.

Nothing is lost and nothing is half there: an upload ends with the blob stored whole, or it is as if it had never
been tried, and the next try succeeds.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from pt2hub.client.cache import BlobCache
from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.domain.digests import Digest, digest_bytes, hex_of
from pt2hub.errors import Conflict, DigestMismatch, NotFound, StorageUnavailable
from pt2hub.server.blobs.opening import open_storage
from pt2hub.server.blobs.s3.storage import PART_BYTES, SINGLE_BYTES, S3Storage
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import Container, compose
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from support.api_process import running_api
from support.postgres import create_database
from support.proxy import CONFLICT, Proxy
from support.registry import a_spec
from support.s3 import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.db.embedded import EmbeddedPostgres

PART = 5 << 20
SIZE = (6 << 20) + 1234
MIDDLE = 3 << 20
_numbers = count(1)


@dataclass(frozen=True)
class Blob:
    """A file that nobody has uploaded yet."""

    path: Path
    data: bytes

    @property
    def digest(self) -> Digest:
        return digest_bytes(self.data)

    @property
    def put(self) -> str:
        """What a request of a client that stores it looks like."""
        return f"^PUT .*{hex_of(self.digest)}"

    @property
    def get(self) -> str:
        """And one that reads it."""
        return f"^GET .*{hex_of(self.digest)}"


@dataclass(frozen=True)
class Hub:
    """An API over S3, which it and its clients reach through a proxy each."""

    url: str
    token: str
    near: Proxy
    public: Proxy
    server: S3Server
    prefix: str

    def client(self, home: Path) -> Client:
        return Client(ClientConfig(home=home, url=self.url, token=self.token))

    def is_stored(self, digest: Digest) -> bool:
        """Whether the API has it; if not, whether it also takes no spec that names it."""
        with urllib3.PoolManager() as pool:
            status = pool.request("GET", f"{self.url}/api/v1/blobs/{digest}", redirect=False).status
        if status == 307:
            return True
        assert status == 404
        with self.client(Path("none")) as client, pytest.raises(NotFound, match="not uploaded"):
            client.publish(a_spec(weights=digest))
        return False

    def listed(self, folder: str) -> list[str]:
        """Keys in the bucket."""
        found = self.server.client().list_objects_v2(
            Bucket=self.server.bucket, Prefix=f"{self.prefix}/{folder}/"
        )
        return [item["Key"] for item in found.get("Contents", ())]

    def unfinished(self) -> list[str]:
        """Keys of uploads in parts that were neither completed nor aborted."""
        found = self.server.client().list_multipart_uploads(Bucket=self.server.bucket)
        return [item["Key"] for item in found.get("Uploads", ()) if item["Key"].startswith(self.prefix)]


@contextmanager
def proxies(server: S3Server) -> Iterator[tuple[Proxy, Proxy, dict[str, str]]]:
    """A proxy for the API, one for clients, and the settings of a storage behind them."""
    with (
        Proxy(server.endpoint) as near,
        Proxy(server.endpoint) as public,
        pytest.MonkeyPatch.context() as patch,
    ):
        settings = server.environ() | {
            "AWS_ENDPOINT_URL_S3": near.url,
            "AWS_MAX_ATTEMPTS": "3",  # instead of eight: what lasts is to end soon
            "PT2HUB_STORAGE": f"s3://{server.bucket}/{secrets.token_hex(8)}",
            "PT2HUB_S3_PUBLIC_ENDPOINT_URL": public.url,
        }
        for name, value in settings.items():
            patch.setenv(name, value)
        yield near, public, settings


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


def a_blob(folder: Path, size: int = SIZE) -> Blob:
    number = next(_numbers)
    blob = Blob(folder / f"blob{number}", random.Random(number).randbytes(size))
    blob.path.write_bytes(blob.data)
    return blob


@pytest.fixture
def blob(tmp_path: Path) -> Blob:
    return a_blob(tmp_path)


def pulled(client: Client, blob: Blob) -> bytes:
    """The blob, as a pull brings it into the cache."""
    path = f"/api/v1/blobs/{blob.digest}"
    stream = partial(client._transport.stream, path, len(blob.data))
    return BlobCache(client.config.cache).get(blob.digest, len(blob.data), stream).read_bytes()


def cached(client: Client) -> list[Path]:
    return [path for path in (client.config.cache / "blobs").rglob("*") if path.is_file()]


# -- as it should be -------------------------------------------------------------------------------------


def test_bytes_go_past_the_api_both_ways(calm: Hub, client: Client, blob: Blob) -> None:
    near, up, down = calm.near.up, calm.public.up, calm.public.down
    assert client.upload_file(blob.path) == blob.digest
    assert calm.public.up - up > SIZE
    assert pulled(client, blob) == blob.data
    assert calm.public.down - down > SIZE
    assert calm.near.up - near < SIZE / 10
    assert calm.is_stored(blob.digest)
    asked = len(calm.public.requests)
    assert client.upload_file(blob.path) == blob.digest
    assert len(calm.public.requests) == asked, "what is stored is not sent again"


def test_a_range_is_answered_where_the_redirect_leads(calm: Hub, client: Client, blob: Blob) -> None:
    client.upload_file(blob.path)
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
    assert client.upload_file(blob.path) == blob.digest
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


def test_an_upload_that_fails_leaves_nothing_and_the_next_one_succeeds(calm: Hub, tmp_path: Path) -> None:
    blobs = {name: a_blob(tmp_path) for name in LASTING}

    def fail(name: str) -> StorageUnavailable:
        calm.public.fault(on=blobs[name].put, **LASTING[name])
        with calm.client(tmp_path / name) as client, pytest.raises(StorageUnavailable) as caught:
            client.upload_file(blobs[name].path)
        return caught.value

    with ThreadPoolExecutor(len(LASTING)) as pool:  # each waits for ten seconds in all
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
            assert client.upload_file(blob.path) == blob.digest
            assert calm.is_stored(blob.digest)


def test_a_storage_that_clients_cannot_reach_is_named_with_the_setting(
    calm: Hub, client: Client, blob: Blob
) -> None:
    with calm.public.refusing(), pytest.raises(StorageUnavailable, match="Connection refused") as caught:
        client.upload_file(blob.path)
    assert "PT2HUB_S3_PUBLIC_ENDPOINT_URL" in str(caught.value.hint)
    assert not calm.is_stored(blob.digest)
    assert client.upload_file(blob.path) == blob.digest


def test_an_api_that_cannot_reach_s3_for_a_moment_is_waited_for(
    calm: Hub, client: Client, blob: Blob
) -> None:
    fault = calm.near.fault("answer", f"^(HEAD|GET|PUT) .*{hex_of(blob.digest)}", times=3)
    assert client.upload_file(blob.path) == blob.digest
    assert fault.hit == 3
    assert calm.is_stored(blob.digest)


def test_what_is_large_goes_in_parts_through_the_same_api(calm: Hub, client: Client, tmp_path: Path) -> None:
    large = a_blob(tmp_path, SINGLE_BYTES + 1)
    fault = calm.public.fault("reset", "^PUT .*partNumber=3", times=1, after=MIDDLE)
    asked = calm.public.asked("^PUT .*incoming/")
    assert client.upload_file(large.path) == large.digest
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
    client.upload_file(blob.path)
    befell = calm.public.fault(on=blob.get, **fault)
    assert pulled(client, blob) == blob.data
    assert befell.hit >= 1
    assert len(cached(client)) == 2  # the file and what is known of it


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
    client.upload_file(blob.path)
    befell = calm.public.fault(on=blob.get, **fault)
    with pytest.raises(refusal) as caught:
        pulled(client, blob)
    assert "X-Amz" not in str(caught.value)
    assert befell.hit >= 1
    assert cached(client) == []
    calm.public.faults.clear()
    assert pulled(client, blob) == blob.data


# -- in parts --------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path, migrated_url: str) -> ServerConfig:
    return ServerConfig(home=tmp_path / "server", storage="", database_url=migrated_url)


@pytest.fixture
def behind(s3_server: S3Server) -> Iterator[tuple[Proxy, Proxy, dict[str, str]]]:
    with proxies(s3_server) as made:
        yield made


@pytest.fixture
def container(config: ServerConfig, behind: tuple[Proxy, Proxy, dict[str, str]]) -> Iterator[Container]:
    """Services that have everything sent in parts, of the smallest size that S3 takes."""
    _, public, settings = behind
    storage = open_storage(settings["PT2HUB_STORAGE"], public_endpoint=public.url)
    assert isinstance(storage, S3Storage)
    storage.single_bytes, storage.part_bytes = 0, PART
    engine = engines.create(str(config.database_url))
    queue = BuildQueue(str(config.database_url))
    made = compose(engines.Sessions(engine), queue, storage, silence=timedelta(seconds=30))
    yield made
    made.uploads.close()
    engine.dispose()


@pytest.fixture
def parted(
    url: str, container: Container, s3_server: S3Server, behind: tuple[Proxy, Proxy, dict[str, str]]
) -> Hub:
    near, public, settings = behind
    prefix = settings["PT2HUB_STORAGE"].rpartition("/")[2]
    return Hub(url, container.access.create_token("client"), near, public, s3_server, prefix)


@pytest.fixture
def sender(parted: Hub, tmp_path: Path) -> Iterator[Client]:
    with parted.client(tmp_path / "home") as made:
        yield made


@pytest.fixture
def large(tmp_path: Path) -> Blob:
    return a_blob(tmp_path, 2 * PART + 1000)


def is_clean(hub: Hub) -> bool:
    """Whether nothing is left of any upload."""
    return (hub.listed("incoming"), hub.unfinished()) == ([], [])


PART_FAULTS: dict[str, dict[str, Any]] = {
    "reset": {"do": "reset", "times": 1, "after": MIDDLE},
    "truncate": {"do": "truncate", "times": 1, "after": MIDDLE},
    "answer lost": {"do": "reset", "times": 1, "down": True},
    "SlowDown": {"do": "answer", "times": 3},
    "expired": {
        "do": "answer",
        "times": 1,
        "status": 403,
        "body": b"<Error><Code>AccessDenied</Code></Error>",
    },
    "flip": {"do": "flip", "times": 1, "after": MIDDLE},
    "slow": {"do": "slow", "after": MIDDLE, "rate": 4 << 20},
}


@pytest.mark.parametrize("name", PART_FAULTS)
def test_an_upload_in_parts_endures_what_passes(parted: Hub, sender: Client, large: Blob, name: str) -> None:
    fault = parted.public.fault(on="^PUT .*partNumber=[12]", **PART_FAULTS[name])
    assert sender.upload_file(large.path) == large.digest
    assert fault.hit >= 1
    assert parted.public.asked("^PUT ") >= 3
    assert parted.is_stored(large.digest)
    assert pulled(sender, large) == large.data
    assert is_clean(parted)


def test_an_upload_in_parts_that_fails_leaves_nothing_and_the_next_one_succeeds(
    parted: Hub, sender: Client, large: Blob
) -> None:
    parted.public.fault("reset", "^PUT .*partNumber=2", after=MIDDLE)
    with pytest.raises(StorageUnavailable, match="The storage, not pt2hub's server,") as caught:
        sender.upload_file(large.path)
    assert "X-Amz" not in str(caught.value)
    assert not parted.is_stored(large.digest)
    assert is_clean(parted)
    parted.public.faults.clear()
    assert sender.upload_file(large.path) == large.digest
    assert parted.is_stored(large.digest)


@pytest.mark.parametrize(
    "fault",
    [
        {"do": "reset", "on": "^GET .*incoming", "down": True, "after": MIDDLE, "times": 1},
        {"do": "answer", "on": "^GET .*incoming", "times": 2},
        {"do": "answer", "on": "^POST .*uploadId=", "times": 2},
        {"do": "reset", "on": "^POST .*uploadId=", "down": True, "times": 1},
        {"do": "answer", "on": "^(PUT|POST) .*blobs/", "times": 2},
        {"do": "answer", "on": "^(PUT|POST) .*blobs/", "times": 1, "status": 409, "body": CONFLICT},
    ],
    ids=["hashing breaks off", "hashing is refused", "the end", "the end's answer", "copying", "conflict"],
)
def test_the_servers_check_endures_what_passes(
    parted: Hub, sender: Client, large: Blob, fault: dict[str, Any]
) -> None:
    befell = parted.near.fault(**fault)
    assert sender.upload_file(large.path) == large.digest
    assert befell.hit >= 1
    assert pulled(sender, large) == large.data
    assert is_clean(parted)


def test_bytes_that_the_server_finds_to_be_others_are_never_stored(
    parted: Hub, sender: Client, large: Blob
) -> None:
    parted.near.fault("flip", "^GET .*incoming", down=True, after=MIDDLE, times=1)
    with pytest.raises(DigestMismatch) as caught:
        sender.upload_file(large.path)
    assert caught.value.hint
    assert not parted.is_stored(large.digest)
    assert is_clean(parted)
    assert sender.upload_file(large.path) == large.digest


def test_ctrl_c_ends_an_upload_at_once_and_leaves_nothing(parted: Hub, sender: Client, large: Blob) -> None:
    stuck = parted.public.fault("delay", "^PUT .*partNumber=2", after=MIDDLE, seconds=30)

    def interrupt() -> None:
        while not stuck.hit:
            time.sleep(0.02)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sender.upload_file(large.path)
    assert time.monotonic() - began < 10
    thread.join()
    assert is_clean(parted)
    assert not parted.is_stored(large.digest)


def test_a_file_that_changes_between_its_parts_is_said_to_have_changed(
    parted: Hub, sender: Client, large: Blob
) -> None:
    late = parted.public.fault("delay", "^PUT .*partNumber=1", seconds=1)

    def write() -> None:
        while not late.hit:
            time.sleep(0.02)
        with large.path.open("r+b") as file:
            file.seek(PART + 5)
            file.write(b"other bytes")

    thread = threading.Thread(target=write)
    thread.start()
    with pytest.raises(Conflict, match="The file changed while it was uploaded"):
        sender.upload_file(large.path)
    thread.join()
    assert is_clean(parted)
    assert not parted.is_stored(large.digest)
