"""The build plane under fire: real processes are killed, frozen and ended while builds go through them.

Three parts. A soak: PostgreSQL, the API and three workers, cheap builds without end, and random faults with quick
heartbeats. Then a real compile, each of whose steps is hit by a kill -9 of its worker. Then the time until a build
runs again at default settings, once for each kind of fault. After each part nothing may be lost, doubled, or left
open or running. Everything is local and is ended afterwards; the exit code says whether all held.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import report, say

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # the harness is the tests'

from chaos_soak import Soak
from chaos_steps import Steps, at_defaults
from support.plane import QUICK, Plane

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> int:
    """Run and prints."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it ends what it started
    options = _options()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    say(f"seed {seed}")
    parts = {"soak": _part(QUICK, lambda plane: Soak(plane, random.Random(seed)).run(options.faults))}
    if not options.skip_real:
        parts["steps"] = _part({**QUICK, "PT2HUB_TOOLCHAIN": "aoti"}, lambda plane: Steps(plane).run())
    if not options.skip_defaults:
        parts["defaults"] = _part({}, at_defaults)
    violations = [text for part in parts.values() for text in part["violations"]]
    _show(parts, violations)
    report("chaos", seed=seed, violations=len(violations), **parts)
    return 1 if violations else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100, help="random faults of the soak (default 100)")
    parser.add_argument("--seed", type=int, help="of the dice, to do the same again")
    parser.add_argument("--skip-real", action="store_true", help="no real compile")
    parser.add_argument("--skip-defaults", action="store_true", help="no recovery at default settings")
    return parser.parse_args()


def _part(settings: dict[str, str], run: Callable[[Plane], dict[str, Any]]) -> dict[str, Any]:
    """Run a part on a plane of its own; what does not happen in time is a violation."""
    with tempfile.TemporaryDirectory(prefix="pt2hub-chaos-") as name, Plane(Path(name), settings) as plane:
        try:
            return run(plane)
        except AssertionError as error:
            return {"violations": [str(error)]}


def _show(parts: dict[str, Any], violations: list[str]) -> None:
    """Print the tally as a table."""
    if "faults" in (soak := parts["soak"]):
        say(f"\n{'fault':<22} {'n':>4} {'had to recover':>15} {'p50 s':>7} {'max s':>7}")
        for kind, row in soak["faults"].items():
            shown = (row["n"], row.get("recovered", 0), row.get("p50_s", "-"), row.get("max_s", "-"))
            say(f"{kind:<22} {shown[0]:>4} {shown[1]:>15} {shown[2]:>7} {shown[3]:>7}")
        say(f"\n{soak['faults_in_all']} faults in {soak['seconds']} s; submissions: {soak['submissions']}")
        say(f"builds: {soak['builds']}; attempts: {soak['attempts']}; artifacts: {soak['artifacts']}")
    for row in parts.get("steps", {}).get("hits", ()):
        say(f"{row['step']:<10} hit, ran again after {row['recovered_s']:>6} s, then {row['final']}")
    for kind, seconds in parts.get("defaults", {}).get("recovery_s", {}).items():
        say(f"{kind:<30} {seconds:>6} s at default settings")
    say(f"violations: {len(violations)}")
    for text in violations:
        say(f"  {text}")


if __name__ == "__main__":
    sys.exit(main())
