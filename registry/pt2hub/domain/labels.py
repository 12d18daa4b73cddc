"""Labels: keys with values on models and versions, by which people find them.

No label is part of a version's identity. Facts about where a version comes from are written once; the others may change.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.domain.plain_text import find_control
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_LABELS = 64
"""Labels of one model or version."""
MAX_KEY_CHARS = 63
"""As Kubernetes allows for the names of labels."""
MAX_VALUE_CHARS = 1000
KEY_PATTERN = r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?"
RESERVED_PREFIX = "pt2hub."
"""Keys that pt2hub may give a meaning later."""
_KEY = re.compile(KEY_PATTERN)
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_DATA_DIGEST = re.compile(DIGEST_PATTERN)
_LINE_ENDS = frozenset("\u2028\u2029")
"""Those of Unicode that are no control characters."""
_SHOWN = 80
_WEB = ("http", "https")


class LabelType(StrEnum):
    """What the value of a well-known key is."""

    COMMIT = "commit"
    """A commit's hash, 40 or 64 hex digits."""
    URL = "url"
    """An address that begins with http:// or https://."""
    DATA = "data"
    """A name or address of a data set, optionally with its digest: `name@sha256:...`."""
    LICENSE = "license"
    """An SPDX expression, such as `Apache-2.0` or `MIT OR Apache-2.0`."""
    TEXT = "text"
    """One line of text."""


@dataclass(frozen=True, slots=True)
class WellKnown:
    """A key with a documented meaning.

    Attributes:
        is_fact: Whether its value stays as it was first written.
    """

    type: LabelType
    is_fact: bool
    meaning: str


WELL_KNOWN: dict[str, WellKnown] = {
    "git.sha": WellKnown(LabelType.COMMIT, is_fact=True, meaning="the commit of the source"),
    "git.repository": WellKnown(LabelType.URL, is_fact=True, meaning="the repository of the source"),
    "git.branch": WellKnown(LabelType.TEXT, is_fact=True, meaning="the branch or tag of the source"),
    "run": WellKnown(LabelType.URL, is_fact=True, meaning="the training or CI run, such as in MLflow or W&B"),
    "data": WellKnown(LabelType.DATA, is_fact=True, meaning="the data set that it was trained on"),
    "license": WellKnown(LabelType.LICENSE, is_fact=False, meaning="the licence, as an SPDX expression"),
    "owner": WellKnown(LabelType.TEXT, is_fact=False, meaning="the person or team to ask"),
    "stage": WellKnown(LabelType.TEXT, is_fact=False, meaning="how far it is, in your own words"),
}


_LOOKALIKES = {
    "commit": "git.sha",
    "sha": "git.sha",
    "git.commit": "git.sha",
    "git.url": "git.repository",
    "repository": "git.repository",
    "branch": "git.branch",
    "dataset": "data",
}
"""Keys that other tools use for a well-known one, and that are spelled too differently to be found by spelling."""
_CLOSE = 0.8
"""Similarity of spellings, from which a key is taken for a misspelling of a well-known one."""


def suggest_well_known(key: str) -> str | None:
    """Return the well-known key that another key may mean; None for a well-known key and for unlike ones."""
    if key in WELL_KNOWN:
        return None
    usual = re.sub("[_-]", ".", key)
    if usual in WELL_KNOWN:
        return usual
    near = difflib.get_close_matches(usual, WELL_KNOWN, n=1, cutoff=_CLOSE)
    return near[0] if near else _LOOKALIKES.get(usual)


def note_lookalikes(keys: Iterable[str]) -> tuple[str, ...]:
    """Return a note on each key that looks like a well-known one."""
    return tuple(
        f"Label {key} has no documented meaning. Did you mean {near}?"
        for key in keys
        if (near := suggest_well_known(key))
    )


def is_fact(key: str) -> bool:
    """Return whether a label's value stays as it was first written."""
    known = WELL_KNOWN.get(key)
    return known is not None and known.is_fact


def check_key(key: str, *, where: str = "labels") -> str:
    """Return a label's key.

    Raises:
        InvalidInput: It is malformed or reserved.
    """
    if len(key) > MAX_KEY_CHARS or not _KEY.fullmatch(key):
        raise InvalidInput(
            f"Invalid label key {key[:_SHOWN]!a}",
            where=where,
            hint=f"Use 1 to {MAX_KEY_CHARS} lowercase letters, digits and . _ - between them, such as git.sha.",
        )
    if key.startswith(RESERVED_PREFIX):
        raise InvalidInput(
            f"Invalid label key {key}: keys that begin with {RESERVED_PREFIX} are reserved",
            where=where,
            hint="Choose another prefix, such as your team's name.",
        )
    return key


def check_labels(labels: Mapping[str, str], *, where: str = "labels") -> dict[str, str]:
    """Return labels, values without spaces around them and in the form of their type.

    Raises:
        InvalidInput: There are too many, or a key or value is malformed.
    """
    if len(labels) > MAX_LABELS:
        raise too_many(len(labels), where=where)
    return {
        check_key(key, where=where): check_value(key, value, where=where) for key, value in labels.items()
    }


