"""Readable paths of a sandboxed child: the system, Python, pt2hub and the operator's additions, but no home directory."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import site
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pt2hub
import pt2hub_workers
from pt2hub.errors import SandboxUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Directories of programs and libraries; on most systems all but the first are links into it."""
LINKER = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
"""Files by which programs and the linker find libraries."""
_PATH_LISTS = ("PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CPLUS_INCLUDE_PATH")
_FOLDERS = ("CUDA_HOME", "CUDA_PATH")
_NEVER = ("/", "/boot", "/dev", "/etc", "/home", "/mnt", "/opt", "/proc", "/root", "/run", "/srv", "/sys")
_SHARED = ("/tmp", "/var", "/var/lib", "/var/run", "/var/tmp")  # noqa: S108  # that is why


def system() -> dict[str, str | None]:
    """Return the existing directories of `SYSTEM`, each with its target if it is a link."""
    return {
        path: str(Path(path).readlink()) if Path(path).is_symlink() else None
        for path in SYSTEM
        if Path(path).is_dir()
    }


def readable(environ: Mapping[str, str], extra: Iterable[Path] = ()) -> tuple[str, ...]:
    """Return the other paths that children with this environment may read.

    Returns:
        Absolute paths, sorted; none lies below another one or below a system directory.

    Raises:
        SandboxUnavailable: A path is a home directory or a directory shared by all users.
    """
    found: dict[Path, str] = {}
    for where, path in _wanted_paths(environ, extra):
        # By its own name and the resolved one: links may use either.
        for name in dict.fromkeys((Path(os.path.normpath(path.absolute())), path.resolve())):
            if name.exists() and name not in found:
                found[name] = where
    own = {path: where for path, where in found.items() if not is_below(path, SYSTEM)}
    for path, where in own.items():
        _refuse(path, where)
    return tuple(sorted(str(path) for path in own if not is_below(path, {*map(str, own)} - {str(path)})))


def is_below(path: Path, others: Iterable[str]) -> bool:
    """Return whether a path equals or lies below another one."""
    above = {str(path), *map(str, path.parents)}
    return any(other in above for other in others)


def _wanted_paths(environ: Mapping[str, str], extra: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Yield each path with the reason for it."""
    yield from (("the linker", Path(path)) for path in LINKER)
    yield from (("Python", path) for path in _python(environ))
    yield from (("pt2hub", Path(package.__file__ or "").parent) for package in (pt2hub, pt2hub_workers))
    for name in (*_PATH_LISTS, *_FOLDERS):
        yield from ((name, Path(entry)) for entry in environ.get(name, "").split(os.pathsep) if entry)
    for name, default in (("CXX", "g++"), ("CC", "gcc"), ("CUDAHOSTCXX", "")):
        yield from ((name, path) for path in _compiler(environ.get(name) or default, environ.get("PATH")))
    yield from (("PT2HUB_SANDBOX_READABLE", path) for path in extra)


def _python(environ: Mapping[str, str]) -> Iterator[Path]:
    for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix):
        yield Path(prefix)
    yield from _hops(Path(sys.executable))
    if site.ENABLE_USER_SITE and "PYTHONNOUSERSITE" not in environ:
        yield Path(site.getusersitepackages())


def _hops(path: Path) -> Iterator[Path]:
    """Yield a file and, if it is a link, each step to its target: all must exist for it to resolve."""
    yield path
    while path.is_symlink():
        path = Path(os.path.normpath(path.parent / path.readlink()))
        yield path


def _compiler(command: str, search: str | None) -> Iterator[Path]:
    """Yield a compiler and the directory that it is installed in."""
    program = shutil.which(command.split(maxsplit=1)[0], path=search) if command.strip() else None
    for path in _hops(Path(program)) if program else ():
        yield path
        if path.parent.name == "bin" and not _is_too_much(path.parent.parent):
            yield path.parent.parent


def _refuse(path: Path, where: str) -> None:
    if _is_too_much(path):
        raise SandboxUnavailable(
            f"{where} contains {path}, which is too much for users' code to read",
            where=where,
            hint="Use the directory below it that is needed.",
        )


def _is_too_much(path: Path) -> bool:
    # Any directory above these has users' files, secrets or other jobs.
    return any(is_below(Path(forbidden), (str(path),)) for forbidden in (*_NEVER, *_SHARED, *_homes()))


def _homes() -> Iterator[str]:
    yield str(Path("~").expanduser())
    with contextlib.suppress(KeyError):  # such as a container's user without a name
        yield pwd.getpwuid(os.getuid()).pw_dir
