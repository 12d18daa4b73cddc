"""Client processes that read and move one alias, while the API's processes are killed, and the history of what they saw."""

from __future__ import annotations

import contextlib
import http.client
import json
import multiprocessing
import os
import random
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from support.linearizability import Operation, Outcome, settle
from support.running import processes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.registry import Registry

MODEL, ALIAS = "vision/resnet18", "prod"
CLIENTS = 8
_READ_SHARE = 0.4
_GIVE_UP_S = 60.0
_RETRY_S = 0.02


def publish_versions(registry: Registry, count: int) -> list[int]:
    """Publishes versions that the alias can be on, and puts it on the first."""
    from support.promoted import move, published

    for _ in range(count):
        published(registry)
    move(registry, 1, None, ALIAS)
    return list(range(1, count + 1))


def record_history(
    home: Path,
    url: str,
    token: str,
    numbers: Sequence[int],
    *,
    operations: int,
    kills: int,
    pause_s: float,
    seed: int,
) -> tuple[list[Operation], int]:
    """Lets the clients work and kills API processes meanwhile; returns what they saw, and how many were killed.

    Args:
        home: The server's.
        numbers: Versions to move the alias to; it is on the first.
        operations: How many each client makes.
        kills: How many kills; clients go on until they happened.
        pause_s: Mean time between two kills.
    """
    dice = random.Random(seed)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(CLIENTS, mp_context=context) as pool, context.Manager() as manager:
        over, begin = manager.Event(), manager.Barrier(CLIENTS + 1)
        running = [
            pool.submit(
                _run_client,
                client,
                _Client(url, token),
                list(numbers),
                operations,
                (begin, over),
                seed + client,
            )
            for client in range(CLIENTS)
        ]
        killed = 0
        try:
            begin.wait(_GIVE_UP_S)  # kills before the first request would prove nothing
            while killed < kills and not any(client.done() for client in running):
                time.sleep(dice.uniform(0.5, 1.5) * pause_s)
                killed += _kill_one(home, dice)
        finally:
            over.set()
        return [operation for client in running for operation in client.result()], killed


def settle_history(url: str, token: str, history: Sequence[Operation]) -> list[Operation]:
    """The history with the lost moves decided by the alias's own record, which must agree with what the clients know."""
    client, moves = _Client(url, token), list[dict[str, Any]]()
    while True:
        client.connect()
        last = moves[-1]["sequence"] if moves else 0
        status, found = client.ask("GET", f"/api/v1/models/{MODEL}/aliases/{ALIAS}/moves?after={last}")
        assert status == http.HTTPStatus.OK, found
        if not found["moves"]:
            break
        moves += found["moves"]
    until = time.monotonic_ns()
    client.close()
    assert all(before["after"] == after["before"] for before, after in pairwise(moves))
    return settle(history, [move["reason"] for move in moves], until)


def _kill_one(home: Path, dice: random.Random) -> int:
    """Kills one of the API's worker processes, which serve requests; returns how many were, none while it starts."""
    found = [pid for pid, words in processes_of(home).items() if "pt2hub.server.serve" in words]
    workers = [pid for pid in found if _parent(pid) in found]
    if not workers:
        return 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(dice.choice(workers), signal.SIGKILL)
        return 1
    return 0


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has just ended
        return 0


class _Client:
    """A client with one connection."""

    def __init__(self, url: str, token: str) -> None:
        self._address = urlsplit(url).netloc
        self._headers = {"Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None

    def connect(self) -> None:
        """Connects, if need be: what cannot be sent is no operation."""
        deadline = time.monotonic() + _GIVE_UP_S
        while self._connection is None:
            made = http.client.HTTPConnection(self._address, timeout=30)
            try:
                made.connect()
            except OSError:
                assert time.monotonic() < deadline, "the API does not come back"
                time.sleep(_RETRY_S)
            else:
                self._connection = made

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Status and JSON of an answer; status 0 if it was lost."""
        assert self._connection is not None
        sent = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, body=sent, headers=self._headers)
            response = self._connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError):
            self.close()
            return 0, {}


def _run_client(
    number: int, client: _Client, numbers: list[int], operations: int, signals: tuple[Any, Any], seed: int
) -> list[Operation]:
    """Reads and moves the alias; returns the operations.

    Args:
        signals: A barrier at which all clients begin; an event after which they may end.
    """
    dice, (begin, over) = random.Random(seed), signals
    path = f"/api/v1/models/{MODEL}/aliases/{ALIAS}"
    made: list[Operation] = []
    seen: int | None = None
    begin.wait(_GIVE_UP_S)
    while len(made) < operations or not over.is_set():
        client.connect()
        is_read = seen is None or dice.random() < _READ_SHARE
        value = None if is_read else dice.choice([item for item in numbers if item != seen])
        reason = f"operation {number}.{len(made)}"
        began = time.monotonic_ns()
        if is_read:
            status, found = client.ask("GET", dice.choice((path, f"{path}/moves")))
        else:
            change = {"number": value, "expected": seen, "reason": reason}
            status, found = client.ask("PUT", path, change)
        ended = time.monotonic_ns()
        outcome = _outcome(status, found)
        expected = None if is_read else seen
        seen = (found["number"] if is_read else value) if outcome is Outcome.OK else None
        made.append(Operation(number, began, ended, outcome, expected, seen if is_read else value, reason))
    return made


def _outcome(status: int, found: dict[str, Any]) -> Outcome:
    if status == http.HTTPStatus.OK:
        return Outcome.OK
    if found.get("code") == "alias_moved":
        return Outcome.CONFLICT
    assert not status or status >= http.HTTPStatus.INTERNAL_SERVER_ERROR, found
    return Outcome.UNKNOWN
