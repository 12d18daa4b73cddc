"""A server's bucket, read with the caller's own credentials. The only module of the client that imports boto3."""

from __future__ import annotations

from contextlib import contextmanager
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pt2hub.client.http.presigned import PresignedClient
from pt2hub.client.http.remote_blob import STORAGE_CONNECTIONS, RemoteBlob
from pt2hub.domain.storage import S3_ADDRESS, is_aws, object_path, parse_object_path
from pt2hub.errors import BadConfiguration, NotFound, StorageUnavailable
from pt2hub.extras import lacking

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import urllib3
    from types_boto3_s3 import S3Client

    from pt2hub.client.http.ranges import ByteRange
    from pt2hub.domain.digests import Digest
    from pt2hub.domain.storage import Kind, StorageLocation

_SIGNED_SECONDS = 900
_MAX_MANIFEST_BYTES = 4 << 20
"""The limit that the OCI distribution specification recommends to registries."""
_HINTS = {
    "NoCredentialsError": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give boto3 credentials in another way.",
    "PartialCredentialsError": "Set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    "ProfileNotFound": "Correct AWS_PROFILE.",
    "NoRegionError": "Set AWS_DEFAULT_REGION to the bucket's region.",
}
"""By the name of botocore's error."""
_REFUSED = "Check the AWS credentials of this machine, and that they allow s3:GetObject on {}."
_AWAY = "Check that this machine reaches {}. Set PT2HUB_STORAGE and AWS_ENDPOINT_URL_S3 if the bucket is elsewhere."


class Bucket:
    """Reads objects by presigned URLs that it signs itself. Nothing is sent before the first read.

    Attributes:
        url: `s3://bucket/prefix`.

    Args:
        location: Where the bucket is; without an endpoint, boto3's settings decide.

    Raises:
        BadConfiguration: boto3 is not installed, or the location is invalid.
        StorageUnavailable: boto3 lacks credentials.
    """

    def __init__(self, location: StorageLocation) -> None:
        match = S3_ADDRESS.fullmatch(location.url)
        if match is None:
            raise BadConfiguration(
                f"Invalid storage {location.url[:200]!r}", where="storage", hint="Use s3://bucket/prefix."
            )
        if find_spec("boto3") is None:
            raise lacking(f"Reading {location.url}", ["boto3"])
        self.url = location.url
        self._moved: dict[Digest, str] = {}
        self._name, prefix = match["bucket"], (match["prefix"] or "").strip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        with self._errors():
            self._client = _connect(location)
        self._endpoint = self._client.meta.endpoint_url
        self._http = PresignedClient(self._endpoint)

    def close(self) -> None:
        """Close idle connections."""
        self._http.close()

    def manifest(self, digest: Digest) -> bytes:
        """Return the bytes of a manifest, unchecked.

        Raises:
            NotFound: The bucket does not have it.
            StorageUnavailable: The bucket cannot be read.
        """
        path = object_path("manifests", digest)
        try:
            return self._fetch(path)
        except NotFound:
            return self._fetch(self._other_generation("manifests", digest))

    def blob(self, digest: Digest, size: int) -> BucketBlob:
        """Return a blob, to be read in ranges; nothing is sent before the first read."""
        return BucketBlob(self, digest, size)

    @contextmanager
    def open_blob(self, digest: Digest, wanted: ByteRange) -> Iterator[urllib3.BaseHTTPResponse]:
        """Request a range of a blob's bytes.

        Raises:
            NotFound: The bucket does not have it.
            StorageUnavailable: The bucket cannot be read.
        """
        path = self._moved.get(digest) or object_path("blobs", digest)
        with self._errors(path), self._http.open(self._sign(path), wanted) as response:
            yield response

    def find_moved(self, digest: Digest) -> None:
        """Find the bytes of a blob that were stored again after a deletion.

        Raises:
            NotFound: There are none.
        """
        self._moved[digest] = self._other_generation("blobs", digest)

    def has_moved(self, digest: Digest) -> bool:
        """Return whether `find_moved` found a blob."""
        return digest in self._moved

    def address(self, digest: Digest) -> str:
        """Return a blob's address, for errors."""
        return f"{self.url}/{self._moved.get(digest) or object_path('blobs', digest)}"

    def _fetch(self, path: str) -> bytes:
        with self._errors(path):
            return self._http.fetch(self._sign(path), _MAX_MANIFEST_BYTES)

    def _sign(self, path: str) -> str:
        return self._client.generate_presigned_url(
            "get_object",
            Params={"Bucket": self._name, "Key": self._prefix + path},
            ExpiresIn=_SIGNED_SECONDS,
        )

    def _other_generation(self, kind: Kind, digest: Digest) -> str:
        """Return the path of bytes that were stored again after a deletion.

        Raises:
            NotFound: There are none.
        """
        first = object_path(kind, digest)
        with self._errors(first):
            listed = self._client.list_objects_v2(Bucket=self._name, Prefix=f"{self._prefix}{first}.")
        paths = [item["Key"].removeprefix(self._prefix) for item in listed.get("Contents", ())]
        found = [path for path in paths if parse_object_path(path)]
        if not found:
            raise self._absent(first)
        return found[0]

    @contextmanager
    def _errors(self, path: str = "") -> Iterator[None]:
        """Turn errors of the storage and of boto3 into ones with advice for the holder of the credentials."""
        from botocore.exceptions import BotoCoreError, ClientError

        where = f"{self.url}/{path}" if path else self.url
        try:
            yield
        except StorageUnavailable as exc:
            status = exc.context.get("status")
            if status == HTTPStatus.NOT_FOUND and exc.context.get("s3_code") != "NoSuchBucket":
                raise self._absent(path) from exc
            hint = _REFUSED.format(self.url) if status else _AWAY.format(self._endpoint)
            raise StorageUnavailable(exc.message, where=where, hint=hint, context=exc.context) from exc
        except (BotoCoreError, ClientError) as exc:
            name = type(exc).__name__
            raise StorageUnavailable(
                f"Cannot read the bucket: {name}",
                where=where,
                hint=_HINTS.get(name, _REFUSED.format(self.url)),
            ) from exc
        except ValueError as exc:  # botocore's, about the endpoint
            raise BadConfiguration(
                f"Invalid configuration of boto3: {exc}",
                where="AWS_ENDPOINT_URL_S3",
                hint="Use a complete URL such as http://127.0.0.1:8333.",
            ) from exc

    def _absent(self, path: str) -> NotFound:
        return NotFound(
            "The bucket has no such object",
            where=f"{self.url}/{path}",
            hint="Check that the server keeps its blobs in this bucket; pt2hub's server may know another one.",
        )


