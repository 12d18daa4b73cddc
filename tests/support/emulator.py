"""The emulator that runs programs on CPUs with fewer instruction sets than this one."""

import shutil

import pytest


def emulator() -> str:
    """The path of `qemu-x86_64`; without one the test fails, since `make test` installs it."""
    found = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if found is None:
        pytest.fail("qemu-x86_64 not found: make emulator installs it (Debian: apt install qemu-user)")
    return found
