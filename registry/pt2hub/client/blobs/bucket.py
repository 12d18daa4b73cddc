"""A server's bucket, read with the caller's own credentials. The only module of the client that imports boto3."""

from __future__ import annotations

from contextlib import contextmanager
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pt2hub.client.http.presigned import PresignedClient
from pt2hub.client.http.remote_blob import RemoteBlob
from pt2hub.domain.storage import S3_ADDRESS, is_aws, object_path, parse_object_path
from pt2hub.errors import BadConfiguration, NotFound, StorageUnavailable
from pt2hub.extras import lacking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from types_boto3_s3 import S3Client
    from urllib3 import BaseHTTPResponse

    from pt2hub.client.http.ranges import ByteRange
    from pt2hub.domain.digests import Digest
    from pt2hub.domain.storage import StorageLocation

UNREADABLE = (BadConfiguration, NotFound, StorageUnavailable)
"""Errors of a bucket that cannot be read."""
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
_REFUSED_SIGNING = 400
"""Status of an error before anything was sent: another attempt does not help."""


class Bucket:
    """Reads objects by presigned URLs that it signs itself. Nothing is sent before the first read.

    Attributes:
        url: `s3://bucket/prefix/`.
        direct: Sends the requests.

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
        self.url = f"{location.url.rstrip('/')}/"
        self._name, prefix = match["bucket"], (match["prefix"] or "").strip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._moved: dict[str, str] = {}
        self._endpoint = ""
        with self._errors(""):
            self._client = _checked(location)
        self._endpoint = self._client.meta.endpoint_url
        self.direct = PresignedClient(self._endpoint)

    def close(self) -> None:
        """Close idle connections."""
        self.direct.close()

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
            return self._fetch(self._other_generation(path))

    def blob(self, digest: Digest, size: int) -> RemoteBlob:
        """Return a blob, to be read in ranges.

        Args:
            size: Its length in bytes.
        """
        return RemoteBlob(self, object_path("blobs", digest), size)

    @contextmanager
    def open_blob(self, path: str, wanted: ByteRange) -> Iterator[BaseHTTPResponse]:
        """Request a range of a blob.

        Raises:
            NotFound: The bucket does not have it.
            StorageUnavailable: The bucket cannot be read.
        """
        try:
            with self._open(self._moved.get(path, path), wanted) as response:
                yield response
                return
        except NotFound:
            if path in self._moved:
                raise
        self._moved[path] = self._other_generation(path)
        with self._open(self._moved[path], wanted) as response:
            yield response

    @contextmanager
    def _open(self, path: str, wanted: ByteRange) -> Iterator[BaseHTTPResponse]:
        with self._errors(path), self.direct.open(self._sign(path), wanted) as response:
            yield response

    def _fetch(self, path: str) -> bytes:
        with self._errors(path):
            return self.direct.fetch(self._sign(path), _MAX_MANIFEST_BYTES)

    def _sign(self, path: str) -> str:
        return self._client.generate_presigned_url(
            "get_object",
            Params={"Bucket": self._name, "Key": self._prefix + path},
            ExpiresIn=_SIGNED_SECONDS,
        )

    def _other_generation(self, path: str) -> str:
        """Return the path of bytes that were stored again after a deletion.

        Args:
            path: Where they were at first.

        Raises:
            NotFound: There are none.
        """
        with self._errors(path):
            listed = self._client.list_objects_v2(Bucket=self._name, Prefix=f"{self._prefix}{path}.")
        paths = [item["Key"].removeprefix(self._prefix) for item in listed.get("Contents", ())]
        found = [other for other in paths if parse_object_path(other)]
        if not found:
            raise self._absent(path)
        return found[0]

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        """Turn errors of the storage and of boto3 into ones with advice for the holder of the credentials."""
        from botocore.exceptions import BotoCoreError, ClientError

        where = self.url + path
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
                context={"status": _REFUSED_SIGNING},
            ) from exc

    def _absent(self, path: str) -> NotFound:
        return NotFound(
            "The bucket has no such object",
            where=self.url + path,
            hint="Check that the server keeps its blobs in this bucket; pt2hub's server may know another one.",
        )


def may_pass(error: StorageUnavailable) -> bool:
    """Return whether another attempt may succeed: no answer, a broken one, or a busy server."""
    status = error.context.get("status")
    return status is None or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _checked(location: StorageLocation) -> S3Client:
    try:
        return _connect(location)
    except ValueError as exc:  # botocore's, about the endpoint
        raise BadConfiguration(
            f"Invalid configuration of boto3: {exc}",
            where="AWS_ENDPOINT_URL_S3",
            hint="Use a complete URL such as http://127.0.0.1:8333.",
        ) from exc


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