def too_many(count: int, *, where: str = "labels") -> InvalidInput:
    """Return the error for more labels than a model or version may have."""
    return InvalidInput(
        f"Too many labels ({count}, at most {MAX_LABELS})",
        where=where,
        hint="Keep what people search for; put the rest into a file beside the model.",
    )


def check_value(key: str, value: str, *, where: str = "labels") -> str:
    """Return the value of a label with a valid key.

    Raises:
        InvalidInput: It is empty, too long, has control characters, or is not what the key requires.
    """
    text, place = value.strip(), f"{where}.{key}"
    if not text:
        raise InvalidInput(
            f"The value of label {key} is empty",
            where=place,
            hint=f"Give a value, {key}=VALUE. To remove the label: pt2hub label rm MODEL@N {key}",
        )
    if len(text) > MAX_VALUE_CHARS:
        raise InvalidInput(
            f"The value of label {key} is too long ({len(text):,} characters, at most {MAX_VALUE_CHARS:,})",
            where=place,
            hint="Link to what is longer, or put it into a file beside the model.",
        )
    if control := find_control(text) or next(iter(_LINE_ENDS.intersection(text)), None):
        raise InvalidInput(
            f"The value of label {key} contains the control character {control!a}",
            where=place,
            hint="Labels are one line of text; if the character is invisible, retype the words around it.",
        )
    known = WELL_KNOWN.get(key)
    return _typed(key, known.type, text, place) if known else text


def in_stored_case(key: str, value: str) -> str:
    """Return a value in the case that it is stored in: hashes of commits are in lower case."""
    return value.lower() if _is_commit(key) else value


def is_part_of_commit(key: str, value: str) -> bool:
    """Return whether the key's values are full hashes of commits, and this one is not."""
    return _is_commit(key) and not _SHA.fullmatch(value)


def _is_commit(key: str) -> bool:
    known = WELL_KNOWN.get(key)
    return known is not None and known.type is LabelType.COMMIT


def label_link(key: str, labels: Mapping[str, str]) -> str | None:
    """Return the address that a label leads to; None for plain text.

    Args:
        labels: All labels of the model or version, by key: a commit is in a repository.
    """
    known, value = WELL_KNOWN.get(key), labels[key]
    if known is None:
        return None
    if known.type is LabelType.COMMIT:
        repository = labels.get("git.repository", "").removesuffix(".git").rstrip("/")
        return f"{repository}/commit/{value}" if is_url(repository) else None
    if known.type in (LabelType.URL, LabelType.DATA):
        address = _address(value)
        return address if is_url(address) else None
    return None


def is_url(text: str) -> bool:
    """Return whether a text is an address of the web that names a host and no credentials."""
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in _WEB and bool(parts.hostname) and "@" not in parts.netloc and not _has_space(text)
        )
    except ValueError:
        return False


def _typed(key: str, kind: LabelType, text: str, where: str) -> str:
    """Return a value of a well-known key in its usual form."""
    if kind is LabelType.COMMIT and not _SHA.fullmatch(text.lower()):
        raise _malformed(key, text, where, "the commit's full hash, 40 or 64 hex digits: git rev-parse HEAD")
    if kind in (LabelType.URL, LabelType.DATA) and (bare := _without_credentials(_address(text))):
        raise InvalidInput(
            f"The value of label {key} contains a user or password",  # which the message does not repeat
            where=where,
            hint=f"Everybody who can read the label would read them. Leave them out: {bare[:_SHOWN]}",
        )
    if kind is LabelType.URL and not is_url(text):
        raise _malformed(key, text, where, "an address that begins with https://")
    if kind is LabelType.DATA:
        digest = text.rpartition("@")[2]
        if digest.lower().startswith("sha256:") and not _DATA_DIGEST.fullmatch(digest):
            raise _malformed(
                key, text, where, "a name, optionally with a digest: name@sha256:<64 hex digits>"
            )
    if kind is LabelType.LICENSE:
        return _license(key, text, where)
    return text.lower() if kind is LabelType.COMMIT else text


def _license(key: str, text: str, where: str) -> str:
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return canonicalize_license_expression(text)
    except InvalidLicenseExpression as exc:
        raise _malformed(
            key, text, where, "an SPDX expression: Apache-2.0, MIT OR Apache-2.0, LicenseRef-Proprietary"
        ) from exc


def _malformed(key: str, text: str, where: str, form: str) -> InvalidInput:
    return InvalidInput(f"Invalid value of label {key}: {text[:_SHOWN]!a}", where=where, hint=f"Give {form}.")


def _address(text: str) -> str:
    """Return the address in a value, without the digest of a data set."""
    return text.partition("@sha256:")[0]


def _without_credentials(text: str) -> str | None:
    """Return an address of the web without its user and password; None for one without, and for other text."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    credentials, at, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=host).geturl() if at and credentials and parts.scheme in _WEB else None


def _has_space(text: str) -> bool:
    return any(map(str.isspace, text))
