"""Policies of models from the client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain.digests import canonical_json
from pt2hub.domain.names import parse_model_name
from pt2hub.errors import InvalidInput, NotFound
from pt2hub.wire.performance import PolicyView

if TYPE_CHECKING:
    from pt2hub.client.transport import Transport

_HINT = "Write gates: and metrics: at the top level; `gates: []` alone demands nothing."


class Policies:
    """Policies, over one transport."""

    def __init__(self, transport: Transport) -> None:
        """Uses a server."""
        self._transport = transport

    def policy(self, model: str) -> PolicyView:
        """The policy of a model; revision 0 where it never had one.

        Raises:
            NotFound: There is no such model.
        """
        return self._transport.fetch(PolicyView, _path(model))

    def put(
        self, model: str, document: Mapping[str, Any] | str | Path, revision: int | None = None
    ) -> PolicyView:
        """Changes the policy of a model; see `Client.set_policy`."""
        policy = document if isinstance(document, Mapping) else _read(Path(document))
        known = self.policy(model).revision if revision is None else revision
        return self._transport.ask(PolicyView, "PUT", _path(model), _body(policy, known))


def _path(model: str) -> str:
    return f"/api/v1/models/{parse_model_name(model)}/policy"


def _body(policy: Mapping[str, Any], revision: int) -> bytes:
    try:
        return canonical_json({"document": dict(policy), "revision": revision})
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidInput(
            f"The policy has no form in JSON: {exc}",
            where="policy",
            hint="Use dicts with text keys, lists, text, numbers, booleans and None.",
        ) from exc


def _read(path: Path) -> dict[str, Any]:
    from pt2hub.wire.documents import parse_document  # it brings yaml, which nothing else here needs

    try:
        return parse_document(path.read_bytes(), hint=_HINT)
    except OSError as exc:
        raise NotFound(
            f"The policy cannot be read: {exc.strerror or exc}",
            where=str(path),
            hint="Name a YAML or JSON file.",
        ) from exc
    except InvalidInput as exc:
        raise InvalidInput(exc.message, where=f"{path}: {exc.where}", hint=exc.hint) from exc
