"""Storing 500 MB in S3 as a worker stores weights, beside boto3's own `upload_file`, taking turns in one run.

Both know the digest before they start, and read the file once. pt2hub hashes what it reads all the same, completes the
upload only where the digest is right and nothing is there yet, and has S3 check each part. `upload_file` uses boto3's
default settings, and its classic client. The server is SeaweedFS on this machine; it shares the cores. A first round
does not count. `--tune` tries sizes of parts and numbers of threads instead.

Needs 4 GB of disk for five rounds (with `--tune` 24 GB): the server keeps deleted bytes.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

from common import report, say, summary

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # the server is the tests'

from pt2hub.domain.digests import digest_file
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.s3 import S3Storage, writer
from support.s3 import S3Server, running_s3

if TYPE_CHECKING:
    from collections.abc import Callable

    from types_boto3_s3 import S3Client

    Upload = Callable[[str, Path], object]

MB = 1_000_000
MIB = 1 << 20
GOAL = 1.0
"""pt2hub's seconds over those of `upload_file`, at most."""
TUNED = [(5, 4), (8, 2), (8, 3), (8, 4), (8, 6), (8, 10), (16, 2), (16, 4), (32, 4)]


def main() -> None:
    """Run and prints."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="pt2hub-benchmark-") as name:
        folder = Path(name)
        source = folder / "weights"
        with source.open("wb") as file:
            for _ in range(options.megabytes):
                file.write(os.urandom(MB))
        with running_s3(folder / "s3") as server:
            for variable, value in server.environ().items():
                os.environ[variable] = value
            ways = _tuned(server, source) if options.tune else _beside(server, source)
            seconds = _in_turns(server, ways, source, options.rounds)
    if options.tune:
        report("upload_to_s3_tuning", seconds={name: summary(each) for name, each in seconds.items()})
        return
    ratios = [ours / theirs for ours, theirs in zip(seconds["pt2hub"], seconds["upload_file"], strict=True)]
    ratio = statistics.median(ratios)
    say(
        f"pt2hub / upload_file: {ratio:.2f} in the median of {len(ratios)} rounds; at most {GOAL:g} is the goal"
    )
    report(
        "upload_to_s3",
        megabytes=options.megabytes,
        ratio=summary(ratios),
        goal=GOAL,
        reached=ratio <= GOAL,
        seconds={name: summary(each) for name, each in seconds.items()},
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--megabytes", type=int, default=500, help="size of the file (default 500)")
    parser.add_argument("--tune", action="store_true", help="sizes of parts and numbers of threads instead")
    return parser.parse_args()


def _beside(server: S3Server, source: Path) -> dict[str, Upload]:
    key = StorageKey.blob(digest_file(source))
    client = _client()

    def ours(prefix: str, path: Path) -> None:
        assert S3Storage(server.bucket, prefix).write_file(key, path) == path.stat().st_size

    def theirs(prefix: str, path: Path) -> None:
        config = TransferConfig(preferred_transfer_client="classic")
        client.upload_file(str(path), server.bucket, f"{prefix}/weights", Config=config)

    return {"pt2hub": ours, "upload_file": theirs}


def _tuned(server: S3Server, source: Path) -> dict[str, Upload]:
    key = StorageKey.blob(digest_file(source))

    def upload(mib: int, threads: int, prefix: str, path: Path) -> None:
        writer.THREADS = threads
        S3Storage(server.bucket, prefix, part_bytes=mib * MIB).write_file(key, path)

    return {f"{mib} MiB x {threads}": partial(upload, mib, threads) for mib, threads in TUNED}


def _in_turns(server: S3Server, ways: dict[str, Upload], source: Path, rounds: int) -> dict[str, list[float]]:
    """Return seconds of each, round by round, in an order that turns around each time."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    client = server.client()
    for number in range(rounds + 1):
        for name in ways if number % 2 else reversed(ways):
            prefix = f"{name}-{number}".replace(" ", "")
            os.sync()  # what the last one left to be written is not this one's
            gc.collect()
            begun = time.perf_counter()
            ways[name](prefix, source)
            took = time.perf_counter() - begun
            say(f"round {number} {name:12} {took:5.2f} s, {source.stat().st_size / MB / took:4.0f} MB/s")
            if number:
                seconds[name].append(took)
            for item in client.list_objects_v2(Bucket=server.bucket, Prefix=prefix)["Contents"]:
                assert item["Size"] == source.stat().st_size
                client.delete_object(Bucket=server.bucket, Key=item["Key"])
    return seconds


def _client() -> S3Client:
    """boto3's client at its default settings; only that buckets are addressed by path, which the server needs."""
    client: S3Client = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))
    return client


if __name__ == "__main__":
    main()
