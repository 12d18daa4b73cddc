"""The system calls that a sandboxed child may not make, as a filter that the kernel runs.

Most of them want capabilities that the child does not have; the filter keeps it from the kernel's code all the same,
where the faults are. libseccomp makes the filter, in the form that `bwrap --seccomp` takes.
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
    # Memory that shows in no process and no tmpfs: where no control group counts it, nobody would.
    *("shmget", "msgget"),
    *("settimeofday", "clock_settime", "sethostname", "setdomainname"),
    *("iopl", "ioperm", "modify_ldt", "uselib", "nfsservctl"),
)
"""Refused with EPERM. Names that this machine's architecture or libseccomp does not know are left out."""
UNKNOWN = ("clone3",)
"""Refused with ENOSYS: its flags lie in memory, where no filter looks; the C library then uses `clone`."""
_NUMBERS = {"open_tree_attr": 467}
"""Newer than the libseccomp of Debian 12 (2.5.4); all architectures count alike since Linux 5.1."""
CLONE_FLAGS = {
    "CLONE_NEWNS": 0x00020000,
    "CLONE_NEWCGROUP": 0x02000000,
    "CLONE_NEWUTS": 0x04000000,
    "CLONE_NEWIPC": 0x08000000,
    "CLONE_NEWUSER": 0x10000000,
    "CLONE_NEWPID": 0x20000000,
    "CLONE_NEWNET": 0x40000000,
}
"""Flags of clone(2) that make a namespace, from linux/sched.h."""
IOCTLS = {"TIOCSTI": termios.TIOCSTI, "TIOCLINUX": 0x541C}
"""Type into a terminal; from asm-generic/ioctls.h."""
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
"""The only sockets there are inside, from linux/socket.h. AF_VSOCK, say, reaches the host past any network namespace."""
_WORD = 0xFFFFFFFF
"""The kernel looks at the lower half of these arguments only, and so must the filter (CVE-2019-10063)."""


def document() -> dict[str, Any]:
    """What the filter refuses, as JSON values."""
    return {
        "denied": sorted(DENIED),
        "unknown": sorted(UNKNOWN),
        "clone_flags": sorted(CLONE_FLAGS),
        "ioctls": sorted(IOCTLS),
        "socket_families": sorted(FAMILIES),
    }


@cache
def program() -> bytes:
    """The filter, as an array of `struct sock_filter`.

    Raises:
        SandboxUnavailable: libseccomp is missing.
    """
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


def sealed(content: bytes, name: str) -> int:
    """A descriptor of a nameless file, from whose start bwrap reads.

    Args:
        content: Of the file.
        name: For people who look into /proc.
    """
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
    """Comparisons that together hold for every socket family that is not in the list; one rule takes one of them."""
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
            "the filter for system calls needs pyseccomp",
            where="seccomp",
            hint="Install the worker's packages: pip install 'pt2hub[worker]'.",
        ) from error
    except RuntimeError as error:  # pyseccomp's own, where it does not find the library
        raise SandboxUnavailable(
            "the filter for system calls needs libseccomp.so.2, which is not there",
            where="seccomp",
            hint="Install it: apt-get install libseccomp2 (Debian, Ubuntu), dnf install libseccomp (Fedora).",
        ) from error
    return pyseccomp
