"""A bucket with a prefix: object names and basic requests."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from pt2hub.server.blobs.s3.errors import code_of, status_of, translate_errors, unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from types_boto3_s3 import S3Client  # noqa: TC004  # a package of stubs, which is not there at run time

CONFLICT_TRIES = 8
"""How often a create is sent that meets another one: for 5 s on average."""
_CONFLICT_WAIT = 0.05
_MAX_DELETED = 1000
"""S3's limit of objects per request."""
_NOT_FOUND, _CONFLICT, _EXISTS = 404, 409, 412


@dataclass(frozen=True, slots=True)
class Stored:
    """An S3 object.

    Attributes:
        size: In bytes.
        etag: Names its content; only to be handed back to S3.
        modified: When it was written, by S3's clock.
    """

    path: str
    size: int
    etag: str
    modified: datetime


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket with a prefix.

    Attributes:
        prefix: What all names in it begin with: empty, or with `/` at its end.
        asking: Sends those that only ask what is there.
        conflict_tries: How often a create is sent that meets another one.
    """

    name: str
    prefix: str
    client: S3Client
    asking: S3Client
    conflict_tries: int = CONFLICT_TRIES

    def object_arguments(self, path: str) -> dict[str, Any]:
        """Return the arguments that name an object."""
        return {"Bucket": self.name, "Key": self.prefix + path}

    def address(self, path: str) -> str:
        """Return how errors name an object."""
        return f"s3://{self.name}/{self.prefix}{path}"

    @contextmanager
    def errors(self, path: str) -> Iterator[None]:
        """Turn errors of botocore into ours; see `errors.translated`."""
        with translate_errors(self.address(path)):
            yield

    def head(self, path: str) -> Stored | None:
        """Return an object, or None; to this request a missing bucket looks like a missing object."""
        with self.errors(path):
            try:
                answer = self.asking.head_object(**self.object_arguments(path))
            except ClientError as error:
                if status_of(error) == _NOT_FOUND:
                    return None
                raise
        return Stored(path, answer["ContentLength"], answer["ETag"], answer["LastModified"])

    def list_objects(self, start: str) -> Iterator[Stored]:
        """Yield the objects with a path prefix, in order of their names."""
        for page in self.pages("list_objects_v2", start):
            for item in page.get("Contents", ()):
                path = item["Key"].removeprefix(self.prefix)
                yield Stored(path, item["Size"], item["ETag"], item["LastModified"])

    def pages(self, operation: Any, start: str) -> Iterator[dict[str, Any]]:
        """Yield what a listing answers, page by page.

        Args:
            operation: boto3's name of it.
        """
        pages = iter(
            self.asking.get_paginator(operation).paginate(Bucket=self.name, Prefix=self.prefix + start)
        )
        while True:
            with self.errors(start):
                page = next(pages, None)
            if page is None:
                return
            yield page

    def create(self, path: str, send: Callable[[], object]) -> bool:
        """Send a create with the condition that nothing is there, until it is decided who made the object.

        Returns:
            Whether it was made by us, as far as S3 says: a request that was sent again after its answer had been
            lost finds the object that it made itself.

        Raises:
            StorageUnavailable: Others were in the way at every try.
        """
        for number in range(self.conflict_tries):
            with self.errors(path):
                try:
                    send()
                except ClientError as error:
                    # An upload that is gone was completed by such a lost request, or removed by a sweep.
                    if status_of(error) == _EXISTS or code_of(error) == "NoSuchUpload":
                        return False
                    if status_of(error) != _CONFLICT:
                        raise
                else:
                    return True
            if number + 1 < self.conflict_tries:
                time.sleep(_CONFLICT_WAIT * 2**number * random.uniform(0.5, 1.5))  # noqa: S311  # no secret
        raise unavailable(self.address(path), "ConditionalRequestConflict")

    def delete(self, path: str) -> None:
        """Remove an object; where there is none, nothing happens."""
        with self.errors(path):
            self.client.delete_object(**self.object_arguments(path))

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove objects; missing ones are ignored."""
        for start in range(0, len(paths), _MAX_DELETED):
            chunk = paths[start : start + _MAX_DELETED]
            named: Any = {"Objects": [{"Key": self.prefix + path} for path in chunk], "Quiet": True}
            with self.errors(chunk[0]):
                answer = self.client.delete_objects(Bucket=self.name, Delete=named)
            failed = [item for item in answer.get("Errors", ()) if item.get("Code") != "NoSuchKey"]
            if failed:
                path = failed[0].get("Key", "").removeprefix(self.prefix)
                raise unavailable(self.address(path), failed[0].get("Code", ""))

    def abort(self, path: str, multipart: str) -> None:
        """Remove the parts of an upload; where it is gone, nothing happens."""
        with self.errors(path):
            try:
                self.client.abort_multipart_upload(**self.object_arguments(path), UploadId=multipart)
            except ClientError as error:
                if status_of(error) != _NOT_FOUND:
                    raise
