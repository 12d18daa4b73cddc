"""Uploads that fail do not hide damage, and the collector keeps what may be the only good copy."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.damage import Damage, DamageProblem
from pt2hub.domain.digests import Digest
from pt2hub.errors import BlobDamaged, BlobGone, DigestMismatch
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.blobs.damage import DamageStore
from pt2hub.server.services.blobs.blob_writes import BlobChunk
from support.planted import Disk
from support.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Code:
    """The code of a published artifact, in a storage on a disk."""

    registry: Registry
    disk: Disk
    artifact: Digest
    key: StorageKey
    data: bytes

    def flip(self) -> None:
        self.disk.plant(self.key)
        assert self.registry.services.damage.check_key(self.key, by="scrub")

    def mark_unreadable(self) -> None:
        size = len(self.data)
        damage = Damage(
            "blobs", self.key.digest, 1, DamageProblem.UNREADABLE, size, size, None, "scrub"
        )  # a disk with EIO
        with self.registry.services._sessions.begin() as session:
            assert DamageStore(session).add(damage)

    def upload(self, data: bytes) -> None:
        self.registry.services.blobs.write(self.key, iter([data]), holder="api")

    def die_in_upload(self) -> None:
        def chunks() -> Iterator[bytes]:
            yield self.data[:3]
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            self.registry.services.blobs.write(self.key, chunks(), holder="api")

    def collect_later(self) -> int:
        self.registry.sql("UPDATE blobs SET changed_at = now() - interval '2 days'")
        self.registry.sql("DELETE FROM blob_leases")
        return self.registry.services.collector.collect().orphans

    def row(self) -> tuple[str, int]:
        ((state, generation),) = self.registry.sql(
            "SELECT state, generation FROM blobs WHERE digest = %s", self.key.digest
        )
        return state, generation

    def known(self) -> list[str]:
        """The problems of the blob, as each reader of damage sees them."""
        damage = self.registry.services.damage
        listed = [item.problem.value for item in damage.list_damaged() if item.digest == self.key.digest]
        parts = [part.problem for part in damage.parts([self.artifact]).get(self.artifact, ())]
        assert listed == parts
        return listed

    def read(self) -> bytes:
        row, _ = self.registry.services.damage.open(self.key)
        return b"".join(self.registry.services.storage.read(row.key))


@pytest.fixture
def code(served: Registry, tmp_path: Path) -> Code:
    artifact = served.published()
    key = StorageKey.blob(Digest(served.services.resolve.artifact(artifact).code))
    data = b"".join(served.services.storage.read(key))
    return Code(served, Disk(root=tmp_path / "blobs"), artifact, key, data)


class _Mirror:
    """Has these bytes under each digest."""

    name = "mirror"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def fetch(self, digest: Digest, folder: Path, models: Sequence[str]) -> Path | None:  # noqa: ARG002  # of the protocol
        path = folder / "bytes"
        path.write_bytes(self._data)
        return path


def heal(code: Code, data: bytes) -> list[tuple[str, str]]:
    return [(each.digest, each.state) for each in code.registry.services.heal.heal([], [_Mirror(data)])]


def test_an_upload_of_wrong_bytes_hides_no_damage(code: Code) -> None:
    code.flip()
    for _ in range(2):
        with pytest.raises(DigestMismatch):
            code.upload(b"wrong bytes")
        assert code.row() == ("damaged", 2), "the second upload has the same generation"
        assert code.known() == ["digest"]
        with pytest.raises(BlobDamaged):
            code.read()
    with (
        pytest.raises(BlobGone),
        code.registry.services._sessions.begin() as session,
    ):
        BlobStore(session).refer({code.key: len(code.data)}, "version:1")
    code.upload(code.data)
    assert (code.row(), code.known(), code.read()) == (("stored", 2), [], code.data)


def test_a_mirror_with_wrong_bytes_heals_nothing_however_often(code: Code) -> None:
    code.flip()
    for _ in range(2):
        assert heal(code, b"wrong bytes") == [(code.key.digest, "damaged")]
    assert heal(code, code.data) == [(code.key.digest, "healed")]
    assert heal(code, code.data) == []
    assert code.read() == code.data


def test_bytes_that_come_back_after_an_upload_that_died_are_found(code: Code) -> None:
    code.mark_unreadable()
    code.die_in_upload()
    assert code.known() == ["unreadable"]
    assert code.registry.services.damage.recheck() == 1
    assert (code.row(), code.known(), code.read()) == (("stored", 2), [], code.data)
    code.collect_later()
    assert code.read() == code.data


def test_the_collector_spares_the_generation_before_one_that_is_only_being_written(code: Code) -> None:
    code.mark_unreadable()
    code.die_in_upload()
    assert code.collect_later() == 0
    assert code.disk.read(code.key.path) == code.data
    assert code.registry.services.damage.recheck() == 1
    assert code.collect_later() == 1, "the first generation: the second one is stored"
    assert (code.disk.read(code.key.path), code.read()) == (None, code.data)


def test_a_blob_that_is_missing_and_comes_back_is_restored_after_a_failed_upload(code: Code) -> None:
    code.disk.write(code.key.path, None)
    assert code.registry.services.damage.check_key(code.key, by="scrub")
    code.die_in_upload()
    assert (code.registry.services.damage.recheck(), code.known()) == (0, ["missing"])
    code.disk.write(code.key.path, code.data)
    assert code.registry.services.damage.recheck() == 1
    assert code.read() == code.data


def test_what_is_wrong_in_the_next_generation_too_is_replaced_by_the_one_after_it(code: Code) -> None:
    code.mark_unreadable()
    code.die_in_upload()
    code.disk.write(
        code.key.at(2).path, b"x" * len(code.data)
    )  # written by a process that died, and flipped then
    assert code.registry.services.damage.recheck() == 0
    assert (code.row(), code.known()) == (("damaged", 2), ["digest"])
    assert code.registry.services.damage.recheck() == 1, "the first one is still good"
    assert (code.row(), code.read()) == (("stored", 3), code.data)


def test_an_upload_steps_over_wrong_bytes_in_the_next_generation(code: Code) -> None:
    code.flip()
    code.die_in_upload()
    code.disk.write(code.key.at(2).path, b"x" * len(code.data))
    code.upload(code.data)
    assert (code.row(), code.known(), code.read()) == (("stored", 3), [], code.data)


def test_a_writer_whose_generation_turned_out_damaged_confirms_nothing(code: Code) -> None:
    code.flip()
    blobs, size = code.registry.services.blobs, len(code.data)
    key, stored = blobs.hold(code.key, size, holder="api")
    assert (key.generation, stored) == (2, False)
    code.disk.write(key.path, b"x" * size)
    assert code.registry.services.damage.check_key(code.key, by="scrub")
    with pytest.raises(BlobGone):
        blobs.confirm(key, size, holder="api")
    assert (code.row(), code.known()) == (("damaged", 2), ["digest"])


def test_two_uploads_at_once_heal_and_a_third_one_that_fails_hinders_none(code: Code) -> None:
    code.flip()
    blobs, size = code.registry.services.blobs, len(code.data)
    barrier = threading.Barrier(3)
    failures: list[BaseException] = []

    def upload(data: bytes, holder: str) -> None:
        def chunks() -> Iterator[bytes]:
            barrier.wait(20)  # each has its lease
            yield data

        try:
            blobs.write(code.key, chunks(), holder=holder)
        except DigestMismatch as error:
            failures.append(error)

    uploads = [(code.data, "build:a:1"), (code.data, "build:b:1"), (b"wrong bytes", "api")]
    threads = [threading.Thread(target=upload, args=each, daemon=True) for each in uploads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(failures) == 1
    assert (code.row(), code.known(), code.read()) == (("stored", 2), [], code.data)
    blobs.store([BlobChunk(code.key, size, code.data)], holder="build:c:1")
    assert code.row() == ("stored", 2)


def test_a_damaged_blob_that_nothing_needs_leaves_no_generation_behind(code: Code) -> None:
    code.mark_unreadable()
    key, _ = code.registry.services.blobs.hold(code.key, len(code.data), holder="api")
    code.disk.write(key.path, code.data)  # by a writer that died before it confirmed
    code.registry.sql("DELETE FROM artifacts")
    code.registry.sql("DELETE FROM blob_references WHERE digest = %s", code.key.digest)
    code.collect_later()
    assert code.row() == ("deleted", 2)
    assert [code.disk.read(code.key.at(number).path) for number in (1, 2)] == [None, None]
    with pytest.raises(BlobGone):
        code.registry.services.blobs.confirm(key, len(code.data), holder="api")
