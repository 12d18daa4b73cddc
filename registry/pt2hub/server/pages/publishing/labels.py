"""Labels as pages show them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import url_for

from pt2hub.domain.labels import label_link
from pt2hub.rendering.hashes import shorten_hashes

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ShownLabel:
    """A label on a page.

    Attributes:
        short: The value with digests and commits shortened.
        link: Where the value leads to; None for plain text.
        others: Address of the search for versions with the same label.
    """

    key: str
    value: str
    short: str
    link: str | None
    others: str


def show_labels(labels: Mapping[str, str]) -> list[ShownLabel]:
    """Return labels for a page, by key."""
    return [
        ShownLabel(
            key,
            value,
            shorten_hashes(value),
            label_link(key, labels),
            url_for("pages.versions", q=_condition(key, value)),
        )
        for key, value in sorted(labels.items())
    ]


def _condition(key: str, value: str) -> str:
    return f"{key}={shlex.quote(value)}"
