"""Admin operations on the server's machine, with or without a running `pt2hub up`."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any, Unpack

import structlog

from pt2hub.domain.digests import Digest
from pt2hub.domain.names import Reference
from pt2hub.errors import BadConfiguration, HomeInUse
from pt2hub.server import worker_access
from pt2hub.server.container import open_container
from pt2hub.server.db import migrations
from pt2hub.server.db.embedded import EmbeddedPostgres
from pt2hub.server.operator import operator
from pt2hub.system.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import timedelta

    from pt2hub.domain.audit import AuditFilter
    from pt2hub.domain.damage import HealOutcome, ScrubReport
    from pt2hub.domain.key_audits import KeyFinding
    from pt2hub.domain.people import Person, Role, RoleAssignment
    from pt2hub.domain.statistics import QueueStatistics, RepeatedBuild
    from pt2hub.domain.storage_check import StorageCheck
    from pt2hub.domain.tokens import TokenInfo
    from pt2hub.domain.trust import TrustRule
    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container
    from pt2hub.server.services.access.tokens import Grant
    from pt2hub.server.services.operations.heal import HealSource
    from pt2hub.server.worker_access import WorkerRole
    from pt2hub.wire.audit_log import AuditEntry, AuditPage
    from pt2hub.wire.collections import CollectionReport
    from pt2hub.wire.responses import BuildView


def create_token(config: ServerConfig, name: str = "admin", **grant: Unpack[Grant]) -> str:
    """Create a token. Only its hash is stored, so it can be read only once.

    Args:
        **grant: What it allows, as for `AccessService.create_token`.

    Raises:
        InvalidInput: The name, a scope, a pattern or the lifetime is invalid.
        DatabaseUnavailable: The database is unavailable.
    """
    with open_services(config) as container:
        return container.access.create_token(name, **grant, by=operator())


def list_tokens(config: ServerConfig) -> tuple[TokenInfo, ...]:
    """Return all tokens, including revoked ones; errors as for `create_token`."""
    with open_services(config) as container:
        return container.access.tokens()


def revoke_token(config: ServerConfig, name_or_id: str) -> TokenInfo:
    """Revoke a token; see `AccessService.revoke`.

    Raises:
        NotFound: The token does not exist.
        Ambiguous: Several valid tokens have that name.
        DatabaseUnavailable: The database is unavailable.
    """
    with open_services(config) as container:
        return container.access.revoke(name_or_id, by=operator())


def add_trust(config: ServerConfig, name: str, **rule: Any) -> TrustRule:
    """Add a trust rule; see `TrustService.add`."""
    with open_services(config) as container:
        return container.trust.add(name, **rule, by=operator())


def list_trust(config: ServerConfig) -> tuple[TrustRule, ...]:
    """Return the trust rules in the order in which they apply."""
    with open_services(config) as container:
        return container.trust.rules()


def remove_trust(config: ServerConfig, rule_id: int) -> TrustRule:
    """Remove a trust rule; see `TrustService.remove`."""
    with open_services(config) as container:
        return container.trust.remove(rule_id, by=operator())


def assign_role(config: ServerConfig, group: str, role: Role, pattern: str) -> RoleAssignment:
    """Give a group a role on some models; see `RoleService.assign`."""
    with open_services(config) as container:
        return container.roles.assign(group, role, pattern, by=operator())


def list_roles(config: ServerConfig) -> tuple[RoleAssignment, ...]:
    """Return the roles of groups."""
    with open_services(config) as container:
        return container.roles.assignments(operator())


def remove_role(config: ServerConfig, assignment_id: int) -> RoleAssignment:
    """Take a role from a group; see `RoleService.remove`."""
    with open_services(config) as container:
        return container.roles.remove(assignment_id, by=operator())


def list_people(config: ServerConfig) -> tuple[Person, ...]:
    """Return the people who signed in."""
    with open_services(config) as container:
        return container.people.all()


def end_person(config: ServerConfig, name_or_id: str) -> Person:
    """End the access of a person at once; see `PeopleService.end`."""
    with open_services(config) as container:
        return container.people.end(name_or_id, by=operator())


def reindex(config: ServerConfig, *, accept_losses: bool = False) -> dict[str, Any]:
    """Rebuild the database's rows from the manifests and the journal in storage; doing it twice is harmless.

    Args:
        accept_losses: Let the collector take what only unreadable documents name.

    Returns:
        How much of what was found and written.

    Raises:
        DatabaseUnavailable: The database is unavailable.
        StorageUnavailable: The storage does not answer.
    """
    with open_services(config, reporting=True) as container:
        return container.reindex.reindex(by=operator(), accept_losses=accept_losses)


def scrub(
    config: ServerConfig,
    *,
    everything: bool,
    bytes_per_s: int,
    meter: Callable[[int], AbstractContextManager[Callable[[int], None]]],
) -> ScrubReport:
    """Read stored blobs again and record damage, beside a running server; see `ScrubService.run`.

    Args:
        meter: Shows the progress through a number of bytes.

    Raises:
        SchemaOlder: The schema must be brought up to date first.
        DatabaseUnavailable: The database is unavailable.
        StorageUnavailable: The storage does not answer.
    """
    with open_services(config, upgrading=False, reporting=True) as container:
        _, total = container.scrub.count_due(everything=everything)
        with meter(total) as seen:
            return container.scrub.run(everything=everything, bytes_per_s=bytes_per_s, seen=seen)


def check_storage(config: ServerConfig) -> StorageCheck:
    """Compare the database and the storage, beside a running server; errors as for `scrub`."""
    with open_services(config, upgrading=False) as container:
        return container.storage_check.check()


def heal(
    config: ServerConfig,
    digests: Sequence[Digest],
    sources: Sequence[HealSource],
    *,
    rebuild: bool = False,
) -> tuple[HealOutcome, ...]:
    """Replace damaged blobs by right bytes from elsewhere, beside a running server; errors as for `scrub`.

    Args:
        digests: Which ones; empty for all that are damaged.
        sources: Where to look for the bytes, in this order.
        rebuild: Whether to have built again what no source has and a build made.
    """
    with open_services(config, upgrading=False, reporting=True) as container:
        return tuple(container.heal.heal(digests, sources, rebuild=rebuild, by=operator()))


def collect(
    config: ServerConfig,
    *,
    dry_run: bool = False,
    grace: timedelta | None = None,
    on_progress: Callable[[CollectionReport], object] | None = None,
) -> CollectionReport:
    """Collect blobs that nothing needs; see `CollectorService`.

    Raises:
        CollectionRefused: The database lacks references.
        SchemaOlder: The schema must be brought up to date first.
        DatabaseUnavailable: The database is unavailable.
        StorageUnavailable: The storage does not answer.
    """
    with open_services(config, upgrading=False) as container:
        if dry_run:
            return container.collector.preview(grace=grace)
        return container.collector.collect(grace=grace, on_progress=on_progress)


def accept(config: ServerConfig, what: str, reason: str) -> list[Digest]:
    """Let bytes be stored again that a forced deletion refused.

    Args:
        what: A digest, or the version that was deleted, as `team/name@3`.

    Returns:
        The digests.

    Raises:
        InvalidInput: The reference is malformed.
        NotFound: Nothing of it is refused.
    """
    with open_services(config, upgrading=False) as container:
        if "/" not in what:
            digest = Digest(what)
            container.deletion.accept(digest, reason=reason, by=operator())
            return [digest]
        version = Reference.parse(what)
        return container.deletion.accept_version(
            version.model, version.number or 0, reason=reason, by=operator()
        )


def audit_keys(config: ServerConfig) -> tuple[KeyFinding, ...]:
    """Find artifacts that reused code under an older key schema, without changing anything.

    Raises:
        SchemaOlder: The schema must be brought up to date first.
        DatabaseUnavailable: The database is unavailable.
    """
    with open_services(config, upgrading=False) as container:
        return container.key_audits.audit()


def migrate(config: ServerConfig) -> tuple[str, str]:
    """Upgrade the database schema to the newest revision; safe while the server runs.

    Returns:
        The revision before, empty for an empty database, and the one now.

    Raises:
        SchemaNewer: A newer pt2hub wrote the database.
        DatabaseUnavailable: The database does not answer, or a table stayed locked.
    """
    with open_database(config) as database_url:
        before = migrations.current(database_url)
        migrations.upgrade(database_url)
        return before, migrations.current(database_url)


def worker_role_script(config: ServerConfig, role: str) -> str:
    """Return the SQL that creates the workers' role; see `worker_access.role_script`.

    Raises:
        SchemaOlder: The schema must be brought up to date first.
        InvalidInput: The name is invalid.
        DatabaseUnavailable: The database is unavailable.
    """
    with open_database(config) as database_url:
        migrations.require(database_url)
        return worker_access.role_script(database_url, role)


def apply_worker_role(config: ServerConfig, role: str, *, new_password: bool) -> WorkerRole:
    """Create the workers' role, or grant its rights anew; see `worker_access.apply_role`.

    Raises:
        SchemaOlder: The schema must be brought up to date first.
        InvalidInput: The name is invalid, or the role may do more than workers need.
        BadConfiguration: The database's user may not create roles.
        DatabaseUnavailable: The database is unavailable.
    """
    with open_database(config) as database_url:
        migrations.require(database_url)
        return worker_access.apply_role(database_url, role, new_password=new_password)


def inspect_queues(config: ServerConfig) -> tuple[tuple[QueueStatistics, ...], list[RepeatedBuild]]:
    """Return the queues of all targets, and unfinished builds after several attempts.

    Raises:
        SchemaOlder: The schema must be brought up to date first; looking does not do it.
        SchemaNewer: A newer pt2hub wrote the database.
        DatabaseUnavailable: The database is unavailable.
    """
    with open_services(config, upgrading=False) as container:
        return container.statistics.queues()


def requeue(config: ServerConfig, build_id: str) -> BuildView:
    """Take a running build from its worker; see `BuildService.requeue`.

    Raises:
        NotFound: The build does not exist.
        BuildActive: It is queued.
        BuildOver: It is over.
        SchemaOlder: The schema must be brought up to date first.
        DatabaseUnavailable: The database is unavailable.
    """
    with open_services(config, upgrading=False) as container:
        return container.builds.requeue(build_id, by=operator())


def audit_log(config: ServerConfig, wanted: AuditFilter, *, limit: int) -> AuditPage:
    """Return the newest audit entries.

    Raises:
        InvalidInput: The model's name is malformed.
        SchemaOlder: The schema must be brought up to date first.
        DatabaseUnavailable: The database is unavailable.
    """
    with open_services(config, upgrading=False) as container:
        return container.audit_log.entries(wanted, limit=limit)


def export_audit_log(config: ServerConfig, wanted: AuditFilter) -> Iterator[AuditEntry]:
    """Yield all audit entries, oldest first; errors as for `audit_log`."""
    with open_services(config, upgrading=False) as container:
        yield from container.audit_log.export(wanted)


@contextlib.contextmanager
def open_services(
    config: ServerConfig, *, upgrading: bool = True, reporting: bool = False
) -> Iterator[Container]:
    """Yield the services over a database with the current schema.

    Args:
        upgrading: Whether to upgrade the schema.
        reporting: Whether the command itself reports what the services would log: damage.
    """
    if not upgrading:
        require_database(config)
    level = logging.CRITICAL if reporting else logging.WARNING
    with _quiet(level), open_database(config) as database_url:
        if upgrading or config.database_url is None:  # its own server's, which brings it up to date as well
            migrations.upgrade(database_url)
        else:
            migrations.require(database_url)
        with open_container(config, database_url=database_url) as container:
            yield container


def require_database(config: ServerConfig) -> None:
    """Refuse a home that has no database, instead of making one.

    Raises:
        BadConfiguration: It has none, and no other database is set.
    """
    if config.database_url is None and not Home(config.home).database.exists():
        raise BadConfiguration(
            "The home has no database: no server was ever started with it",
            where=str(config.home),
            hint="Set PT2HUB_HOME as for pt2hub up, or PT2HUB_DATABASE_URL as for pt2hub api.",
        )


@contextlib.contextmanager
def _quiet(level: int) -> Iterator[None]:
    """Keep log lines off standard output, which belongs to the command."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.configure(**before)


@contextlib.contextmanager
def open_database(config: ServerConfig) -> Iterator[str]:
    """Yield the database's URL: the configured one, that of a running `up`, or one started for now."""
    home = Home(config.home)
    embedded = EmbeddedPostgres(home.database)
    with contextlib.ExitStack() as stack:
        if config.database_url is None:
            with contextlib.suppress(HomeInUse):  # then `up` runs, and its database is there to be used
                stack.enter_context(home.held())
                stack.enter_context(embedded)
        yield config.database_url or embedded.url
