"""Compatibility rules between client and server releases.

* Within /api/v1 the API only grows: existing fields, routes and error codes keep their meaning.
* Readers ignore unknown fields and use the default for missing new fields.
* Every response has the server's release in the header `Pt2hub-Version`; every request has the client's release in
  `User-Agent: pt2hub/<version>`.
* Servers reject clients older than `OLDEST_CLIENT`, clients reject servers older than `OLDEST_SERVER`. Both are raised
  only if an older release would do harm, and no further than necessary.
* Peers without a release are accepted: browsers, curl, and servers behind a proxy that drops headers.
"""

from __future__ import annotations

import re

from pt2hub.errors import ClientTooOld, ServerTooOld
from pt2hub.version import __version__

VERSION_HEADER = "Pt2hub-Version"
"""Response header with the server's release."""
YANK_HEADER = "Pt2hub-Yanked"
"""Response header of a manifest whose version is yanked: a `wire.resolution.Yank` as ASCII JSON."""
USER_AGENT = f"pt2hub/{__version__}"
"""User agent of this client."""
OLDEST_CLIENT = (0, 2)
"""The oldest client release that this server supports."""
OLDEST_SERVER = (0, 2)
"""The oldest server release that this client supports."""
_RELEASE = re.compile(r"(\d{1,6})\.(\d{1,6})(?![\d])")
_AGENT = re.compile(r"pt2hub/(\S{1,40})")
_MAX_VERSION_CHARS = 40


def parse_release(text: str) -> tuple[int, int] | None:
    """Return major and minor number of a version such as `0.1.0` or `1.2.dev3`; None if it is malformed."""
    match = _RELEASE.match(text)
    return (int(match[1]), int(match[2])) if match else None


def check_client(user_agent: str) -> None:
    """Reject clients that are too old for this server.

    Args:
        user_agent: The `User-Agent` header; anything but an old pt2hub is accepted.

    Raises:
        ClientTooOld: The client is older than `OLDEST_CLIENT`.
    """
    match = _AGENT.match(user_agent)
    release = parse_release(match[1]) if match else None
    if match is None or release is None or release >= OLDEST_CLIENT:
        return
    oldest = _release_text(OLDEST_CLIENT)
    raise ClientTooOld(
        f"The client is pt2hub {match[1]}; the server runs {__version__} and supports clients from {oldest} on.",
        hint=f"Upgrade the client: pip install --upgrade 'pt2hub>={oldest}'",
        context={"client": match[1], "server": __version__, "oldest_client": oldest},
    )


def check_server(version: str | None, *, url: str) -> None:
    """Reject servers that are too old for this client.

    Args:
        version: The response's `Pt2hub-Version` header, or None.
        url: The server's URL, for the message.

    Raises:
        ServerTooOld: The server is older than `OLDEST_SERVER`.
    """
    release = parse_release(version or "")
    if version is None or release is None or release >= OLDEST_SERVER:
        return
    version, oldest = version[:_MAX_VERSION_CHARS], _release_text(OLDEST_SERVER)
    raise ServerTooOld(
        f"The server runs pt2hub {version}; this client is {__version__} and supports servers from {oldest} on.",
        where=url,
        hint=f"Ask the operator to upgrade the server, or install a client of its release: pip install "
        f"'pt2hub=={_release_text(release)}.*'",
        context={"client": __version__, "server": version, "oldest_server": oldest},
    )


def skew_hint(server_version: str | None) -> str | None:
    """Return a hint for errors if the releases of client and server differ; else None.

    Args:
        server_version: The response's `Pt2hub-Version` header, or None.
    """
    theirs, ours = parse_release(server_version or ""), parse_release(__version__)
    if server_version is None or theirs is None or ours is None or theirs == ours:
        return None
    both = f"The server runs pt2hub {server_version[:_MAX_VERSION_CHARS]}, this client is {__version__}"
    if theirs > ours:
        return f"{both}: upgrade the client with pip install --upgrade pt2hub"
    return f"{both}: ask the operator to upgrade the server, or run pip install 'pt2hub=={_release_text(theirs)}.*'"


def _release_text(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"
