"""Locations of templates and built files: next to this module in a wheel, under `web/` in a checkout."""

from __future__ import annotations

from pathlib import Path

from pt2hub.errors import InternalError

_HERE = Path(__file__).parent


def templates(package: Path = _HERE) -> Path:
    """Return the folder of the templates.

    Raises:
        InternalError: The templates are missing.
    """
    for folder in _candidates(package, "templates"):
        if (folder / "base.html").is_file():
            return folder
    raise InternalError(
        "The templates of the pages are missing from this installation",
        where=str(package / "templates"),
        hint="Install pt2hub again from a wheel, or run it from a whole checkout.",
    )


def static(package: Path = _HERE) -> Path | None:
    """Return the folder of built styles and scripts, or None if nothing was built; pages work without them."""
    found = (folder for folder in _candidates(package, "static") if (folder / "assets.json").is_file())
    return next(found, None)


def _candidates(package: Path, name: str) -> list[Path]:
    # This file lies in registry/pt2hub/server/pages of a checkout.
    return [package / name, *(parent / "web" / name for parent in list(package.parents)[3:4])]
