"""A worker whose steps last longer, so that a fault hits the one it is meant for: `python -m support.slow_worker`.

It is the product's worker, started by its own main program; only time is added. `PT2HUB_SLOW_STEPS` names moments
and seconds: "compile=2, publish=3, publish:done=1" waits two seconds at the beginning of `compile`, three at that of
`publish`, and one after it, when the artifact is in the database already; each wait ends early where the file
`PT2HUB_SLOW_UNTIL` exists. `PT2HUB_DEAF=1` makes a worker that hears neither of a cancel nor of being overtaken: it
goes on until the database refuses what it does. SIGUSR1 shows where its threads are. Odd attempts at models named `broken...` fail in `pack`.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pt2hub.errors import CompileFailed
from pt2hub_workers.builds.journal import Journal
from pt2hub_workers.main import main
from pt2hub_workers.operations.cancellation import CancellationToken


def _pauses() -> dict[str, float]:
    pairs = [pair.partition("=") for pair in os.environ.get("PT2HUB_SLOW_STEPS", "").split(",") if pair]
    return {name.strip(): float(seconds) for name, _, seconds in pairs}


def _slow_down(pauses: dict[str, float], end: Path) -> None:
    noted = Journal.step

    def step(self: Journal, name: str, state: Any, **known: Any) -> None:
        noted(self, name, state, **known)
        claim = self._claim
        if (name, state) == ("pack", "running") and "/broken" in claim.model and claim.attempt % 2:
            raise CompileFailed("broken on purpose", where=name, hint="Retry it: the next attempt may do.")
        if known.get("detail") is None:  # else it is progress within the step
            deadline = time.monotonic() + pauses.get(name if state == "running" else f"{name}:{state}", 0.0)
            while time.monotonic() < deadline and not end.exists():
                time.sleep(0.02)

    Journal.step = step  # type: ignore[method-assign]  # time is added from outside: the product has no hooks


def _deafen() -> None:
    CancellationToken.set = lambda _self, _reason: None  # type: ignore[method-assign,assignment]  # as above


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # where it hangs, for whoever asks why
    _slow_down(_pauses(), Path(os.environ.get("PT2HUB_SLOW_UNTIL") or "/dev/null/none"))
    if os.environ.get("PT2HUB_DEAF"):
        _deafen()
    sys.exit(main(sys.argv[1:]))
