"""The S3 policy of workers: what they may do with which objects."""

from __future__ import annotations

from typing import Any

from pt2hub.domain.storage import S3_ADDRESS
from pt2hub.errors import BadConfiguration
from pt2hub.server.blobs.s3 import probe

_KINDS = ("blobs", "manifests")
"""Not `tombstones`: only servers delete."""
_READ = ["s3:GetObject", "s3:AbortMultipartUpload"]
_WRITE = ["s3:PutObject"]
_LIST = ["s3:ListBucket"]


def worker_policy(storage: str, principal: str | None = None, *, overwriting: bool = True) -> dict[str, Any]:
    """Return a policy in the language of AWS. Workers read and create blobs and manifests; they delete nothing.

    Args:
        storage: `s3://bucket/prefix`.
        principal: ARN of the workers' user or role, for a policy of the bucket; None for one of the user's or role's own.
        overwriting: Whether it lets objects be overwritten, as far as it decides; workers never do. What forbids it are
            conditions that AWS knows; a server that knows them not refuses every write.

    Raises:
        BadConfiguration: The storage is not S3.
    """
    found = S3_ADDRESS.fullmatch(storage)
    if found is None:
        raise BadConfiguration(
            "The storage is a directory, which has no policy",
            where="PT2HUB_STORAGE",
            hint="Set it to s3://bucket/prefix; for a directory, let the file system's permissions decide.",
        )
    bucket = f"arn:aws:s3:::{found['bucket']}"
    folder = f"{bucket}/{found['prefix']}/" if found["prefix"] else f"{bucket}/"
    blobs = [f"{folder}{kind}/*" for kind in _KINDS]
    tests = [f"{folder}{path}" for path in (probe.CONDITIONAL, probe.CHECKSUM)]
    statements: list[dict[str, Any]] = [
        {"Sid": "BlobsAndManifests", "Action": _READ, "Resource": blobs},
        *(
            {"Sid": name, "Action": _WRITE, "Resource": blobs, **only}
            for name, only in _creations(overwriting)
        ),
        {"Sid": "TestAtStart", "Action": ["s3:PutObject"], "Resource": tests},
        # Without it, S3 answers 403 and not 404 for what does not exist. It shows names, which are digests.
        {"Sid": "WhatExists", "Action": _LIST, "Resource": [bucket]},
    ]
    who = {"Principal": {"AWS": principal}} if principal else {}
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **who, **each} for each in statements]}


def _creations(overwriting: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return name and condition of each statement that lets objects be created."""
    if overwriting:
        return [("Create", {})]
    # Parts of an upload have no condition of their own: its completion has (docs.aws.amazon.com, conditional-writes-enforce).
    return [
        ("Create", {"Condition": {"Null": {"s3:if-none-match": "false"}}}),
        ("CreateParts", {"Condition": {"Bool": {"s3:ObjectCreationOperation": "false"}}}),
    ]
