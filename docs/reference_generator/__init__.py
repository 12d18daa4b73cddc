"""Writes docs/reference/ from the code: `make docs`.

A page depends on nothing but the code, so a test compares the committed pages with what this prints. Text that
the code cannot know stands at the top of each page's module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference_generator import api_page, cli_page, errors_page, lock_page, spec_page

if TYPE_CHECKING:
    from collections.abc import Callable

_PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page.page,
    "api.md": api_page.page,
    "spec.md": spec_page.page,
    "lock.md": lock_page.page,
    lock_page.SCHEMA_NAME: lock_page.schema,
    "errors.md": errors_page.page,
}


def pages() -> dict[str, str]:
    """Return every page by its file's name."""
    return {name: make() for name, make in _PAGES.items()}
