"""The parts of an upload, as clients ask for them."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from pt2hub.errors import Detail, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.server.db.stores.uploads import StoredUpload

MOST_PARTS_SIGNED = 100
"""Requests that are signed at once: some kilobytes each as text."""
_MD5_BYTES = 16


def part_size(upload: StoredUpload, number: int) -> int:
    """Bytes of a part; only the last one may have fewer than the others."""
    whole = upload.part_bytes or upload.size
    return min(whole, upload.size - (number - 1) * whole)


def check_parts(upload: StoredUpload, wanted: Sequence[tuple[int, str]]) -> None:
    """Refuses parts that there are not, and what is no MD5.

    Args:
        upload: An upload in parts.
        wanted: Number from 1 and MD5 (base64) of each part.

    Raises:
        InvalidInput: Some are wrong, or there are too many.
    """
    if len(wanted) > MOST_PARTS_SIGNED:
        raise InvalidInput(
            f"{len(wanted)} parts are asked for at once",
            where="parts",
            hint=f"Ask for at most {MOST_PARTS_SIGNED}, and for more when those are sent.",
        )
    wrong = [
        Detail(f"parts[{place}]", "no such part", given=str(number), allowed=f"1 to {upload.parts}")
        for place, (number, _) in enumerate(wanted)
        if not 1 <= number <= upload.parts
    ]
    wrong += [
        Detail(f"parts[{place}].md5", "no MD5 in base64", given=md5[:80])
        for place, (_, md5) in enumerate(wanted)
        if not _is_md5(md5)
    ]
    if wrong:
        raise InvalidInput(
            "Some parts are wrong",
            where=wrong[0].path,
            hint="Name each part by its number and its MD5.",
            details=tuple(wrong),
        )


def _is_md5(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _MD5_BYTES
    except (binascii.Error, ValueError):
        return False
