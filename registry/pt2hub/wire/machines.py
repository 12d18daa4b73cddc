"""A machine in the address of a page, so that pages say what runs on it: `pt2hub open` writes it, the server reads it.

Only what verdicts need travels: no user's name, no path, no list of what is installed.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from pt2hub.domain.targets import CPU_LEVELS, cpu_level, flags_of_level
from pt2hub.domain.verdicts import Host
from pt2hub.errors import InvalidInput

MAX_TEXT = 2048
"""Characters of a machine: half of what browsers keep of a cookie."""
_MOST_FLAGS = 100
_TOLD = re.compile(
    r"(sse|avx|amx|aes|sha|vaes|gfni|vpclmul|pclmul|adx|fma|f16c|bmi|abm|movbe|popcnt|xsave)\w*"
)
"""Instruction sets that compilers use; a processor names five times as many properties."""
_FLAG = re.compile(r"[a-z0-9_]{1,32}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FORMS = {
    "os": re.compile(r"[a-z0-9]{1,20}"),
    "machine": re.compile(r"[A-Za-z0-9_]{1,20}"),
    "torch": re.compile(r"[0-9]{1,3}\.[0-9]{1,3}"),
    "cuda": re.compile(r"[0-9]{2,4}"),
    "sm": re.compile(r"sm[0-9]{2,4}a?"),
    "glibc": re.compile(r"[0-9]{1,3}(\.[0-9]{1,4}){1,2}"),
}
_NEEDED = ("os", "machine")
_HINT = "Open the page with `pt2hub open` on the machine that you mean."


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that somebody reads pages for.

    Attributes:
        name: Its host name.
        host: What verdicts are made from.
    """

    name: str
    host: Host

    @property
    def level(self) -> str | None:
        """The highest level of x86-64 that its processor reaches."""
        return cpu_level(self.host.cpu_flags)

    def text(self) -> str:
        """It, as the address of a page holds it: base64url of JSON."""
        told = {name: getattr(self.host, name) for name in _FORMS}
        document = {"name": self.name, **told, "level": self.level, "more": _beyond(self.host, self.level)}
        given = {name: value for name, value in document.items() if value}
        return (
            base64.urlsafe_b64encode(json.dumps(given, separators=(",", ":")).encode()).decode().rstrip("=")
        )

    @classmethod
    def parse(cls, text: str) -> Machine:
        """Reads what `text` wrote.

        Raises:
            InvalidInput: It is none.
        """
        document = _document(text)
        told = {name: _field(document, name) for name in _FORMS}
        host = Host(**told, cpu_flags=_flags(document))  # type: ignore[arg-type]  # those that must be there are
        return cls(_named(document.get("name")), host)


def host_name(name: str) -> str:
    """A host's own name as far as a machine's may have its characters."""
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-")[:100]
    return kept or "this-machine"


def _beyond(host: Host, level: str | None) -> list[str]:
    of_level = flags_of_level(level) if level else frozenset[str]()
    return sorted(flag for flag in host.cpu_flags - of_level if _TOLD.fullmatch(flag))[:_MOST_FLAGS]


def _document(text: str) -> dict[str, Any]:
    if len(text) > MAX_TEXT:
        raise _refused("it is too long")
    try:
        document = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError) as exc:
        raise _refused("it cannot be read") from exc
    if not isinstance(document, dict):
        raise _refused("it is no object")
    return document


def _field(document: dict[str, Any], name: str) -> str | None:
    value = document.get(name)
    if value is None and name not in _NEEDED:
        return None
    if not isinstance(value, str) or not _FORMS[name].fullmatch(value):
        raise _refused(f"{name} is wrong")
    return value


def _flags(document: dict[str, Any]) -> frozenset[str]:
    level, more = document.get("level"), document.get("more", [])
    if level is not None and (not isinstance(level, str) or level not in CPU_LEVELS):
        raise _refused("level is wrong")
    if not isinstance(more, list) or len(more) > _MOST_FLAGS:
        raise _refused("more is wrong")
    if not all(isinstance(flag, str) and _FLAG.fullmatch(flag) for flag in more):
        raise _refused("more is wrong")
    return frozenset(more) | (flags_of_level(level) if level else frozenset())


def _named(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _refused("name is wrong")
    return name


def _refused(why: str) -> InvalidInput:
    return InvalidInput(f"The address describes no machine: {why}", where="machine", hint=_HINT)
