"""Where rollbacks of aliases lead, and what stands in the way.

The obstacles are those of any alias move, found by the same functions, so that no page offers what a move would refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.rollbacks import rollback_version
from pt2hub.errors import NotFound, NotReady, VersionYanked
from pt2hub.server.db.stores.artifacts.artifacts import ArtifactStore
from pt2hub.server.db.stores.promotion.aliases import AliasStore
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.services import not_found
from pt2hub.server.services.promotion.checks import PromotionChecks
from pt2hub.server.services.promotion.decisions import AliasMoveRequest, PolicyDecision
from pt2hub.server.services.promotion.yanks import check_not_yanked
from pt2hub.server.views.rollbacks import Rollback

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.errors import Pt2hubError
    from pt2hub.server.db.stores.publishing.versions import StoredVersion


def find_rollbacks(session: Session, model: str, model_id: int) -> dict[str, Rollback]:
    """Return where rollbacks of a model's aliases lead, by alias; those that have no earlier version left are missing."""
    store = AliasStore(session)
    found: dict[str, Rollback] = {}
    for alias, steps in store.steps(model).items():
        back = rollback_version(steps)
        if back is not None:
            move = AliasMoveRequest(model, model_id, alias, steps[-1][1], back)
            found[alias] = Rollback(back, _find_obstacle(session, move, back))
    return found


def require_pullable(session: Session, model: str, number: int) -> StoredVersion:
    """Return a version that has an artifact to pull.

    Raises:
        NotFound: The version does not exist.
        NotReady: It has no artifact yet.
    """
    version = VersionStore(session).by_number(model, number)
    if version is None:
        raise not_found.no_version(session, model, number)
    if not ArtifactStore(session).taken(version.id):
        raise not_found.not_ready(session, version)
    return version


def _find_obstacle(session: Session, move: AliasMoveRequest, number: int) -> Pt2hubError | None:
    try:
        version = require_pullable(session, move.model, number)
        check_not_yanked(version, version.yanked)
    except (NotFound, NotReady, VersionYanked) as error:
        return error
    damage = PromotionChecks(session).damage(move)
    return PolicyDecision(move, 0, damage).error() if damage else None
