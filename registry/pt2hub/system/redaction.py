"""Redaction of secrets in build logs and the server's own logs.

A secret that this process knows is found wherever it stands. What others may print is known only by its form:
tokens of pt2hub, secrets of webhooks, passwords in addresses, key ids of AWS, headers that authorise, signed addresses.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, MutableMapping
    from typing import TypeAlias

    from structlog.typing import Processor, WrappedLogger

    EventDict: TypeAlias = MutableMapping[str, Any]

HIDDEN = "[redacted]"
MIN_SECRET_CHARS = 6
"""Minimum length of known secrets; shorter ones would match in many ordinary lines."""
_SECRET_NAME = re.compile(
    r"(PASSWORD|PASSWD|SECRET|TOKEN|CREDENTIALS?|(API|ACCESS|PRIVATE)_?KEY)$|^PGPASSWORD$", re.IGNORECASE
)
_LISTS = ("PT2HUB_BUILD_ENV",)
"""Variables that hold NAME=value pairs for children."""
_FORMS = re.compile(
    r"""
      (?P<token> \b (?: pt2_[a-z2-7]{16,} (?: _[a-z2-7]+ )? | whsec_[\w+/]{16,} =* ) )
    | (?P<address> (?<= :// ) [^\s:/@"']* : ) [^\s/"']+ (?= @ )
    | (?P<user> (?<= :// ) [^\s:/@"']{20,} (?= @ ) )
    | (?P<password> \b [Pp]assword \s? = \s? ["']? ) [^\s&"',;()]{6,}
    | (?P<key> \b A(?:KIA|SIA) [0-9A-Z]{16} \b )
    | (?P<signed> \b [Xx]-[Aa]mz-(?:[Ss]ignature|[Ss]ecurity-[Tt]oken|[Cc]redential) (?: = | ["']?:\s*["']? ) ) [^\s&"',;<>]+
    | (?P<signature> \b Credential=\S+?, \s* SignedHeaders=\S+?, \s* Signature= ) [0-9a-f]+
    | (?P<header> \b [Aa](?:uthorization|UTHORIZATION) ["']? \s* [:=] \s* (?:[bB]?["'])? (?: [A-Za-z][\w-]{2,20} [ ] (?! [ ] ) )? ) [^\s"',]+
    | (?P<bearer> \b (?:[Bb]earer|BEARER) [ ]+ ) (?! \s ) [\w.~+/=-]{12,}
    """,
    re.VERBOSE,
)
_HINTS = (
    "pt2_",
    "whsec_",
    "://",
    "assword",
    "AKIA",
    "ASIA",
    "mz-",
    "MZ-",
    "ignature=",
    "uthorization",
    "UTHORIZATION",
    "earer",
    "EARER",
)
"""One of these stands in everything that the forms find; nearly all lines hold none, and looking costs nothing."""


class Redactor:
    """Removes known secrets and secrets of known forms from text.

    Args:
        secrets: Their texts; those shorter than `MIN_SECRET_CHARS` are not looked for.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Logs come line by line, and so does a secret of several lines.
        parts = {part for secret in secrets for part in (secret, *secret.splitlines())}
        forms = {
            form for part in parts for form in (part, quote(part, safe="")) if len(part) >= MIN_SECRET_CHARS
        }
        longest_first = sorted(forms, key=lambda form: (-len(form), form))  # one may be part of another
        self._known = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def clean(self, text: str) -> str:
        """Return the text with secrets replaced by `HIDDEN`."""
        if self._known:
            text = self._known.sub(HIDDEN, text)
        if any(hint in text for hint in _HINTS):
            text = _FORMS.sub(_hidden, text)
        return text

    def clean_value(self, value: Any) -> Any:
        """Return a JSON value with redacted texts; other values become text."""
        if value is None or isinstance(value, int | float):
            return value
        if isinstance(value, list | tuple):
            return [self.clean_value(item) for item in value]
        if isinstance(value, dict):
            return {key: self.clean_value(item) for key, item in value.items()}
        return self.clean(str(value))


def _hidden(match: re.Match[str]) -> str:
    """Return what names the secret stays, so that the reader knows what stood there."""
    kept = match.lastgroup not in ("token", "user", "key")
    return f"{match[match.lastgroup]}{HIDDEN}" if kept and match.lastgroup else HIDDEN


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets in an environment: values of variables named like one, and passwords in addresses.

    Args:
        environ: Usually `os.environ`.
    """
    return tuple(dict.fromkeys(_secrets(environ)))


def _secrets(environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in environ.items():
        if name in _LISTS:
            yield from _secrets(_pairs(value))
        elif _SECRET_NAME.search(name):
            yield value
        elif "://" in value:
            yield from _passwords(value)


def _pairs(text: str) -> dict[str, str]:
    try:
        words = shlex.split(text)
    except ValueError:  # the settings refuse it
        return {}
    return dict(word.partition("=")[::2] for word in words)


def _passwords(address: str) -> Iterator[str]:
    try:
        parts = urlsplit(address)
        password = parts.password
    except ValueError:
        return
    if password:
        yield from {password, unquote(password)}
    yield from parse_qs(parts.query).get("password", ())  # libpq takes it there too


def processor(redactor: Redactor) -> Processor:
    """Return a processor of structlog that cleans every value of a log line; put it right before the renderer."""

    def clean(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {name: redactor.clean_value(value) for name, value in event.items()}

    return clean
