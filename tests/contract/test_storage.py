"""What every storage promises: memory, a local directory, S3 by moto and S3 by a real server."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from moto import mock_aws

from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.errors import DigestMismatch, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.local import LocalStorage
from pt2hub.server.blobs.memory import MemoryStorage
from pt2hub.server.blobs.ports import Storage
from pt2hub.server.blobs.s3 import S3Storage
from pt2hub.server.services.blobs.quarantine import empty_quarantine
from support.s3 import s3_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from types_boto3_s3 import S3Client

    from support.s3 import S3Server

MIB = 1 << 20
DATA = bytes(range(256)) * 40
LARGE = b"".join(bytes([number]) * MIB for number in range(11)) + b"tail"
"""Three parts of an S3 upload here."""
PART = 5 * MIB
"""The least that S3 takes."""


@dataclass(frozen=True)
class Subject:
    """A storage under test.

    Attributes:
        storage: The storage.
        plant: Puts bytes under a path behind its back.
        remains: Counts what a failed write left: temporary files, unfinished uploads.
        begin: Leaves behind what a writer does that dies; None where nothing can be left.
        dates: Whether it knows when that was.
    """

    storage: Storage
    plant: Callable[[str, bytes], object]
    remains: Callable[[], int]
    begin: Callable[[], object] | None = None
    dates: bool = True


def memory() -> Subject:
    storage = MemoryStorage()

    def plant(path: str, data: bytes) -> None:
        key = StorageKey.from_path(path)
        if key is not None:
            storage._stored[key.exact] = data

    return Subject(storage, plant, lambda: 0)


def local(root: Path) -> Subject:
    def plant(path: str, data: bytes) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).unlink(missing_ok=True)
        (root / path).write_bytes(data)

    def begin() -> None:
        plant(
            str(Path(blob(DATA).path).with_name(f".{secrets.token_hex(4)}.0123456789abcdef.incomplete")), DATA
        )

    def remains() -> int:
        return sum(".incomplete" in path.name for path in root.rglob("*"))

    return Subject(LocalStorage(root), plant, remains, begin)


def s3(client: S3Client, bucket: str, prefix: str, *, dates: bool = True) -> Subject:
    def remains() -> int:
        uploads = client.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads", [])
        return len(uploads)

    return Subject(
        S3Storage(bucket, prefix, client=client, part_bytes=PART),
        lambda path, data: client.put_object(Bucket=bucket, Key=f"{prefix}/{path}", Body=data),
        remains,
        lambda: client.create_multipart_upload(Bucket=bucket, Key=f"{prefix}/{blob(b'half').path}"),
        dates,
    )


@pytest.fixture(params=["memory", "local", "moto", "seaweedfs"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    if request.param == "memory":
        yield memory()
    elif request.param == "local":
        yield local(tmp_path / "storage")
    elif request.param == "moto":
        with mock_aws():
            client = s3_client(None)
            client.create_bucket(Bucket="artifacts")
            yield s3(client, "artifacts", "team/prefix", dates=False)
    else:
        server: S3Server = request.getfixturevalue("s3_server")
        yield s3(server.client(), server.bucket, secrets.token_hex(8))


def blob(data: bytes) -> StorageKey:
    return StorageKey.blob(digest_bytes(data))


def whole(storage: Storage, key: StorageKey) -> bytes:
    return b"".join(storage.read(key))


@pytest.mark.parametrize("data", [b"", b"x", DATA, LARGE], ids=["empty", "byte", "small", "large"])
def test_what_is_written_is_read_back(subject: Subject, data: bytes) -> None:
    pieces = [data[at : at + 700_001] for at in range(0, len(data), 700_001)]
    assert subject.storage.write(blob(data), pieces) == len(data)
    assert subject.storage.size(blob(data)) == len(data)
    assert whole(subject.storage, blob(data)) == data
    assert subject.remains() == 0


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (0, 1),
        (5, 9),
        (10_000, None),
        (0, 99_999),
        (10_239, None),
        (10_240, None),
        (20_000, 30_000),
        (7, 7),
        (9, 5),
    ],
)
def test_a_range_is_clipped_as_a_slice_is(subject: Subject, start: int, stop: int | None) -> None:
    subject.storage.write(blob(DATA), [DATA])
    assert b"".join(subject.storage.read(blob(DATA), start, stop)) == DATA[start:stop]


def test_what_is_not_stored_is_not_found(subject: Subject, tmp_path: Path) -> None:
    key = blob(b"missing")
    assert subject.storage.size(key) is None
    for stop in (None, 5, 0):
        with pytest.raises(NotFound) as caught:
            next(subject.storage.read(key, 0, stop))
        assert caught.value.where == key.digest
    with pytest.raises(NotFound):
        subject.storage.fetch(key, tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_blobs_and_manifests_are_kept_apart(subject: Subject) -> None:
    subject.storage.write(StorageKey.manifest(digest_bytes(DATA)), [DATA])
    assert subject.storage.size(blob(DATA)) is None


@pytest.mark.parametrize("data", [DATA, LARGE], ids=["small", "large"])
def test_bytes_of_another_digest_are_refused_and_nothing_is_left(subject: Subject, data: bytes) -> None:
    key = blob(b"something else")
    with pytest.raises(DigestMismatch) as caught:
        subject.storage.write(key, [data])
    assert digest_bytes(data) in caught.value.message
    assert subject.storage.size(key) is None
    assert subject.remains() == 0


@pytest.mark.parametrize("data", [DATA, LARGE], ids=["small", "large"])
def test_more_bytes_than_the_limit_are_refused_while_they_arrive(subject: Subject, data: bytes) -> None:
    taken = []

    def chunks() -> Iterator[bytes]:
        for piece in itertools.chain([data], itertools.repeat(DATA)):
            taken.append(len(piece))
            yield piece

    limit = len(data) + 1
    with pytest.raises(TooLarge) as caught:
        subject.storage.write(blob(data), chunks(), limit=limit)
    assert caught.value.context == {"limit": limit}
    assert sum(taken) <= limit + len(DATA)
    assert subject.storage.size(blob(data)) is None
    assert subject.remains() == 0


def test_exactly_as_many_bytes_as_the_limit_are_taken(subject: Subject) -> None:
    assert subject.storage.write(blob(DATA), [DATA], limit=len(DATA)) == len(DATA)


@pytest.mark.parametrize("sent", [0, 1, 7 * MIB])
def test_an_error_of_the_source_passes_through_and_nothing_is_left(subject: Subject, sent: int) -> None:
    def chunks() -> Iterator[bytes]:
        yield LARGE[:sent]
        raise ConnectionResetError("the client went away")

    with pytest.raises(ConnectionResetError):
        subject.storage.write(blob(LARGE), chunks())
    assert subject.storage.size(blob(LARGE)) is None
    assert subject.remains() == 0


def test_what_is_stored_stays_when_it_is_written_again_but_wrong_bytes_are_still_refused(
    subject: Subject,
) -> None:
    key = blob(DATA)
    planted = DATA[:-1] + b"x"  # shows whether it is overwritten
    subject.plant(key.path, planted)
    assert subject.storage.write(key, [DATA]) == len(DATA)
    assert whole(subject.storage, key) == planted
    with pytest.raises(DigestMismatch):
        subject.storage.write(key, [b"wrong"])


def test_damage_that_shows_in_the_size_is_reported_when_the_bytes_are_written_again(subject: Subject) -> None:
    subject.plant(blob(DATA).path, DATA[:-1])
    with pytest.raises(DigestMismatch, match="10239 bytes instead of 10240"):
        subject.storage.write(blob(DATA), [DATA])


@pytest.mark.parametrize("data", [DATA, LARGE], ids=["small", "large"])
def test_a_writer_that_is_overtaken_succeeds(subject: Subject, data: bytes) -> None:
    def chunks() -> Iterator[bytes]:
        yield data[:3]
        subject.storage.write(blob(data), [data])
        yield data[3:]

    assert subject.storage.write(blob(data), chunks()) == len(data)
    assert whole(subject.storage, blob(data)) == data
    assert subject.remains() == 0


def test_racing_writers_all_succeed(subject: Subject) -> None:
    data = secrets.token_bytes(100_000)
    with ThreadPoolExecutor(8) as pool:
        sizes = list(pool.map(lambda _: subject.storage.write(blob(data), [data]), range(16)))
    assert sizes == [len(data)] * 16
    assert whole(subject.storage, blob(data)) == data
    assert subject.remains() == 0


@pytest.mark.parametrize("data", [b"", DATA, LARGE], ids=["empty", "small", "large"])
def test_a_file_is_stored_and_fetched(subject: Subject, tmp_path: Path, data: bytes) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data)
    target.write_bytes(b"older")
    assert subject.storage.write_file(blob(data), source) == len(data)
    subject.storage.fetch(blob(data), target)
    assert target.read_bytes() == data
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["source", "target"]


def test_a_file_of_another_digest_is_refused(subject: Subject, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(DATA)
    with pytest.raises(DigestMismatch):
        subject.storage.write_file(blob(b"something else"), source)
    assert subject.storage.size(blob(b"something else")) is None


def test_a_file_that_is_stored_already_is_not_read(subject: Subject, tmp_path: Path) -> None:
    subject.storage.write(blob(DATA), [DATA])
    assert subject.storage.write_file(blob(DATA), tmp_path / "not there") == len(DATA)


def test_damaged_bytes_are_not_fetched(subject: Subject, tmp_path: Path) -> None:
    subject.plant(blob(DATA).path, DATA[:-1] + b"x")
    (tmp_path / "file").write_bytes(b"older")
    with pytest.raises(DigestMismatch):
        subject.storage.fetch(blob(DATA), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"older"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["file"]


def test_keys_are_listed_by_kind_in_the_order_of_digests(subject: Subject) -> None:
    stored = [bytes([number]) for number in range(20)]
    for data in stored:
        subject.storage.write(blob(data), [data])
    subject.storage.write(StorageKey.manifest(digest_bytes(b"{}")), [b"{}"])
    assert list(subject.storage.keys("blobs")) == sorted(blob(data).at(1) for data in stored)
    assert list(subject.storage.keys("manifests")) == [StorageKey.manifest(digest_bytes(b"{}")).at(1)]


def test_the_room_that_is_left_is_known_or_not_limited(subject: Subject) -> None:
    free = subject.storage.free()
    assert free is None or free > 0


def test_nothing_is_listed_in_a_new_storage(subject: Subject) -> None:
    assert list(subject.storage.keys("blobs")) == []


def test_foreign_and_unfinished_things_are_not_listed(subject: Subject) -> None:
    digits = "ab" + "0" * 62
    for path in (
        f"blobs/sha256/ab/.{digits}.0123456789abcdef.incomplete",
        f"blobs/sha256/ac/{digits}",
        "blobs/sha256/ab/notes.txt",
        f"blobs/sha256/ab/{digits}.0",
        f"blobs/sha256/ab/{digits}.1",
        f"blobs/sha256/ab/{digits}.old",
        "blobs/README",
    ):
        subject.plant(path, b"foreign")
    subject.storage.write(blob(DATA), [DATA])
    assert list(subject.storage.keys("blobs")) == [blob(DATA).at(1)]
    assert subject.storage.size(StorageKey.blob(Digest(f"sha256:{digits}"))) is None


def test_an_iterator_may_be_left_before_its_end(subject: Subject) -> None:
    subject.storage.write(blob(LARGE), [LARGE])
    for _ in range(40):  # more than there are connections in a pool
        pieces = subject.storage.read(blob(LARGE))
        assert next(pieces)[:3] == LARGE[:3]
        del pieces
    assert subject.storage.size(blob(LARGE)) == len(LARGE)


def test_a_later_generation_is_found_by_whoever_names_none(subject: Subject, tmp_path: Path) -> None:
    key, storage = blob(DATA), subject.storage
    for generation in (12, 3):
        assert storage.write(key.at(generation), [DATA]) == len(DATA)
    assert storage.size(key) == len(DATA)
    assert whole(storage, key) == DATA
    assert b"".join(storage.read(key, 5, 9)) == DATA[5:9]
    assert list(storage.read(key, 9, 9)) == []
    storage.fetch(key, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == DATA
    assert sorted(storage.keys("blobs")) == [key.at(3), key.at(12)]


def test_a_named_generation_is_that_one_alone(subject: Subject, tmp_path: Path) -> None:
    key, storage = blob(DATA), subject.storage
    storage.write(key.at(2), [DATA])
    for other in (1, 3):
        assert storage.size(key.at(other)) is None
        with pytest.raises(NotFound):
            next(storage.read(key.at(other)))
        with pytest.raises(NotFound):
            storage.fetch(key.at(other), tmp_path / "file")


@pytest.mark.parametrize("by_file", [False, True])
def test_a_writer_that_names_no_generation_writes_the_first(
    subject: Subject, tmp_path: Path, by_file: bool
) -> None:
    key, storage = blob(DATA), subject.storage
    (tmp_path / "file").write_bytes(DATA)
    storage.write(key.at(2), [DATA])
    written = storage.write_file(key, tmp_path / "file") if by_file else storage.write(key, [DATA])
    assert written == len(DATA)
    assert list(storage.keys("blobs")) == [key.at(1), key.at(2)]


def test_a_storage_that_does_what_is_relied_on_passes_its_check_again_and_again(subject: Subject) -> None:
    for _ in range(3):
        subject.storage.check()
    assert list(subject.storage.keys("blobs")) == []
    assert subject.remains() == 0


def test_what_a_dead_writer_left_is_swept_when_it_is_old_enough_and_nothing_else(subject: Subject) -> None:
    subject.storage.write(blob(DATA), [DATA])
    assert subject.storage.sweep(0) == 0
    if subject.begin is None:
        return
    subject.begin()
    subject.begin()
    if subject.dates:
        assert subject.storage.sweep(3600) == 0
    assert subject.remains() == 2
    assert subject.storage.sweep(0) == 2
    assert subject.remains() == 0
    assert whole(subject.storage, blob(DATA)) == DATA


def test_objects_are_listed_with_their_sizes(subject: Subject) -> None:
    sizes = {blob(data).at(1): len(data) for data in (DATA, b"", b"small")}
    for data in (DATA, b"", b"small"):
        subject.storage.write(blob(data), [data])
    assert {item.key.exact: item.size for item in subject.storage.objects("blobs")} == sizes


@pytest.mark.parametrize("data", [DATA, b""], ids=["some", "nothing"])
def test_what_is_quarantined_is_found_by_no_reader_and_written_anew_as_the_next_generation(
    subject: Subject, data: bytes
) -> None:
    subject.storage.write(blob(data), [data])
    subject.storage.quarantine(blob(data).at(1))
    subject.storage.quarantine(blob(data).at(1))  # where there is none, nothing happens
    assert b"".join(subject.storage.read_quarantined(blob(data).at(1))) == data
    with pytest.raises(NotFound):
        list(subject.storage.read_quarantined(blob(data).at(2)))
    assert subject.storage.size(blob(data)) is None
    assert list(subject.storage.keys("blobs")) == []
    subject.storage.write(blob(data).at(2), [data])
    assert b"".join(subject.storage.read(blob(data))) == data


def test_the_quarantine_is_emptied_of_all_generations_of_a_blob(subject: Subject) -> None:
    storage = subject.storage
    for key in (blob(DATA).at(1), blob(DATA).at(2), blob(b"other").at(1)):
        storage.write(key, [b"other" if key.digest == blob(b"other").digest else DATA])
        storage.quarantine(key)
    put_away = set(_list_quarantine(storage))
    empty_quarantine(storage, [blob(DATA)])
    of_other = blob(b"other").quarantine_path
    assert set(_list_quarantine(storage)) == put_away & {of_other}
    assert not put_away or put_away > {of_other}  # memory keeps none


def _list_quarantine(storage: Storage) -> list[str]:
    folders = {blob(data).quarantine_path.rpartition("/")[0] for data in (DATA, b"other")}
    return [path for folder in sorted(folders) for path, _ in storage.list_objects(f"{folder}/")]


def test_a_probe_writes_and_leaves_nothing_that_readers_see(subject: Subject) -> None:
    subject.storage.probe()
    subject.storage.probe()
    assert list(subject.storage.keys("blobs")) == []


def test_exactly_the_generations_that_are_named_are_removed(subject: Subject) -> None:
    storage, key = subject.storage, blob(DATA)
    for generation in (1, 2, 3):
        storage.write(key.at(generation), [DATA])
    manifest = StorageKey.manifest(key.digest)
    storage.write(manifest, [DATA])
    storage.remove([key.at(1), key.at(3), blob(b"missing").at(2)])
    assert list(storage.keys("blobs")) == [key.at(2)]
    assert b"".join(storage.read(key)) == DATA
    assert storage.size(manifest) == len(DATA)
    storage.remove([key.at(1), key.at(2)])
    assert storage.size(key) is None
    storage.write(key.at(4), [DATA])
    assert b"".join(storage.read(key)) == DATA
    storage.remove([])


def test_a_named_object_is_created_once_listed_and_deleted(subject: Subject) -> None:
    storage = subject.storage
    assert list(storage.list_objects("journal/")) == []
    with ThreadPoolExecutor(8) as pool:
        contents = [b"one %d" % number for number in range(8)]
        made = list(pool.map(lambda data: storage.create_object("journal/1", data), contents))
    assert made.count(True) == 1
    assert storage.read_object("journal/1") == contents[made.index(True)]
    assert storage.create_object("journal/2", b"")
    assert list(storage.list_objects("journal/")) == [("journal/1", 5), ("journal/2", 0)]
    assert list(storage.keys("blobs")) == []
    for _ in range(2):
        storage.delete_object("journal/1")
    with pytest.raises(NotFound):
        storage.read_object("journal/1")
    assert [path for path, _ in storage.list_objects("journal/")] == ["journal/2"]
    assert subject.remains() == 0
