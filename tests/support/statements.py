"""SQLAlchemy's compiled statements, kept for all tests of a process instead of one test's engine.

A process of the API compiles each statement once. Every test has an engine of its own, with a dialect of its own in the
keys of every cache: compiling anew took a tenth of the tests of services.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.util import LRUCache

from pt2hub.server.db import engine as engines

if TYPE_CHECKING:
    import sqlalchemy

_COMPILED: LRUCache[Any, Any] = LRUCache(2000)
"""More than the statements of all services: a test compiles none that another one did."""
_create = engines.create


def _create_with_shared(database_url: str) -> sqlalchemy.Engine:
    engine = _create(database_url)
    engine.update_execution_options(compiled_cache=_COMPILED)
    return engine


def share() -> None:
    """Let all engines of `engines.create` use the same cache, and take their dialects, which have no settings, as equal."""
    PGDialect_psycopg.__eq__ = lambda one, other: type(one) is type(other)
    PGDialect_psycopg.__hash__ = lambda dialect: hash(type(dialect))
    engines.create = _create_with_shared
