"""Tables of tokens."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pt2hub.domain.tokens import DEFAULT_SCOPES
from pt2hub.rendering.times import NOTHING, format_local_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pt2hub.domain.tokens import TokenInfo


def is_live(item: TokenInfo) -> bool:
    """Return whether a token of a service works: it is neither revoked nor expired."""
    ends = datetime.fromisoformat(item.expires_at) if item.expires_at else None
    return item.owner is None and not item.revoked_at and (ends is None or ends > datetime.now(UTC))


def _allowed(item: TokenInfo) -> str:
    if item.admin:
        return "everything"
    return "all but admin" if frozenset(item.scopes) == DEFAULT_SCOPES else " ".join(item.scopes)


def _token_end(item: TokenInfo) -> str:
    if item.revoked_at:
        return f"revoked {format_local_time(item.revoked_at)}"
    return f"expires {format_local_time(item.expires_at)}" if item.expires_at else NOTHING


def print_tokens(out: Console, found: Sequence[TokenInfo]) -> None:
    """Print a table of tokens."""
    from pt2hub.cli.tables import print_table

    rows = [
        (
            str(item.id),
            item.name,
            _allowed(item),
            " ".join(item.patterns),
            str(item.owner or NOTHING),
            format_local_time(item.created_at),
            format_local_time(item.last_used_at),
            _token_end(item),
        )
        for item in found
    ]
    empty = "No tokens yet. To create one: pt2hub admin token --name ci"
    print_table(
        out, ("ID", "NAME", "ALLOWS", "MODELS", "OWNER", "CREATED", "LAST USED", "ENDS"), rows, empty=empty
    )
