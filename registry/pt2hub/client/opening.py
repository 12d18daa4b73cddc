"""Where a server shows something to people, told together with the machine that they ask for."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from pt2hub.client.host import this_host
from pt2hub.domain.names import Reference
from pt2hub.errors import InvalidInput
from pt2hub.wire.machines import Machine, host_name

if TYPE_CHECKING:
    from pt2hub.client.client import Client

_BUILD = re.compile(r"[0-9a-f]{16}")


def this_machine() -> Machine:
    """This machine, as pages are told of it; asks the GPU driver."""
    return Machine(host_name(socket.gethostname()), this_host(gpu=True))


def address(url: str, path: str, machine: Machine) -> str:
    """A page's address that also tells the server which machine its reader asks for.

    Args:
        url: The server's.
        path: The page's, on it.
        machine: The reader's.
    """
    return f"{url}/machine?{urlencode({'machine': machine.text(), 'to': path})}"


def page_of(client: Client, what: str | None) -> str:
    """The path of the page about something.

    Args:
        client: Asked whether it is there.
        what: A build's id, a model, or a reference to a version; None for the first page. One that pins an artifact
            has the artifact's page.

    Raises:
        InvalidInput: It is none of these.
        NotFound: There is no such thing; near names are in the hint.
    """
    if what is None:
        return "/"
    if "/" not in what:
        return f"/builds/{client.build(_build_id(what)).id}"
    wanted = Reference.parse(what)
    if wanted.digest or wanted.prefix:
        (artifact,) = client.resolve(what).artifacts
        return f"/artifacts/{artifact.digest}"
    page = f"/models/{client.model(wanted.model).name}"
    if wanted.number:
        return f"{page}/versions/{client.version(wanted.model, wanted.number).number}"
    return f"{page}/versions/{client.resolve(what).number}" if wanted.alias else page


def _build_id(what: str) -> str:
    if not _BUILD.fullmatch(what):
        raise InvalidInput(
            f"{what[:80]!r} names no build and no model",
            where="ID|MODEL[@REF]",
            hint="A build's id is like 688d2e6fd6eb1e11 (pt2hub builds lists them), a model's name like vision/resnet18 "
            "(pt2hub models does).",
        )
    return what