class BucketBlob(RemoteBlob):
    """A blob in a bucket, read in ranges.

    Args:
        size: Its length in bytes.
    """

    def __init__(self, bucket: Bucket, digest: Digest, size: int) -> None:  # without a server's transport
        self.connections = 1
        self.ranged = True
        self.seal = ""
        self._size = size
        self._bucket = bucket
        self._digest = digest

    @property
    def url(self) -> str:
        """Address of the blob in the bucket."""
        return self._bucket.address(self._digest)

    @property
    def server(self) -> str:
        """Address of the bucket."""
        return self._bucket.url

    def _read(self, wanted: ByteRange) -> Generator[bytes]:
        try:
            with self._bucket.open_blob(self._digest, wanted) as response:
                yield from self._receive(response, wanted, self.url, STORAGE_CONNECTIONS)
        except NotFound:
            if self._bucket.has_moved(self._digest):
                raise
            self._bucket.find_moved(self._digest)
            yield from self._read(wanted)


def _connect(location: StorageLocation) -> S3Client:
    """Create a client that signs as the server's own does (`server.blobs.s3.client`)."""
    import boto3
    from botocore.config import Config

    session = boto3.session.Session()
    config = Config(connect_timeout=5, read_timeout=10, signature_version="s3v4")

    def make(config: Config) -> S3Client:
        made: S3Client = session.client(
            "s3", endpoint_url=location.endpoint, region_name=location.region, config=config
        )
        return made

    client = make(config)
    styled = (getattr(client.meta.config, "s3", None) or {}).get("addressing_style")
    if styled or is_aws(client.meta.endpoint_url):
        return client
    # Few servers other than AWS answer to bucket.host.
    return make(config.merge(Config(s3={"addressing_style": "path"})))
