"""Blocks that read together: one transaction, of one moment, in which nothing is read twice and nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy
from sqlalchemy import event

from pt2hub.errors import DatabaseReadOnly, NotFound
from support.promoted import MODEL, move, published

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask.testing import FlaskClient

    from support.registry import Registry


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """What is sent to the database."""
    sent: list[str] = []

    def note(*given: object) -> None:
        sent.append(str(given[2]))

    event.listen(sqlalchemy.Engine, "before_cursor_execute", note)
    yield sent
    event.remove(sqlalchemy.Engine, "before_cursor_execute", note)


def test_a_block_sees_one_moment_and_the_next_one_the_present(registry: Registry) -> None:
    for _ in range(2):
        published(registry)
    move(registry, 1, None)
    services = registry.services
    with services.read_together():
        assert services.aliases.alias(MODEL, "prod").number == 1
        registry.sql("UPDATE aliases SET version_id = (SELECT id FROM versions WHERE number = 2)")
        assert services.aliases.alias(MODEL, "prod").number == 1
    assert services.aliases.alias(MODEL, "prod").number == 2


def test_a_block_writes_nothing_and_leaves_nothing_behind(registry: Registry) -> None:
    published(registry)
    services = registry.services
    with pytest.raises(DatabaseReadOnly), services.read_together():
        move(registry, 1, None)
    with services.read_together(), pytest.raises(NotFound):
        services.publish.version(MODEL, 7)
    with pytest.raises(NotFound), services.read_together():
        services.publish.version(MODEL, 7)
    move(registry, 1, None)
    assert services.aliases.alias(MODEL, "prod").number == 1


@pytest.mark.parametrize("page", [f"/models/{MODEL}", f"/models/{MODEL}/versions/2"])
def test_pages_of_models_and_versions_read_nothing_twice(
    web: FlaskClient, registry: Registry, statements: list[str], page: str
) -> None:
    for _ in range(2):
        published(registry)
    move(registry, 1, None)
    statements.clear()
    assert web.get(page).status_code == 200
    for start in (
        "SELECT models.id \nFROM models",
        "SELECT policies.",
        "SELECT versions.id, versions.model_id",
    ):
        found = [text for text in statements if text.startswith(start)]
        assert len(found) <= 2, found  # of the version, and of the one in production
