"""An API over a real S3 server with a proxy on every way to it, and blobs to send there and back."""

from __future__ import annotations

import random
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import urllib3

from pt2hub.client.blobs.cache import BlobCache
from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.domain.digests import Digest, digest_bytes, hex_of
from pt2hub.errors import NotFound
from support.proxy import Proxy
from support.registry import a_spec
from support.s3 import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator


PART = 5 << 20
SIZE = (6 << 20) + 1234
MIDDLE = 3 << 20
"""Where blobs and parts break."""
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


def a_blob(folder: Path, size: int = SIZE) -> Blob:
    number = next(_numbers)
    blob = Blob(folder / f"blob{number}", random.Random(number).randbytes(size))
    blob.path.write_bytes(blob.data)
    return blob


def pulled(client: Client, blob: Blob) -> bytes:
    """The blob, as a pull brings it into the cache."""
    path = f"/api/v1/blobs/{blob.digest}"
    source = partial(client._transport.blob, path, len(blob.data))
    return BlobCache(client.config.cache).get(blob.digest, len(blob.data), source).read_bytes()


def cached(client: Client) -> list[Path]:
    return [path for path in (client.config.cache / "blobs").rglob("*") if path.is_file()]
