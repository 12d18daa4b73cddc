"""A database that is new beside a storage in use: it gives no number twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.errors import ReindexDue
from support.pages import Page
from support.promoted import ADMIN, MODEL, move, published

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from support.registry import Registry


def lose_database(registry: Registry) -> None:
    """Leaves a database as migrations make it."""
    registry.services.journal.write()
    registry.sql("TRUNCATE models, versions, aliases, artifacts, blobs, labels, server_settings CASCADE")


def test_nothing_new_is_published_to_an_empty_database_beside_a_used_storage(
    registry: Registry, web: FlaskClient
) -> None:
    published(registry)
    move(registry, 1, None)
    services = registry.services
    lose_database(registry)
    services.storage_acquaintance.check()
    assert services.storage_acquaintance.explain_reindex_due()
    with pytest.raises(ReindexDue, match="could get a number that is taken there"):
        published(registry)
    front = Page(web.get("/").get_data(as_text=True)).text
    assert "The database lacks versions that the storage has: nothing can be published." in front
    assert "Publish the first one" not in front
    services.reindex.reindex(by=ADMIN)
    assert services.storage_acquaintance.explain_reindex_due() is None
    assert services.aliases.alias(MODEL, "prod").number == 1
    published(registry)
    assert [item.number for item in services.catalog.versions(MODEL).versions] == [2, 1]
    assert "lacks versions" not in Page(web.get("/").get_data(as_text=True)).text


def test_a_storage_that_holds_nothing_and_one_whose_models_were_all_deleted_are_no_loss(
    registry: Registry,
) -> None:
    services = registry.services
    services.storage_acquaintance.check()
    published(registry)
    services.deletion.model(MODEL, by=ADMIN, reason="trial")
    services.journal.write()
    services.storage_acquaintance.check()
    assert services.storage_acquaintance.explain_reindex_due() is None
    published(registry)


def test_a_reindex_that_dies_leaves_it_due(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    published(registry)
    services = registry.services
    lose_database(registry)
    services.storage_acquaintance.check()
    monkeypatch.setattr(services.reindex, "apply_tombstones", lambda **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        services.reindex.reindex(by=ADMIN)
    with pytest.raises(ReindexDue):
        published(registry)
