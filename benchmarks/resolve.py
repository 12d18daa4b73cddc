"""Resolving an alias: latency at 100 requests a second, and most requests a second beside MLflow's alias look-up.

Both servers run two processes and are asked in turns, so that the machine's moods meet both. MLflow is installed
by pip into a virtual environment of its own (850 MB, a minute) unless `--mlflow` names its executable; it runs as
its documentation starts it, on SQLite.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import venv
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from common import publish_resnet18, report, say, served, summary
from load import closed_loop, open_loop
from pt2hub.system.processes import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


RATE = 100.0
RATE_SECONDS = 20.0
ROUND_SECONDS = 5.0
CONNECTIONS = 8
PROCESSES = "2"
START_SECONDS = 120.0


def main() -> None:
    """Run and prints."""
    options = _options()
    with served(PT2HUB_API_PROCESSES=PROCESSES) as (_, client, folder):
        publish_resnet18(client)
        client.aliases.move("vision/resnet18", "prod", 1, reason="benchmark")
        ours = f"{client.config.url}/api/v1/resolve?" + urlencode({"reference": "vision/resnet18@prod"})
        closed_loop(ours, connections=CONNECTIONS, seconds=2)  # opens database connections
        steady = open_loop(ours, rate=RATE, connections=CONNECTIONS, seconds=RATE_SECONDS)
        say(f"at {RATE:g}/s: p50 {steady.quantile(0.5):.1f} ms, p99 {steady.quantile(0.99):.1f} ms")
        executable = options.mlflow or _install(folder / "mlflow")
        with _mlflow(executable, folder) as theirs:
            figures = _in_turns({"pt2hub": ours, "mlflow": theirs}, options.rounds)
    report(
        "resolve",
        at_100_a_second={
            "p50_ms": round(steady.quantile(0.5), 2),
            "p99_ms": round(steady.quantile(0.99), 2),
            "answers": len(steady.milliseconds),
            "wrong": steady.wrong,
        },
        per_second={name: summary(values, 0) for name, values in figures.items()},
        ratio=round(summary(figures["pt2hub"])["median"] / summary(figures["mlflow"])["median"], 2),
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    parser.add_argument("--mlflow", help="an installed mlflow executable")
    return parser.parse_args()


def _in_turns(addresses: dict[str, str], rounds: int) -> dict[str, list[float]]:
    """Answer a second of each, round by round; the first round warms up and is not counted."""
    figures: dict[str, list[float]] = {name: [] for name in addresses}
    for number in range(rounds + 1):
        for name, address in addresses.items():
            tally = closed_loop(address, connections=CONNECTIONS, seconds=ROUND_SECONDS)
            assert tally.wrong == 0, f"{name} answered {tally.wrong} times with something else than 200"
            say(f"{name:8} {tally.per_second:8.0f} a second, p99 {tally.quantile(0.99):.1f} ms")
            if number:
                figures[name].append(tally.per_second)
    return figures


def _install(folder: Path) -> str:
    say("installing mlflow")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", "mlflow"], check=True, stdout=sys.stderr)
    return str(folder / "bin" / "mlflow")


@contextlib.contextmanager
def _mlflow(executable: str, folder: Path) -> Iterator[str]:
    """MLflow with one model, one version and the alias `prod`; the address of its look-up."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [executable, "server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--host",
               "127.0.0.1", "--port", str(port), "--workers", PROCESSES]  # fmt: skip
    with (folder / "mlflow.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509  # one system call through an already loaded library
        )
    try:
        _await(url, process, folder / "mlflow.log")
        name = {"name": "resnet18"}
        _post(url, "registered-models/create", name)
        _post(url, "model-versions/create", {**name, "source": "s3://bucket/resnet18"})
        _post(url, "registered-models/alias", {**name, "alias": "prod", "version": "1"})
        yield f"{url}/api/2.0/mlflow/registered-models/alias?" + urlencode({**name, "alias": "prod"})
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"mlflow did not start: {log.read_text(errors='replace')[-800:]}")
        time.sleep(0.2)


def _post(url: str, path: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(
        f"{url}/api/2.0/mlflow/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30):
        pass


if __name__ == "__main__":
    main()
