"""Model names and references to them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pt2hub.domain.digests import DIGEST_PATTERN, Digest
from pt2hub.errors import InvalidInput

# OCI repository components, so that every model is a legal repository at /v2/ (distribution-spec, "Pulling").
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
MODEL_PATTERN = rf"{_COMPONENT}/{_COMPONENT}"
ALIAS_PATTERN = r"[A-Za-z_][A-Za-z0-9._-]{0,127}"
_MODEL = re.compile(MODEL_PATTERN)
_ALIAS = re.compile(ALIAS_PATTERN)
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_DIGEST = re.compile(DIGEST_PATTERN)
_PREFIX = re.compile(r"sha256:[0-9a-f]{6,63}")
MAX_NAME = 200
"""Characters in a model's name; the OCI specification allows 255 with the host, which is not ours to know."""


def parse_model_name(text: str) -> str:
    """Checks a model's name.

    Raises:
        InvalidInput: The text is not `team/name` in OCI-legal characters.
    """
    if len(text) > MAX_NAME or not _MODEL.fullmatch(text):
        raise InvalidInput(
            f"{text[:MAX_NAME]!r} is no model name",
            where="model",
            hint="Write team/name with lower-case letters, digits and single . _ - between them.",
        )
    return text


def is_team(text: str) -> bool:
    """Whether a team could have this name."""
    return _MODEL.fullmatch(f"{text}/x") is not None


def team_of(model: str) -> str:
    """The team in a model's name."""
    return model.partition("/")[0]


def parse_alias(text: str) -> str:
    """Checks an alias's name.

    Raises:
        InvalidInput: The text is a number, a digest, or has other characters than an OCI tag.
    """
    if not _ALIAS.fullmatch(text):
        raise InvalidInput(
            f"{text[:MAX_NAME]!r} is no alias",
            where="alias",
            hint="Write a name such as prod: letters, digits and . _ - after a letter, 128 at most; numbers are "
            "versions.",
        )
    return text


@dataclass(frozen=True, slots=True)
class Reference:
    """What names a version: `team/name@<number|alias|sha256:digest>`, or the newest ready one without `@`.

    Attributes:
        model: The model's name.
        number: A version number, if that was given.
        alias: An alias, if that was given.
        digest: A whole manifest digest, if that was given: it pins the artifact, and no server need be asked.
        prefix: The beginning of a manifest digest, if that was given, with its `sha256:`.
    """

    model: str
    number: int | None = None
    alias: str | None = None
    digest: Digest | None = None
    prefix: str | None = None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Reads a reference.

        Raises:
            InvalidInput: The text is none of the forms.
        """
        if not isinstance(text, str):
            raise InvalidInput(
                f"{text!r} is no reference", where="reference", hint="Write text such as team/name@3."
            )
        name, separator, selector = text.partition("@")
        model = parse_model_name(name)
        if not separator:
            return cls(model)
        if _NUMBER.fullmatch(selector):
            return cls(model, number=int(selector))
        if _DIGEST.fullmatch(selector):
            return cls(model, digest=Digest(selector))
        if _PREFIX.fullmatch(selector):
            return cls(model, prefix=selector)
        if _ALIAS.fullmatch(selector):
            return cls(model, alias=selector)
        raise InvalidInput(
            f"{selector[:80]!r} selects no version",
            where="reference",
            hint="After the @ write a version number, an alias such as prod, or sha256: and at least 6 of the 64 "
            "digits of a digest, in lower case.",
        )

    def __str__(self) -> str:
        selector = self.number or self.alias or self.digest or self.prefix
        return f"{self.model}@{selector}" if selector else self.model
