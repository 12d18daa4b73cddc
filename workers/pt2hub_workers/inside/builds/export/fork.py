"""Forked copies of this process, in which a model runs with its original state, globals included.

Threads do not survive a fork, and code that waits for OpenMP's would wait forever (docs/facts/aoti.md#fork). A copy
therefore runs on one thread, as PyTorch's own forked data loaders do; no compiled artifact has run before.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
import warnings
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.005


class Fork:
    """A function that runs in a forked copy of this process.

    Args:
        work: Returns tensors and plain values; it may raise, or never end.
    """

    def __init__(self, work: Callable[[], dict[str, Any]], path: Path) -> None:
        self._path = path
        self._reaped = False
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # of processes with threads, as of Python 3.12
            self._pid = os.fork()
        if self._pid == 0:
            _run_copy(work, path)

    def result(self, seconds: float) -> dict[str, Any] | None:
        """Return the function's result; None if it raised, died or took too long; the copy has ended in any case."""
        deadline = time.monotonic() + seconds
        status: int | None = None
        while status is None and time.monotonic() < deadline:
            pid, ended = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                status, self._reaped = ended, True
            else:
                time.sleep(_POLL_S)
        self.close()
        if status != 0:
            return None
        found: dict[str, Any] = torch.load(self._path, weights_only=True)
        self._path.unlink()
        return found

    def close(self) -> None:
        """End the copy if it still runs."""
        if not self._reaped:
            self._reaped = True
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)


def _run_copy(work: Callable[[], dict[str, Any]], path: Path) -> None:
    """Do the work and exit; prints nothing, and runs none of the parent's exit handlers."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        torch.set_num_threads(1)
        torch.save(work(), path)
        status = 0
    except BaseException:  # noqa: BLE001, S110  # the parent learns that there is no result; this process must end here
        pass
    finally:
        os._exit(status)
