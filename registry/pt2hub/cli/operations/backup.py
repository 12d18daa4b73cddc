"""`pt2hub admin backup` and `restore`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit

if TYPE_CHECKING:
    from pt2hub.server.db.backup import Backup


@panels.command(
    None, "pt2hub admin backup pt2hub-2026-11-27.backup", "pt2hub admin backup s3://backups/pt2hub-2026-11-27"
)
def backup(
    to: Annotated[str, typer.Argument(metavar="FILE|S3", help="New file, or s3://bucket/key.")],
) -> None:
    """Back up the database, also of a running server.

    The backup has hashes of tokens and everything else that the database has. It does not have the storage: copy that
    afterwards, since everything that the backup refers to is stored by then.
    """
    from pt2hub.server.backups import write_backup
    from pt2hub.server.config import ServerConfig

    written = write_backup(ServerConfig.from_environ(os.environ), to)
    text = f"Backed up {written.rows} rows of {len(written.tables)} tables, at revision {written.revision}, to {to}."
    emit(_document(written), lambda out: out.print(text))


@panels.command(
    None,
    "pt2hub admin restore pt2hub-2026-11-27.backup",
    "pt2hub admin restore s3://backups/pt2hub-2026-11-27",
)
def restore(
    source: Annotated[str, typer.Argument(metavar="FILE|S3", help="What `pt2hub admin backup` wrote.")],
) -> None:
    """Restore a backup into an empty database.

    Backups of older releases are upgraded. Versions, builds and models that were deleted since the backup are deleted
    again, if PT2HUB_STORAGE is the server's storage. Run `pt2hub admin reindex` afterwards to add what was published since, before the server starts.
    """
    from pt2hub.server.backups import restore_backup
    from pt2hub.server.config import ServerConfig

    restored = restore_backup(ServerConfig.from_environ(os.environ), source)
    found = restored.backup
    document = _document(found) | {"deleted": list(restored.deleted), "unreadable": restored.unreadable}
    lines = [f"Restored {found.rows} rows of {len(found.tables)} tables, as of {found.created_at}."]
    if restored.deleted:
        lines.append(f"Deleted again, since the storage has their tombstones: {', '.join(restored.deleted)}.")
    lines += [f"unreadable: {digest}: {reason}" for digest, reason in restored.unreadable.items()]
    lines.append(
        "Before the server starts, add what was published and end what was ended since: pt2hub admin reindex. "
        "Until then nothing new is published, and nothing is collected or deleted by policies."
    )
    emit(document, lambda out: out.print("\n".join(lines)))


def _document(backup: Backup) -> dict[str, Any]:
    return {
        "created_at": backup.created_at,
        "revision": backup.revision,
        "pt2hub": backup.pt2hub,
        "tables": len(backup.tables),
        "rows": backup.rows,
    }
