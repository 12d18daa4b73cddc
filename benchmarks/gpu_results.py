"""The GPU results: publishes each model with the product itself, and times what it made; writes docs/gpu-results.json.

`make gpu-results` runs it with the machine's own torch; nothing is installed. All models take about 20 minutes on an
H100; those named on the command line replace their rows of the file, and the others stay as they were measured.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import first_inference
from common import ROOT, compile_bytecode, say, served
from figures import commit
from gpu_entries import CODE, ENTRIES, Entry
from pt2hub.cli.operations import demo
from pt2hub.client.machine.fingerprint import environment
from pt2hub.domain.codec import encode
from pt2hub.errors import Pt2hubError

if TYPE_CHECKING:
    from pt2hub.cli.operations.temporary_server import TemporaryServer
    from pt2hub.client.client import Client
    from pt2hub.wire.responses import BuildView, VersionView

RESULTS = ROOT / "docs" / "gpu-results.json"
TIMINGS = (str(ROOT / "benchmarks" / "gpu_timings.py"),)
MEASURED = {"processes": 3, "seconds": 0.3, "profile": False}
BUILD_TIMEOUT_S = 1800.0
MEASURE_TIMEOUT_S = 600.0
FIRST_ROUNDS = 3
"""Rounds of first calls in fresh processes; each compiles once with cold caches."""


def main() -> None:
    """Publish, time, and write each row as soon as it is there."""
    given = _arguments()
    entries = [ENTRIES[name] for name in given.names or ENTRIES]
    compile_bytecode()
    with served(PT2HUB_CONCURRENCY=str(given.beside)) as (trial, client, folder):
        for group in _groups(entries):
            began = time.monotonic()
            versions = [(entry, _publish(client, entry)) for entry in group]
            for entry, version in versions:
                row = _published(client, entry, version, given, began)
                _write(given.output, entry, row | _timed(trial, client, entry, row, folder))
                began = time.monotonic()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *ENTRIES], help="rows to measure (default: all)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the file to write")
    parser.add_argument("--commit", default=None, help="the commit, where git cannot say it")
    parser.add_argument("--logs", type=Path, default=None, help="folder for the logs of builds")
    parser.add_argument(
        "--beside",
        type=int,
        default=1,
        help="models that are published beside each other (default 1); more is quicker, and their seconds are longer",
    )
    return parser.parse_args()


def _groups(entries: list[Entry]) -> list[list[Entry]]:
    """Return groups that may be published beside each other: an entry comes after the one that it needs."""
    return [[entry for entry in entries if bool(entry.after) is later] for later in (False, True)]


def _publish(client: Client, entry: Entry) -> VersionView:
    measure = MEASURED if entry.measured else {"processes": 0}
    spec = {"model": f"results/{entry.name}", "measure": measure, **entry.spec}
    say(f"{entry.title}: publish {spec['model']}")
    return client.publish(spec, code=CODE if entry.uses_code else None, wait=False)


def _published(
    client: Client, entry: Entry, version: VersionView, given: argparse.Namespace, began: float
) -> dict[str, Any]:
    """Wait for a build; return what the file says about it."""
    version = client.versions.follow(version, timeout=BUILD_TIMEOUT_S, until="ready")
    build = version.builds[0]
    if given.logs:
        _keep_log(client, build, given.logs / f"{entry.name}.txt")
    row = {
        "title": entry.title,
        "model": f"{version.model}@{version.number}",
        "date": datetime.now(UTC).date().isoformat(),
        "commit": given.commit or commit(),
        "device": encode(environment(device="cuda" if torch.cuda.is_available() else "cpu")),
        "beside": given.beside,
        "seconds": round(time.monotonic() - began, 1),
        "steps": demo.step_seconds(build),
        "state": str(build.state),
    }
    say(f"{entry.title}: {json.dumps({key: row[key] for key in ('state', 'steps')})}")
    if build.artifact is None:
        error = build.error or {}
        return row | {"error": {key: error.get(key) for key in ("code", "message", "hint", "details")}}
    view = client.artifacts.get(build.artifact)
    layers = view.manifest["layers"]
    kept = ("code_reused_from", "compile", "autotuning", "regions", "verification")
    return row | {
        "target": build.target,
        "code_bytes": layers[0]["size"],
        "weights_bytes": layers[1]["size"],
        "provenance": {key: view.provenance[key] for key in kept if key in view.provenance},
        "isolation": view.provenance["isolation"],
    }


def _keep_log(client: Client, build: BuildView, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "\n".join(f"{line.at:.3f} {line.step}: {line.text}" for line in client.builds.logs(build.id))
    )


def _timed(
    trial: TemporaryServer, client: Client, entry: Entry, row: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """Return what fresh processes measure with an artifact; nothing without one."""
    if "error" in row or not entry.sizes:
        return {}
    found: dict[str, Any] = {}
    caches = folder / "caches" / entry.name
    environ = {"TORCHINDUCTOR_CACHE_DIR": str(caches), "PYTHONPATH": _python_path(trial)}
    try:
        found["timed"] = trial.child(
            row["model"], ",".join(entry.modes), json.dumps(entry.sizes), environ=environ, program=TIMINGS
        )
        say(f"{entry.title}: {json.dumps(found['timed']['p50_ms'])}")
        if entry.measured:
            found["first_calls"] = first_inference.measure(
                FIRST_ROUNDS, trial, folder, cold_every=FIRST_ROUNDS
            )
            found["measurements"] = _measurements(client, row["model"])
    except Pt2hubError as error:
        found["failed"] = str(error)
        say(f"{entry.title}: {error}")
    return found


def _python_path(trial: TemporaryServer) -> str:
    return f"{ROOT / 'benchmarks'}:{trial.environ.get('PYTHONPATH', '')}"


def _measurements(client: Client, reference: str) -> list[dict[str, Any]]:
    """Wait for the product's own measurements of a version, and return them."""
    resolved = client.artifacts.resolve(reference)
    version = client.versions.get(resolved.model, resolved.number)
    client.versions.follow(version, timeout=MEASURE_TIMEOUT_S, until="measured")
    view = client.artifacts.get(resolved.artifacts[0].digest)
    return [
        {
            "metric": item.metric,
            "implementation": item.implementation,
            "batch": item.batch,
            "value": item.value,
        }
        for item in view.measurements
    ]


def _write(path: Path, entry: Entry, row: dict[str, Any]) -> None:
    rows = json.loads(path.read_text()) if path.exists() else {}
    rows[entry.name] = row
    ordered = {name: rows[name] for name in ENTRIES if name in rows}
    path.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
