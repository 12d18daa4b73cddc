"""Uploads in parts to a real S3 server, with networks between that misbehave: see test_direct_transfers.py."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.errors import Conflict, DigestMismatch, StorageUnavailable
from pt2hub.server.blobs.open import open_storage
from pt2hub.server.blobs.s3.storage import S3Storage
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import Container
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from support.hub import MIDDLE, PART, Blob, Hub, a_blob, proxies, pulled
from support.proxy import CONFLICT, Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.client.client import Client
    from support.s3 import S3Server


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
    made = Container(engines.Sessions(engine), queue, storage, heartbeat_timeout=timedelta(seconds=30))
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
    assert sender.blobs.upload(large.path) == large.digest
    assert fault.hit >= 1
    assert parted.public.asked("^PUT ") >= 3
    assert parted.is_stored(large.digest)
    assert pulled(sender, large) == large.data
    assert is_clean(parted)


@pytest.mark.usefixtures("hasty")
def test_an_upload_in_parts_that_fails_leaves_nothing_and_the_next_one_succeeds(
    parted: Hub, sender: Client, large: Blob
) -> None:
    parted.public.fault("reset", "^PUT .*partNumber=2", after=MIDDLE)
    with pytest.raises(StorageUnavailable, match="The storage, not pt2hub's server,") as caught:
        sender.blobs.upload(large.path)
    assert "X-Amz" not in str(caught.value)
    assert not parted.is_stored(large.digest)
    assert is_clean(parted)
    parted.public.faults.clear()
    assert sender.blobs.upload(large.path) == large.digest
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
    assert sender.blobs.upload(large.path) == large.digest
    assert befell.hit >= 1
    assert pulled(sender, large) == large.data
    assert is_clean(parted)


def test_bytes_that_the_server_finds_to_be_others_are_never_stored(
    parted: Hub, sender: Client, large: Blob
) -> None:
    parted.near.fault("flip", "^GET .*incoming", down=True, after=MIDDLE, times=1)
    with pytest.raises(DigestMismatch) as caught:
        sender.blobs.upload(large.path)
    assert caught.value.hint
    assert not parted.is_stored(large.digest)
    assert is_clean(parted)
    assert sender.blobs.upload(large.path) == large.digest


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
        sender.blobs.upload(large.path)
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
    with pytest.raises(Conflict, match="The file changed during the upload"):
        sender.blobs.upload(large.path)
    thread.join()
    assert is_clean(parted)
    assert not parted.is_stored(large.digest)
