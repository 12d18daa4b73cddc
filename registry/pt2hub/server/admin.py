"""What an operator does on the server's machine, while `pt2hub up` runs or not."""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import structlog

from pt2hub.errors import BadConfiguration, HomeInUse
from pt2hub.server import demo
from pt2hub.server.container import open_container
from pt2hub.server.db import migrating, seeding
from pt2hub.server.db.embedded import EmbeddedPostgres
from pt2hub.server.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub.domain.key_audits import KeyFinding
    from pt2hub.domain.statistics import QueueStatistics, RepeatedBuild
    from pt2hub.domain.tokens import TokenInfo
    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container
    from pt2hub.server.db.seeding import Seeded
    from pt2hub.server.demo import Demo
    from pt2hub.wire.shapes import BuildView


def create_token(config: ServerConfig, *, name: str = "admin", admin: bool = False) -> str:
    """Makes a token; only its hash is stored, so this is the one time it can be read.

    Args:
        config: The server's settings.
        name: What the token is called in lists.
        admin: Whether it may force what a model's policy refuses.

    Raises:
        DatabaseUnavailable: The database does not answer.
    """
    with _services(config) as container:
        return container.access.create_token(name, admin=admin)


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


def audit_keys(config: ServerConfig) -> tuple[KeyFinding, ...]:
    """Finds artifacts that reuse code by a program key that names less than today's; changes nothing.

    Args:
        config: The server's settings.

    Raises:
        SchemaOlder: The schema must be brought up to date first.
        DatabaseUnavailable: The database does not answer.
    """
    with _services(config, upgrading=False) as container:
        return container.key_audits.audit()


def migrate(config: ServerConfig) -> tuple[str, str]:
    """Brings the database's schema to the newest revision; harmless while others work with it.

    Args:
        config: The server's settings.

    Returns:
        The revision before, empty for an empty database, and the one now.

    Raises:
        SchemaNewer: A newer pt2hub wrote the database.
        DatabaseUnavailable: The database does not answer, or a table stayed locked.
    """
    with _database(config) as database_url:
        before = migrating.current(database_url)
        migrating.upgrade(database_url)
        return before, migrating.current(database_url)


def inspect_queues(config: ServerConfig) -> tuple[tuple[QueueStatistics, ...], list[RepeatedBuild]]:
    """Every target's queue, and the builds that are not over after several attempts.

    Args:
        config: The server's settings.

    Raises:
        SchemaOlder: The schema must be brought up to date first; looking does not do it.
        SchemaNewer: A newer pt2hub wrote the database.
        DatabaseUnavailable: The database does not answer.
    """
    with _services(config, upgrading=False) as container:
        return container.statistics.queues()


def requeue(config: ServerConfig, build_id: str) -> BuildView:
    """Takes a running build from its worker; see `BuildService.requeue`.

    Raises:
        NotFound: There is no such build.
        BuildActive: It is queued.
        BuildOver: It is over.
        SchemaOlder: The schema must be brought up to date first.
        DatabaseUnavailable: The database does not answer.
    """
    with _services(config, upgrading=False) as container:
        return container.builds.requeue(build_id, by=_operator())


def seed_history(
    config: ServerConfig, measurements: int, *, force: bool, say: Callable[[str], None]
) -> Seeded:
    """Writes a made-up performance history; see `seeding.seed_history`.

    Raises:
        InvalidInput: There are models already.
        DatabaseUnavailable: The database does not answer.
    """
    with _database(config) as database_url:
        migrating.upgrade(database_url)
        return seeding.seed_history(database_url, measurements, force=force, say=say)


def seed_demo(config: ServerConfig, *, beside: bool, say: Callable[[str], None]) -> Demo:
    """Fills the server with a made-up year; see `demo.seed`.

    Raises:
        InvalidInput: There are models already.
        DatabaseUnavailable: The database does not answer.
        StorageUnavailable: The storage does not answer.
    """
    with _services(config) as container:
        return demo.seed(container, database_url=container.database_url, beside=beside, say=say)


def _operator() -> str:
    """Who did it, for the build's history: there is no token here, but an account of this machine."""
    try:
        return f"{getpass.getuser()} (pt2hub admin)"
    except (KeyError, OSError):  # a container runs accounts that have no name
        return f"{os.getuid()} (pt2hub admin)"


@contextlib.contextmanager
def _services(config: ServerConfig, *, upgrading: bool = True) -> Iterator[Container]:
    """The services over a database whose schema fits.

    Args:
        config: The server's settings.
        upgrading: Bring the schema up to date; else refuse a foreign database that is not.
    """
    if not upgrading and config.database_url is None and not Home(config.home).database.exists():
        raise BadConfiguration(
            "No server was ever started in this home",
            where=str(config.home),
            hint="Set PT2HUB_HOME as for pt2hub up, or PT2HUB_DATABASE_URL as for pt2hub api.",
        )
    with _quiet(), _database(config) as database_url:
        if upgrading or config.database_url is None:  # its own server's, which brings it up to date as well
            migrating.upgrade(database_url)
        else:
            migrating.require(database_url)
        with open_container(config, database_url=database_url) as container:
            yield container


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what services log from standard output, which is the command's: it says itself what it did."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.configure(**before)


@contextlib.contextmanager
def _database(config: ServerConfig) -> Iterator[str]:
    """The database's URL: the configured one, that of a running `up`, or one started for now."""
    home = Home(config.home)
    embedded = EmbeddedPostgres(home.database)
    with contextlib.ExitStack() as stack:
        if config.database_url is None:
            with contextlib.suppress(HomeInUse):  # then `up` runs, and its database is there to be used
                stack.enter_context(home.held())
                stack.enter_context(embedded)
        yield config.database_url or embedded.url
