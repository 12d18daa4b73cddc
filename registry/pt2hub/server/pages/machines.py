"""The machine that a reader asks for, kept in a cookie, and whether artifacts run on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from flask import g, request

from pt2hub.domain.targets import parse_target
from pt2hub.domain.verdicts import Finding, judge
from pt2hub.errors import InvalidInput, UnknownTarget
from pt2hub.server.pages.sessions import is_encrypted
from pt2hub.wire.machines import Machine

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.domain.artifacts import NativeCode

COOKIE = "pt2hub_machine"
_KEPT = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether something runs on the reader's machine.

    Attributes:
        machine: The machine's name.
        failures: What speaks against it.
        known: False for a target that this server cannot judge.
    """

    machine: str
    failures: tuple[Finding, ...] = ()
    known: bool = True

    @property
    def runs(self) -> bool:
        """Whether nothing speaks against it."""
        return self.known and not self.failures


def reader() -> Machine | None:
    """The machine that this request's sender asks for; None where no `pt2hub open` told it, or not rightly."""
    if "machine" not in g:
        g.machine = _kept()
    return cast("Machine | None", g.machine)


def fit(target: str, native: NativeCode | None = None) -> Fit | None:
    """Whether a target's artifacts run on the reader's machine; None where that is not known.

    Args:
        target: The target's name.
        native: What the libraries of one artifact need; the verdict is about the target alone without it.
    """
    machine = reader()
    if machine is None:
        return None
    try:
        return Fit(machine.name, judge(parse_target(target), machine.host, native).failures)
    except UnknownTarget:
        return Fit(machine.name, known=False)


def keep(response: WerkzeugResponse, machine: Machine) -> None:
    """Has the browser keep a machine."""
    response.set_cookie(
        COOKIE, machine.text(), max_age=_KEPT, httponly=True, samesite="Lax", secure=is_encrypted()
    )


def forget(response: Response | WerkzeugResponse) -> None:
    """Has the browser forget it."""
    response.delete_cookie(COOKIE, httponly=True, samesite="Lax", secure=is_encrypted())


def _kept() -> Machine | None:
    try:
        return Machine.parse(request.cookies.get(COOKIE, ""))
    except InvalidInput:  # of a later pt2hub, or not ours: as good as none
        return None
