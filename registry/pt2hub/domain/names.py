"""Names of models, aliases and modules, and references."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.digests import DIGEST_PATTERN, Digest
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

# OCI repository components, so that every model is a legal repository at /v2/ (distribution-spec, "Pulling").
COMPONENT_PATTERN = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
MODEL_PATTERN = rf"{COMPONENT_PATTERN}/{COMPONENT_PATTERN}"
ALIAS_PATTERN = r"[A-Za-z_][A-Za-z0-9._-]{0,127}"
_MODEL = re.compile(MODEL_PATTERN)
_ALIAS = re.compile(ALIAS_PATTERN)
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_DIGEST = re.compile(DIGEST_PATTERN)
_PREFIX = re.compile(r"sha256:[0-9a-f]{6,63}")
REFERENCE_PATTERN = (
    rf"{MODEL_PATTERN}(?:@(?:{_NUMBER.pattern}|{_DIGEST.pattern}|{_PREFIX.pattern}|{ALIAS_PATTERN}))?"
)
MAX_NAME = 200
"""Maximum characters of a model name. OCI allows 255 including the host, which is not known here."""
PRODUCTION_PREFIXES = ("prod", "live")
"""Beginnings of the names of aliases in production."""
_FEW_MODULES = 2
"""Modules that are all named."""


def parse_model_name(text: str) -> str:
    """Validate a model name.

    Raises:
        InvalidInput: The text is not `team/name` in OCI-legal characters.
    """
    if len(text) > MAX_NAME or not _MODEL.fullmatch(text):
        raise InvalidInput(
            f"invalid model name {text[:MAX_NAME]!r}",
            where="model",
            hint=f"The team is missing: write team/{text}."
            if lacks_team(text)
            else "Use team/name with lowercase letters, digits and single . _ - between them.",
        )
    return text


def lacks_team(text: str) -> bool:
    """Return whether a text is a valid model name but for its team."""
    return "/" not in text and len(text) < MAX_NAME and is_team(text)


def is_team(text: str) -> bool:
    """Return whether a text is a valid team name."""
    return _MODEL.fullmatch(f"{text}/x") is not None


def team_of(model: str) -> str:
    """Return the team of a model."""
    return model.partition("/")[0]


def parse_alias(text: str) -> str:
    """Validate an alias name.

    Raises:
        InvalidInput: The text is a number or a digest, or has characters that OCI tags do not allow.
    """
    if not _ALIAS.fullmatch(text):
        raise InvalidInput(
            f"invalid alias {text[:MAX_NAME]!r}",
            where="alias",
            hint="Use a name such as prod: a letter, then letters, digits and . _ -, at most 128 characters; numbers are "
            "versions.",
        )
    return text


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference `team/name@<number|alias|sha256:digest>`; without `@` it means the newest ready version.

    Attributes:
        model: The model's name.
        number: The version number, if given.
        alias: The alias, if given.
        digest: The complete manifest digest, if given; it pins the artifact without a request to the server.
        prefix: The prefix of a manifest digest including `sha256:`, if given.
    """

    model: str
    number: int | None = None
    alias: str | None = None
    digest: Digest | None = None
    prefix: str | None = None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Parse a reference.

        Raises:
            InvalidInput: The text is not a valid reference.
        """
        if not isinstance(text, str):
            raise InvalidInput(
                f"invalid reference {text!r}", where="reference", hint="Use the form team/name@3."
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
            f"invalid version {selector[:80]!r} in the reference",
            where="reference",
            hint="After the @ use a version number, an alias such as prod, or sha256: and at least 6 of the 64 "
            "lowercase digits of a digest.",
        )

    @property
    def digest_start(self) -> str:
        """The manifest digest or its prefix; empty if the reference names no single artifact."""
        return self.digest or self.prefix or ""

    def allows_version(self, model: str, number: int) -> bool:
        """Return whether the reference can mean this version."""
        return self.model == model and self.number in (None, number)

    def __str__(self) -> str:
        selector = self.number or self.alias or self.digest or self.prefix
        return f"{self.model}@{selector}" if selector else self.model


def name_modules(modules: Sequence[str]) -> str:
    """Return paths of modules as one name: `encoder.layer.0 ... encoder.layer.11`."""
    return ", ".join(modules) if len(modules) <= _FEW_MODULES else f"{modules[0]} ... {modules[-1]}"
