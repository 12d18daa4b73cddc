"""Rollbacks that would be refused: the pages say what stands in the way, in the words of the refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.digests import Digest
from pt2hub.errors import Deleted, PromotionCheckFailed, VersionYanked
from pt2hub.server.blobs.keys import StorageKey
from support.pages import Page
from support.promoted import ADMIN, MODEL, move, published

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask.testing import FlaskClient

    from pt2hub.errors import Pt2hubError
    from support.registry import Registry

PAGE = f"/models/{MODEL}"
REASON = "<b>wrong</b> labels"


def yank(registry: Registry) -> None:
    registry.services.yanks.yank(MODEL, 1, reason=REASON, by=ADMIN)


def damage(registry: Registry) -> None:
    ((code,),) = registry.sql(
        "SELECT code FROM artifacts JOIN builds b ON b.id = build_id JOIN versions v ON v.id = version_id WHERE number = 1"
    )
    key = StorageKey.blob(Digest(code))
    registry.services.storage.remove([key.at(1)])
    assert registry.services.damage.check_key(key, by="scrub")


def delete(registry: Registry) -> None:
    registry.services.forced_deletion.delete(MODEL, 1, by=ADMIN, reason=REASON, keep_shared=True)


@pytest.mark.parametrize(
    ("spoil", "refusal", "said"),
    [
        (yank, VersionYanked, "it is yanked"),
        (damage, PromotionCheckFailed, "it is damaged"),
        (delete, Deleted, "it was deleted"),
    ],
)
def test_a_rollback_that_would_be_refused_is_not_offered_and_says_why(
    signed_in: FlaskClient,
    registry: Registry,
    spoil: Callable[[Registry], None],
    refusal: type[Pt2hubError],
    said: str,
) -> None:
    for number in (1, 2):
        published(registry)
        move(registry, number, number - 1 or None)
    spoil(registry)
    model, alias = (Page(signed_in.get(url).get_data(as_text=True)) for url in (PAGE, f"{PAGE}/aliases/prod"))
    assert f"Cannot roll back to 1: {said}" in model.text
    assert f"{PAGE}/aliases/prod#rollback" in model.links
    assert "Roll back to" not in model.text + alias.text
    with pytest.raises(refusal) as refused:
        move(registry, 1, 2)
    assert "prod cannot roll back to version 1." in alias.text
    assert f"{refused.value.message} {refused.value.hint}" in alias.text
