"""Lineage of versions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pt2hub.client.http.paths import model_path
from pt2hub.client.resources import Resource
from pt2hub.domain.lineage import DEFAULT_DEPTH
from pt2hub.wire.lineage import DerivationList, LineageView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.wire.lineage import DerivationView


class Lineage(Resource):
    """What versions are derived from, and what is derived from them."""

    def get(self, model: str, number: int, *, depth: int = DEFAULT_DEPTH) -> LineageView:
        """Return the lineage of a version, both ways.

        Args:
            depth: Generations in each direction.

        Raises:
            NotFound: The model or version does not exist.
        """
        path = f"{model_path(model)}/versions/{number}/lineage?depth={depth}"
        return self._transport.ask(LineageView, "GET", path)

    def change(
        self, model: str, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> tuple[DerivationView, ...]:
        """Add and remove parents of a version; others stay.

        Args:
            add: Derivations: `fine-tuned:team/name@3`, `quantized:hf:team/name@revision`.
            remove: Parents as they are shown; missing ones are ignored.

        Returns:
            What the version is derived from afterwards.

        Raises:
            InvalidInput: A derivation is malformed, or there are too many.
            NotFound: A version does not exist.
            LineageCycle: The version would be derived from itself.
            Forbidden: The token does not allow `publish` of the model.
        """
        body = json.dumps({"add": [*add], "remove": [*remove]}).encode()
        path = f"{model_path(model)}/versions/{number}/lineage"
        return self._transport.ask(DerivationList, "PATCH", path, body).derived_from
