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
UNMEASURED = {"processes": 0}
MEASURED = {"processes": 3, "seconds": 0.3, "profile": False}
BUILD_TIMEOUT_S = 1800.0
MEASURE_TIMEOUT_S = 600.0
FIRST_ROUNDS = 3
"""Rounds of first calls in fresh processes; each compiles once with cold caches."""


def main() -> None:
    """Publish all, then time one after the other; each row is written as soon as it is there, and again when it grows."""
    given = _arguments()
    entries = [ENTRIES[name] for name in given.names or ENTRIES]
    compile_bytecode()
    with served(PT2HUB_CONCURRENCY=str(given.beside)) as (trial, client, folder):
        rows: dict[str, dict[str, Any]] = {}
        for group in _groups(entries):
            for entry, version, began in [(entry, *_publish(client, entry)) for entry in group]:
                rows[entry.name] = _published(client, entry, version, given, began)
                _write(given.output, entry, rows[entry.name])
        timed = [entry for entry in entries if entry.sizes and "error" not in rows[entry.name]]
        for entry in timed:
            rows[entry.name] |= _timed(trial, entry, rows[entry.name]["model"], folder)
            _write(given.output, entry, rows[entry.name])
        for entry in timed:
            if entry.measured and not given.skip_measured:
                rows[entry.name] |= _measured(trial, client, entry, folder)
                _write(given.output, entry, rows[entry.name])


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
    parser.add_argument(
        "--skip-measured", action="store_true", help="leave out the product's own measurements"
    )
    return parser.parse_args()


def _groups(entries: list[Entry]) -> list[list[Entry]]:
    """Return groups that may be published beside each other: an entry comes after the one that it needs."""
    return [[entry for entry in entries if bool(entry.after) is later] for later in (False, True)]


def _spec(entry: Entry, measure: dict[str, Any]) -> dict[str, Any]:
    return {"model": f"results/{entry.name}", "measure": measure, **entry.spec}


def _publish(client: Client, entry: Entry) -> tuple[VersionView, float]:
    """Publish without waiting; return the version, and when."""
    spec = _spec(entry, UNMEASURED)
    say(f"{entry.title}: publish {spec['model']}")
    began = time.monotonic()
    return client.publish(spec, code=CODE if entry.uses_code else None, wait=False), began


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


def _timed(trial: TemporaryServer, entry: Entry, model: str, folder: Path) -> dict[str, Any]:
    """Return what a fresh process measures with an artifact and what it is compared with."""
    environ = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "caches" / entry.name),
        "PYTHONPATH": f"{ROOT / 'benchmarks'}:{trial.environ.get('PYTHONPATH', '')}",
    }
    modes, sizes = ",".join(entry.modes), json.dumps(entry.sizes)
    try:
        timed = trial.child(model, modes, sizes, environ=environ, program=TIMINGS)
    except Pt2hubError as error:
        say(f"{entry.title}: {error}")
        return {"failed": str(error)}
    say(f"{entry.title}: {json.dumps(timed['p50_ms'])}")
    return {"timed": timed}


def _measured(trial: TemporaryServer, client: Client, entry: Entry, folder: Path) -> dict[str, Any]:
    """Return first calls in fresh processes, and what the product measures itself."""
    first_calls = first_inference.measure(FIRST_ROUNDS, trial, folder, cold_every=FIRST_ROUNDS)
    version = client.publish(
        _spec(entry, MEASURED), wait=False
    )  # the same version, which is to be measured now
    reference = f"{version.model}@{version.number}"
    client.builds.follow(client.performance.measure(reference), timeout=MEASURE_TIMEOUT_S)
    return {"first_calls": first_calls, "measurements": _measurements(client, reference)}


def _measurements(client: Client, reference: str) -> list[dict[str, Any]]:
    view = client.artifacts.get(client.artifacts.resolve(reference).artifacts[0].digest)
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
