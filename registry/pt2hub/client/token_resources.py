"""Tokens of a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pt2hub.client.resources import Resource
from pt2hub.domain.tokens import TokenInfo
from pt2hub.wire.tokens import CreatedToken, TokenList

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from pt2hub.domain.tokens import Scope

_PATH = "/api/v1/tokens"


class Tokens(Resource):
    """Tokens that the client's own token manages."""

    def list(self) -> tuple[TokenInfo, ...]:
        """Return the client's token, and with an admin token all that it covers."""
        return self._transport.fetch(TokenList, _PATH).tokens

    def create(
        self, name: str, *, scopes: Sequence[Scope], models: Sequence[str], lasting: timedelta | None = None
    ) -> CreatedToken:
        """Create a token.

        Args:
            lasting: Time until it expires; None for never.

        Raises:
            Forbidden: It would reach further than the client's own token.
        """
        seconds = None if lasting is None else int(lasting.total_seconds())
        document = {"name": name, "scopes": [*scopes], "models": [*models], "expires_seconds": seconds}
        return self._transport.ask(CreatedToken, "POST", _PATH, json.dumps(document).encode())

    def rotate(self, token_id: int, *, overlap: timedelta) -> CreatedToken:
        """Replace a token by one that allows the same.

        Args:
            overlap: How long the old one still works.

        Raises:
            NotFound: There is no such token for the client.
            Forbidden: It is of a person, who replaces it in a browser, or of trusted publishing.
            Conflict: It has ended.
        """
        body = json.dumps({"overlap_seconds": int(overlap.total_seconds())}).encode()
        return self._transport.ask(CreatedToken, "POST", f"{_PATH}/{token_id}/rotate", body)

    def revoke(self, token_id: int) -> TokenInfo:
        """Revoke a token at once; idempotent.

        Raises:
            NotFound: There is no such token for the client.
            Conflict: It is the last admin token for all models.
        """
        return self._transport.ask(TokenInfo, "DELETE", f"{_PATH}/{token_id}")
