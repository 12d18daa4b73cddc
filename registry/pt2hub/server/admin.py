"""What an operator does on the server's machine, while `pt2hub up` runs or not."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pt2hub.errors import HomeInUse
from pt2hub.server.container import open_container
from pt2hub.server.db import migrating
from pt2hub.server.db.embedded import EmbeddedPostgres
from pt2hub.server.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.tokens import TokenInfo
    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container


def create_token(config: ServerConfig, *, name: str = "admin") -> str:
    """Makes a token; only its hash is stored, so this is the one time it can be read.

    Args:
        config: The server's settings.
        name: What the token is called in lists.

    Raises:
        DatabaseUnavailable: The database does not answer.
    """
    with _services(config) as container:
        return container.access.create_token(name)


def list_tokens(config: ServerConfig) -> tuple[TokenInfo, ...]:
    """Every token, revoked ones too; errors as for `create_token`."""
    with _services(config) as container:
        return container.access.tokens()


def revoke_token(config: ServerConfig, name_or_id: str) -> TokenInfo:
    """Revokes a token; see `AccessService.revoke`.

    Raises:
        NotFound: There is no such token.
        Ambiguous: Several valid tokens have that name.
        DatabaseUnavailable: The database does not answer.
    """
    with _services(config) as container:
        return container.access.revoke(name_or_id)


def reindex(config: ServerConfig) -> dict[str, Any]:
    """Rebuilds the database's rows about artifacts from the manifests in storage; doing it twice is harmless.

    Args:
        config: The server's settings.

    Returns:
        How much of what was found and written.

    Raises:
        DatabaseUnavailable: The database does not answer.
        StorageUnavailable: The storage does not answer.
    """
    with _services(config) as container:
        return container.reindex.reindex()


@contextlib.contextmanager
def _services(config: ServerConfig) -> Iterator[Container]:
    with (
        _database(config) as database_url,
        open_container(config, database_url=database_url) as container,
    ):
        yield container


@contextlib.contextmanager
def _database(config: ServerConfig) -> Iterator[str]:
    """The database's URL, migrated: the configured one, that of a running `up`, or one started for now."""
    home = Home(config.home)
    embedded = EmbeddedPostgres(home.database)
    with contextlib.ExitStack() as stack:
        if config.database_url is None:
            with contextlib.suppress(HomeInUse):  # then `up` runs, and its database is there to be used
                stack.enter_context(home.held())
                stack.enter_context(embedded)
        database_url = config.database_url or embedded.url
        migrating.upgrade(database_url)
        yield database_url
