"""Backups as commands: of a running server's database, into a file or a bucket, and back."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub.errors import InvalidInput
from pt2hub.server import admin
from pt2hub.server.blobs.open import open_storage
from pt2hub.server.blobs.verification import PRIVATE, os_errors
from pt2hub.server.db import backup
from pt2hub.server.db.backup import Backup  # of a dataclass
from pt2hub.server.operator import operator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.config import ServerConfig

_S3 = "s3://"


@dataclass(frozen=True, slots=True)
class RestoredBackup:
    """A backup in its database.

    Attributes:
        deleted: What was deleted after the backup, and again now: `team/name@3`, ids of builds, `team/name`.
        unreadable: Digests of tombstones that cannot be read, with reasons; what they name is served.
    """

    backup: Backup
    deleted: tuple[str, ...] = ()
    unreadable: dict[str, str] = field(default_factory=dict)


def write_backup(config: ServerConfig, to: str) -> Backup:
    """Back up the database, also of a running server; the storage is not part of it.

    Args:
        to: A file, or `s3://bucket/key`; nothing is overwritten.

    Raises:
        BadConfiguration: The home has no database.
        InvalidInput: The file exists, or the address is malformed.
        Conflict: The object exists.
        SchemaOlder: The database is empty.
        SchemaNewer: A newer pt2hub wrote the database.
        DatabaseUnavailable: The database does not answer.
        StorageUnavailable: The file or object cannot be written.
        StorageFull: There is no room for it.
    """
    admin.require_database(config)
    with _target(to) as path, admin.open_database(config) as database_url:
        with os_errors(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        with os_errors(path), open(descriptor, "wb") as file:  # noqa: PTH123  # a descriptor
            written = backup.write(database_url, file)
            file.flush()
            os.fsync(file.fileno())
        return written


def restore_backup(config: ServerConfig, source: str) -> RestoredBackup:
    """Restore a backup into the empty database of the settings, and upgrade it.

    What was deleted after the backup, according to the storage, is deleted again. If the storage has no journal, as a copy
    that lacks it, it gets one. Nothing is collected, nor deleted by policies, before a reindex.

    Args:
        source: A file, or `s3://bucket/key`.

    Raises:
        InvalidInput: It is no backup, or damaged.
        NotFound: The object does not exist.
        Conflict: The database is not empty.
        SchemaNewer: A newer pt2hub wrote the backup.
        DatabaseUnavailable: The database does not answer.
        StorageUnavailable: The storage does not answer.
    """
    next(
        iter(open_storage(config.storage).keys("tombstones")), None
    )  # rather now than when versions are back
    with _source(source) as path, admin.open_database(config) as database_url:
        restored = backup.restore(database_url, path)
    with admin.open_services(config) as container:
        container.journal.mark_missing()
        deleted, unreadable = container.reindex.apply_tombstones(by=operator())
    return RestoredBackup(restored, tuple(deleted), unreadable)


@contextlib.contextmanager
def _target(to: str) -> Iterator[Path]:
    """Yield a path to write, which becomes the target when the block succeeds."""
    if to.startswith(_S3):
        from pt2hub.server.blobs.s3 import files

        with tempfile.TemporaryDirectory(prefix="pt2hub-backup-") as folder:
            path = Path(folder, "backup")
            yield path
            files.upload(path, to)
        return
    path = Path(to)
    if path.exists():
        raise _exists(path)
    # A name of its own: one that was killed left its file behind, and another one may run.
    incomplete = path.with_name(f".{path.name}.{secrets.token_hex(4)}.incomplete")
    try:
        yield incomplete
        with os_errors(path):
            _name_finally(incomplete, path)
    finally:
        with contextlib.suppress(OSError):
            incomplete.unlink(missing_ok=True)


def _name_finally(incomplete: Path, path: Path) -> None:
    """Give a file its name, unless another process took it meanwhile; a rename would replace that one's."""
    try:
        os.link(incomplete, path)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError:  # a file system without hard links, such as a share of another machine
        if path.exists():
            raise _exists(path) from None
        incomplete.rename(path)


def _exists(path: Path) -> InvalidInput:
    return InvalidInput("The file already exists", where=str(path), hint="Choose another name.")


@contextlib.contextmanager
def _source(source: str) -> Iterator[Path]:
    if not source.startswith(_S3):
        yield Path(source)
        return
    from pt2hub.server.blobs.s3 import files

    with tempfile.TemporaryDirectory(prefix="pt2hub-backup-") as folder:
        path = Path(folder, "backup")
        files.download(source, path)
        yield path
