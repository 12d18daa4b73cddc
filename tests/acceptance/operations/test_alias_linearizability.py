"""Eight clients move one alias of a server whose API processes are killed: it is a linearizable register."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from pt2hub.server.db.embedded import EmbeddedPostgres
from support.alias_clients import ALIAS, CLIENTS, MODEL, publish_versions, record_history, settle_history
from support.linearizability import Outcome, find_violation
from support.registry import Registry
from support.running import Up, processes_of

if TYPE_CHECKING:
    from pathlib import Path


def test_an_alias_is_linearizable_although_api_processes_are_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    up = Up(home).wait_ready()
    try:
        database = EmbeddedPostgres(home / "server" / "db").url
        config = ServerConfig.from_environ({"PT2HUB_HOME": str(home)})
        with open_container(config, database_url=database) as container:
            numbers = publish_versions(Registry(container, database), 5)
            url, token = up.settings["url"], up.settings["token"]
            history, killed = record_history(
                home, url, token, numbers, operations=30, kills=3, pause_s=0.7, seed=7
            )
            known = container.aliases.alias(MODEL, ALIAS)
        settled = settle_history(url, token, history)
    finally:
        up.end()
    assert processes_of(home) == {}
    assert killed == 3
    assert len(history) >= 30 * CLIENTS
    swaps = [item for item in history if item.expected is not None]
    assert {item.outcome for item in swaps} >= {Outcome.OK, Outcome.CONFLICT}
    assert any(item.outcome is Outcome.UNKNOWN for item in history), "no kill met a request"
    assert find_violation(history, 1) is None
    assert find_violation(settled, 1) is None
    # The search is able to find one in a history like this.
    last = max(
        (item for item in history if item.expected is None and item.outcome is Outcome.OK),
        key=lambda item: item.began,
    )
    assert find_violation([*history, replace(last, began=last.ended + 1, ended=last.ended + 2, value=99)], 1)
    moves = [(move.before, move.after) for move in reversed(known.history)]
    assert all(before == after for (_, after), (before, _) in pairwise(moves))
    assert sum(item.outcome is Outcome.OK for item in swaps) <= len(moves) - 1
