"""Filter of the system calls that a sandboxed child may not make, enforced by the kernel.

Most of them need capabilities that the child does not have; the filter also keeps it from their code in the kernel,
which may have faults. libseccomp generates the filter in the form that `bwrap --seccomp` takes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import termios
from functools import cache
from typing import TYPE_CHECKING, Any

from pt2hub.errors import SandboxUnavailable

if TYPE_CHECKING:
    from types import ModuleType

DENIED = (
    *("unshare", "setns", "chroot", "pivot_root", "mount", "umount2", "mount_setattr", "move_mount"),
    *("open_tree", "open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd"),
    *("keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "open_by_handle_at", "fanotify_init"),
    *("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot"),
    *("swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "vhangup", "lookup_dcookie"),
    # Memory that belongs to no process or tmpfs: without control groups it would not be counted.
    *("shmget", "msgget"),
    *("settimeofday", "clock_settime", "sethostname", "setdomainname"),
    *("iopl", "ioperm", "modify_ldt", "uselib", "nfsservctl"),
)
"""Denied with EPERM. Names unknown to this architecture or libseccomp are left out."""
UNKNOWN = ("clone3",)
"""Denied with ENOSYS: its flags lie in memory, which a filter cannot read; the C library then uses `clone`."""
_NUMBERS = {"open_tree_attr": 467}
"""Newer than libseccomp in Debian 12 (2.5.4); numbers are equal on all architectures since Linux 5.1."""
CLONE_FLAGS = {
    "CLONE_NEWNS": 0x00020000,
    "CLONE_NEWCGROUP": 0x02000000,
    "CLONE_NEWUTS": 0x04000000,
    "CLONE_NEWIPC": 0x08000000,
    "CLONE_NEWUSER": 0x10000000,
    "CLONE_NEWPID": 0x20000000,
    "CLONE_NEWNET": 0x40000000,
}
"""Flags of clone(2) that create a namespace, from linux/sched.h."""
IOCTLS = {"TIOCSTI": termios.TIOCSTI, "TIOCLINUX": 0x541C}
"""Requests that type into a terminal, from asm-generic/ioctls.h."""
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
"""Allowed socket families, from linux/socket.h. AF_VSOCK, for example, reaches the host past network namespaces."""
_WORD = 0xFFFFFFFF
"""The kernel reads only the lower half of these arguments, and so must the filter (CVE-2019-10063)."""


def document() -> dict[str, Any]:
    """Return the rules of the filter as JSON values."""
    return {
        "denied": sorted(DENIED),
        "unknown": sorted(UNKNOWN),
        "clone_flags": sorted(CLONE_FLAGS),
        "ioctls": sorted(IOCTLS),
        "socket_families": sorted(FAMILIES),
    }


@cache
def program() -> bytes:
    """Return the filter, as an array of `struct sock_filter`."""
    library = _library()
    made = library.SyscallFilter(library.ALLOW)
    for names, answer in ((DENIED, errno.EPERM), (UNKNOWN, errno.ENOSYS)):
        for number in filter(None, (_number(library, name) for name in names)):
            made.add_rule(library.ERRNO(answer), number)
    for flag in CLONE_FLAGS.values():
        made.add_rule(library.ERRNO(errno.EPERM), "clone", library.Arg(0, library.MASKED_EQ, flag, flag))
    for request in IOCTLS.values():
        made.add_rule(library.ERRNO(errno.EPERM), "ioctl", library.Arg(1, library.MASKED_EQ, _WORD, request))
    for comparison, family in _other_families(library):
        for call in ("socket", "socketpair"):
            made.add_rule(library.ERRNO(errno.EAFNOSUPPORT), call, library.Arg(0, comparison, family))
    with tempfile.TemporaryFile() as file:
        made.export_bpf(file)
        file.seek(0)
        return file.read()


def seal(content: bytes, name: str) -> int:
    """Return a descriptor of a sealed memory file, positioned at its start for bwrap."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        fcntl.fcntl(
            descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
        )
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _other_families(library: ModuleType) -> list[tuple[int, int]]:
    """Return comparisons that together match every socket family that is not allowed; each needs its own rule."""
    known = sorted(FAMILIES.values())
    between = [family for family in range(known[-1]) if family not in known]
    return [*((library.EQ, family) for family in between), (library.GT, known[-1])]


def _number(library: ModuleType, name: str) -> int | None:
    number: int = library.resolve_syscall(library.Arch.NATIVE, name)
    return number if number >= 0 else _NUMBERS.get(name)


def _library() -> ModuleType:
    try:
        import pyseccomp
    except ImportError as error:
        raise SandboxUnavailable(
            "pyseccomp is required for the filter of system calls",
            where="seccomp",
            hint="Install the worker's packages: pip install 'pt2hub[worker]'.",
        ) from error
    except RuntimeError as error:  # of pyseccomp, if it does not find the library
        raise SandboxUnavailable(
            "libseccomp.so.2, required for the filter of system calls, was not found",
            where="seccomp",
            hint="Install it: apt-get install libseccomp2 (Debian, Ubuntu), dnf install libseccomp (Fedora).",
        ) from error
    return pyseccomp
