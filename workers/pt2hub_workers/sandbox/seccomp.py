"""Filter of the system calls that a sandboxed child may not make, enforced by the kernel.

Most of them need capabilities that the child does not have; the filter also keeps it from their code in the kernel,
which may have faults. Others hold memory that no process, tmpfs or descriptor shows, so that only a control group would
count it (docs/architecture/isolation.md#memory-that-no-process-shows). libseccomp generates the filter in the form that
`bwrap --seccomp` takes.
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
    *("shmget", "semget", "msgget", "mq_open", "memfd_secret", "io_setup"),
    *("settimeofday", "clock_settime", "sethostname", "setdomainname"),
    *("iopl", "ioperm", "modify_ldt", "uselib", "nfsservctl"),
)
"""Denied with EPERM. Names unknown to this architecture or libseccomp are left out."""
UNKNOWN = (
    "clone3",  # its flags lie in memory, which a filter cannot read; the C library then uses `clone`
    *("vmsplice", "splice", "tee"),  # pages in a pipe: one of 4 KiB keeps a whole huge page
    *("seccomp", "landlock_create_ruleset"),  # rules without a limit
)
"""Denied with ENOSYS, as by an older kernel: libraries then use another call, or do without."""
UNKNOWN_WITHOUT_GPU = ("memfd_create",)
"""Likewise, but allowed for CUDA, whose driver may map memory files; for it the watcher counts them."""
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
THREAD_FLAGS = (0x00010400, 0x00010000)
"""A thread (CLONE_THREAD) that does not share its process's descriptors (CLONE_FILES), so that /proc/PID/fd hides its own:
a mask, and the value under it."""
_CLOSE_RANGE_UNSHARE = 2
IOCTLS = {"TIOCSTI": termios.TIOCSTI, "TIOCLINUX": 0x541C}
"""Requests that type into a terminal, from asm-generic/ioctls.h."""
MMAP_FLAGS = {"MAP_HUGETLB": 0x40000}
"""Pages that do not count as a process's memory, from linux/mman.h."""
MMAP_FLAGS_WITHOUT_GPU = {"MAP_SHARED|MAP_ANONYMOUS": 0x21}
"""Memory that stays after a process dropped its pages; CUDA's driver maps some. /dev/zero is closed by the profile."""
BUFFER_OPTIONS = {"SO_SNDBUF": 7, "SO_RCVBUF": 8}
"""Options of SOL_SOCKET that enlarge a socket's buffers, from asm-generic/socket.h. They have no effect, and no error."""
_SOL_SOCKET = 1
_PR_SET_SECCOMP = 22
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
"""Allowed socket families, from linux/socket.h. AF_VSOCK, for example, reaches the host past network namespaces."""
_WORD = 0xFFFFFFFF
"""The kernel reads only the lower half of these arguments, and so must the filter (CVE-2019-10063)."""


def document(*, gpu: bool = False) -> dict[str, Any]:
    """Return the rules of the filter as JSON values."""
    return {
        "denied": sorted(DENIED),
        "unknown": sorted(_unknown(gpu=gpu)),
        "clone_flags": sorted(CLONE_FLAGS),
        "mmap_flags": sorted(_mmap_flags(gpu=gpu)),
        "socket_options": sorted(BUFFER_OPTIONS),
        "ioctls": sorted(IOCTLS),
        "socket_families": sorted(FAMILIES),
    }


@cache
def program(*, gpu: bool = False) -> bytes:
    """Return the filter, as an array of `struct sock_filter`."""
    library = _library()
    made = library.SyscallFilter(library.ALLOW)
    for names, answer in ((DENIED, errno.EPERM), (_unknown(gpu=gpu), errno.ENOSYS)):
        for number in filter(None, (_number(library, name) for name in names)):
            made.add_rule(library.ERRNO(answer), number)
    for call, index, flags in (("clone", 0, CLONE_FLAGS), ("mmap", 3, _mmap_flags(gpu=gpu))):
        for flag in flags.values():
            made.add_rule(library.ERRNO(errno.EPERM), call, library.Arg(index, library.MASKED_EQ, flag, flag))
    _add_argument_rules(library, made)
    with tempfile.TemporaryFile() as file:
        made.export_bpf(file)
        file.seek(0)
        return file.read()


def _unknown(*, gpu: bool) -> tuple[str, ...]:
    return UNKNOWN if gpu else (*UNKNOWN, *UNKNOWN_WITHOUT_GPU)


def _mmap_flags(*, gpu: bool) -> dict[str, int]:
    return MMAP_FLAGS if gpu else {**MMAP_FLAGS, **MMAP_FLAGS_WITHOUT_GPU}


def _add_argument_rules(library: ModuleType, made: Any) -> None:
    """Add the rules that depend on a number among the arguments."""

    def equal(index: int, value: int) -> Any:
        return library.Arg(index, library.MASKED_EQ, _WORD, value)

    for request in IOCTLS.values():
        made.add_rule(library.ERRNO(errno.EPERM), "ioctl", equal(1, request))
    for option in BUFFER_OPTIONS.values():
        made.add_rule(library.ERRNO(0), "setsockopt", equal(1, _SOL_SOCKET), equal(2, option))
    made.add_rule(library.ERRNO(errno.EINVAL), "prctl", equal(0, _PR_SET_SECCOMP))
    made.add_rule(library.ERRNO(errno.EPERM), "clone", library.Arg(0, library.MASKED_EQ, *THREAD_FLAGS))
    unshare = library.Arg(2, library.MASKED_EQ, _CLOSE_RANGE_UNSHARE, _CLOSE_RANGE_UNSHARE)
    if number := _number(library, "close_range"):
        made.add_rule(library.ERRNO(errno.EPERM), number, unshare)
    for comparison, family in _other_families(library):
        for call in ("socket", "socketpair"):
            made.add_rule(library.ERRNO(errno.EAFNOSUPPORT), call, library.Arg(0, comparison, family))


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
