"""Clients that download other bytes than a digest says tell the server, which reads the blob again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import DigestMismatch, Pt2hubError, RateLimited
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.damage_reports import DamageReportService
from support.artifacts import a_target
from support.planted import Disk

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.client import Client
    from support.registry import Registry

HERE = a_target().name
WEIGHTS = random.Random(8).randbytes(20 << 20)
"""Enough for several ranges, of which the server compares no digest."""
KEY = StorageKey.blob(digest_bytes(WEIGHTS))


@pytest.fixture
def version(served: Registry, tmp_path: Path) -> str:
    """A version whose weights are damaged in the storage, as nobody knows yet."""
    served.worker("w", HERE)
    served.published(served.submit(targets=[HERE]), weights_data=WEIGHTS)
    Disk(root=tmp_path / "blobs").plant(KEY.at(1), at=12 << 20)
    return "vision/resnet18@1"


def damage(served: Registry) -> list[tuple[str, str]]:
    return served.sql("SELECT digest, found_by FROM blob_damage")


def test_a_pull_that_fails_has_the_server_find_the_damage(
    client: Client, served: Registry, version: str
) -> None:
    with pytest.raises(DigestMismatch, match="received"):
        client.pull(version)
    assert damage(served) == [(KEY.digest, "report")]
    with pytest.raises(Pt2hubError) as caught:
        client.pull(version)
    assert "damaged" in str(caught.value)  # the client after it is told


def test_a_refused_report_changes_nothing_about_the_error(
    client: Client, served: Registry, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RateLimited("Too many reports")

    monkeypatch.setattr(DamageReportService, "check", refuse)
    with pytest.raises(DigestMismatch, match="received"):
        client.pull(version)
    assert damage(served) == []
