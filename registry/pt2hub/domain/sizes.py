"""Sizes in bytes, as people write them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([kmgt])ib", re.IGNORECASE)
_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}
SIZE_HINT = "Write a number with a unit (KiB, MiB, GiB or TiB): 16GiB."


def parse_size(text: str) -> int | None:
    """Return the bytes of a size such as `16GiB`, or of 0; None if it is not a size with a unit."""
    if text.strip() == "0":
        return 0
    match = _SIZE.fullmatch(text.strip())
    return int(float(match[1]) * (1 << _UNITS[match[2].lower()])) if match else None
