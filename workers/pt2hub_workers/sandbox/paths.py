"""What of the machine a sandboxed child may read: the system, Python, pt2hub and what the operator names; no home."""

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
"""What programs and the compiler's linker find libraries by."""
_PATH_LISTS = ("PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CPLUS_INCLUDE_PATH")
_FOLDERS = ("CUDA_HOME", "CUDA_PATH")
_NEVER = ("/", "/boot", "/dev", "/etc", "/home", "/mnt", "/opt", "/proc", "/root", "/run", "/srv", "/sys")
_SHARED = ("/tmp", "/var", "/var/lib", "/var/run", "/var/tmp")  # noqa: S108  # that is why


def system() -> dict[str, str | None]:
    """The directories of `SYSTEM` that are there: a link's target, or None for a directory of its own."""
    return {
        path: str(Path(path).readlink()) if Path(path).is_symlink() else None
        for path in SYSTEM
        if Path(path).is_dir()
    }


def readable(environ: Mapping[str, str], extra: Iterable[Path] = ()) -> tuple[str, ...]:
    """Every other path that children may read, as children of `environ` use it.

    Args:
        environ: The children's environment.
        extra: Further paths that the operator names.

    Returns:
        Absolute paths, sorted; none lies below another one or below a system directory.

    Raises:
        SandboxUnavailable: One of them is a home or a directory that everybody shares.
    """
    found: dict[Path, str] = {}
    for where, path in _wanted(environ, extra):
        # Under its own name and the real one: links elsewhere may use either.
        for name in dict.fromkeys((Path(os.path.normpath(path.absolute())), path.resolve())):
            if name.exists() and name not in found:
                found[name] = where
    own = {path: where for path, where in found.items() if not is_below(path, SYSTEM)}
    for path, where in own.items():
        _refuse(path, where)
    return tuple(sorted(str(path) for path in own if not is_below(path, {*map(str, own)} - {str(path)})))


def is_below(path: Path, others: Iterable[str]) -> bool:
    """Whether a path is one of some others or lies below one."""
    above = {str(path), *map(str, path.parents)}
    return any(other in above for other in others)


def _wanted(environ: Mapping[str, str], extra: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Each path, and what it is wanted for."""
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
    """A file and, where it is a link, what it leads to, step by step: each must be there for the first to resolve."""
    yield path
    while path.is_symlink():
        path = Path(os.path.normpath(path.parent / path.readlink()))
        yield path


def _compiler(command: str, search: str | None) -> Iterator[Path]:
    """A compiler, and what was installed with it: the directory whose `bin` it is in."""
    program = shutil.which(command.split(maxsplit=1)[0], path=search) if command.strip() else None
    for path in _hops(Path(program)) if program else ():
        yield path
        if path.parent.name == "bin" and not _is_too_much(path.parent.parent):
            yield path.parent.parent


def _refuse(path: Path, where: str) -> None:
    if _is_too_much(path):
        raise SandboxUnavailable(
            f"{where} names {path}, and a sandbox cannot give users' code all of that to read",
            where=where,
            hint="Name the directory below it that is needed.",
        )


def _is_too_much(path: Path) -> bool:
    # Whatever holds one of these holds users' files, secrets or other jobs.
    return any(is_below(Path(taboo), (str(path),)) for taboo in (*_NEVER, *_SHARED, *_homes()))


def _homes() -> Iterator[str]:
    yield str(Path("~").expanduser())
    with contextlib.suppress(KeyError):  # a container, say, with a user of no name
        yield pwd.getpwuid(os.getuid()).pw_dir
