"""procrastinate's part of the schema, applied by pt2hub's revisions from the files of the installed wheel."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import TYPE_CHECKING

from procrastinate.schema import SchemaManager

from pt2hub.errors import BadConfiguration

if TYPE_CHECKING:
    import sqlalchemy

PREFIX = "procrastinate_"
"""Tables that Alembic's autogenerate leaves alone."""


def delta_files(*, after: str | None, up_to: str, directory: Path | None = None) -> list[Path]:
    """Return procrastinate's migration files in order, from the one after `after` to `up_to`.

    Args:
        after: Name of the last file that an earlier revision applied, or None.
        directory: Their folder; that of the installed wheel where omitted.

    Raises:
        BadConfiguration: The installed procrastinate lacks one of the two files.
    """
    folder = directory or Path(SchemaManager.get_migrations_path())
    files = sorted(folder.glob("*.sql"))
    names = [file.name for file in files]
    for name in (after, up_to):
        if name is not None and name not in names:
            raise BadConfiguration(
                f"The installed procrastinate {importlib.metadata.version('procrastinate')} lacks {name}, "
                "which the database's schema needs",
                where="procrastinate",
                hint="Install the version that pt2hub requires: pip install --upgrade 'pt2hub[server]'.",
            )
    return files[names.index(after) + 1 if after else 0 : names.index(up_to) + 1]


def apply(connection: sqlalchemy.Connection, *, after: str | None, up_to: str) -> None:
    """Run procrastinate's migration files in the current transaction.

    Raises:
        BadConfiguration: The installed procrastinate is too old.
    """
    for file in delta_files(after=after, up_to=up_to):
        # By the driver and without parameters, so that `:` and `%` in the files have no special meaning.
        cursor = connection.connection.cursor()
        cursor.execute(file.read_text(encoding="utf-8"))
        cursor.close()
