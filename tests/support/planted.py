"""Damage that tests plant in a storage behind its back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from types_boto3_s3 import S3Client

if TYPE_CHECKING:
    from pt2hub.server.blobs.keys import StorageKey

KINDS = ("flip", "truncate", "lose")


def damage(data: bytes, kind: str, at: int) -> bytes | None:
    """Bytes with one bit flipped or without their end; None where they are lost."""
    if kind == "lose":
        return None
    at %= len(data)
    if kind == "truncate":
        return data[:at]
    return data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


@dataclass(frozen=True)
class Disk:
    """The storage as the disk has it.

    Attributes:
        root: Its directory; None for S3.
        client: A client of the S3 server.
        bucket: The bucket, and the prefix in it.
    """

    root: Path | None = None
    client: S3Client | None = None
    bucket: tuple[str, str] = ("", "")

    def read(self, path: str) -> bytes | None:
        """The bytes under a path."""
        if self.root:
            return (self.root / path).read_bytes() if (self.root / path).exists() else None
        assert self.client
        found = self.client.list_objects_v2(Bucket=self.bucket[0], Prefix=f"{self.bucket[1]}/{path}")
        if not any(item["Key"] == f"{self.bucket[1]}/{path}" for item in found.get("Contents", ())):
            return None
        return self.client.get_object(Bucket=self.bucket[0], Key=f"{self.bucket[1]}/{path}")["Body"].read()

    def write(self, path: str, data: bytes | None) -> None:
        """Puts other bytes under a path; None removes them."""
        if self.root:
            (self.root / path).unlink(missing_ok=True)
            if data is not None:
                (self.root / path).write_bytes(data)
            return
        assert self.client
        if data is None:
            self.client.delete_object(Bucket=self.bucket[0], Key=f"{self.bucket[1]}/{path}")
        else:
            self.client.put_object(Bucket=self.bucket[0], Key=f"{self.bucket[1]}/{path}", Body=data)

    def plant(self, key: StorageKey, kind: str = "flip", at: int = 3) -> None:
        """Damages an object."""
        data = self.read(key.path)
        assert data is not None
        self.write(key.path, damage(data, kind, at))
