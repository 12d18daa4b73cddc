"""Whether an alias is a linearizable register: eight client processes, compare-and-set over HTTP, kill -9 of API processes.

Each client reads the alias or moves it from the version that it saw last to another one, and writes down when it asked, when
it knew the answer, and what that was. Whether a move took effect whose answer a kill took along, the alias's own record says,
which must agree with all that clients know. A search for an order that explains all answers follows. Everything is local; the
exit code says whether there is one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from common import report, say

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # the harness is the tests'

from pt2hub.cli.operations.temporary_server import temporary_home
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from pt2hub.server.db.embedded import EmbeddedPostgres
from support.alias_clients import CLIENTS, publish_versions, record_history, settle_history
from support.linearizability import Operation, find_violation
from support.registry import Registry
from support.running import Up

VERSIONS = 12
PAUSE_S = 3.0
"""Between two kills, in the mean: time for all that was lost to be there again."""


def main() -> int:
    """Run and print."""
    options = _options()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    say(f"seed {seed}")
    with temporary_home("pt2hub-linearizability-") as folder:
        began = time.monotonic()
        history, settled, killed = _record(folder / "home", options.operations, options.kills, seed)
        recorded = time.monotonic()
    violation = find_violation(settled, 1)
    report(
        "alias_linearizability",
        seed=seed,
        clients=CLIENTS,
        operations=len(history),
        kills=killed,
        outcomes=_count(history),
        lost_moves_that_took_effect=_count(settled).get("move_ok", 0) - _count(history).get("move_ok", 0),
        record_s=round(recorded - began, 1),
        search_s=round(time.monotonic() - recorded, 2),
        linearizable=violation is None,
    )
    if violation:
        say(f"no order explains {violation}")
    return 1 if violation else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=400, help="of each client (default 400)")
    parser.add_argument("--kills", type=int, default=20, help="kills of API processes at least (default 20)")
    parser.add_argument("--seed", type=int, help="of the dice")
    return parser.parse_args()


def _record(
    home: Path, operations: int, kills: int, seed: int
) -> tuple[list[Operation], list[Operation], int]:
    """Return what the clients saw, that with the lost moves decided, and the number of kills."""
    up = Up(home).wait_ready()
    try:
        database = EmbeddedPostgres(home / "server" / "db").url
        config = ServerConfig.from_environ({"PT2HUB_HOME": str(home)})
        with open_container(config, database_url=database) as container:
            numbers = publish_versions(Registry(container, database), VERSIONS)
        url, token = up.settings["url"], up.settings["token"]
        history, killed = record_history(
            home, url, token, numbers, operations=operations, kills=kills, pause_s=PAUSE_S, seed=seed
        )
        return history, settle_history(url, token, history), killed
    finally:
        up.end()


def _count(history: list[Operation]) -> dict[str, int]:
    kinds = ("read" if item.expected is None else "move" for item in history)
    return dict(Counter(f"{kind}_{item.outcome}" for kind, item in zip(kinds, history, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
