"""Command-line arguments that set labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable


def parse_pairs(texts: Iterable[str], *, what: str = "label") -> dict[str, str]:
    """Return labels from arguments of the form `KEY=VALUE`; the server checks keys and values.

    Raises:
        click.UsageError: An argument has no value, or a key is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"A {what} must be KEY=VALUE, got {text[:80]!a}.")
        if key.strip() in found:
            raise click.UsageError(f"The {what} {key.strip()[:80]} is given twice.")
        found[key.strip()] = value
    return found
