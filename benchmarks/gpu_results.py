"""The GPU results: publishes each model with the product itself, and times what it made; writes docs/gpu-results.json.

`make gpu-results` runs it with the machine's own torch; nothing is installed. All models take about 25 minutes on an
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
from gpu_entries import CODE, ENTRIES, PARTS, Entry
from pt2hub.cli.operations import demo
from pt2hub.client.machine.fingerprint import environment
from pt2hub.domain.codec import encode
from pt2hub.errors import Pt2hubError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.cli.operations.temporary_server import TemporaryServer
    from pt2hub.client.client import Client
    from pt2hub.wire.responses import BuildView, VersionView

RESULTS = ROOT / "docs" / "gpu-results.json"
TIMINGS = (str(ROOT / "benchmarks" / "gpu_timings.py"),)
UNMEASURED = {"processes": 0}
MEASURED = {"processes": 3, "seconds": 0.3, "profile": False}
BUILD_TIMEOUT_S = 1800.0
MEASURE_TIMEOUT_S = 600.0
FIRST_ROUNDS = 2
"""Rounds of first calls in fresh processes."""
_STARTED = time.monotonic()


def main() -> None:
    """Publish all, then time one after the other; each row is written as soon as it is there, and again when it grows."""
    given = _arguments()
    entries = _chosen(given)
    compile_bytecode()
    with served(PT2HUB_CONCURRENCY=str(given.beside)) as (trial, client, folder):
        _tell(f"the server runs; {len(entries)} models are published, then timed")
        rows: dict[str, dict[str, Any]] = {}
        for group in _groups(entries):
            beside = min(given.beside, len(group))
            for entry, version, began in [(entry, *_publish(client, entry)) for entry in group]:
                rows[entry.name] = _published(client, entry, version, given, began) | {"beside": beside}
                _write(given.output, entry, rows[entry.name])
        for timed in _timed_together(entries, rows):
            found = _timed(trial, timed, rows, folder)
            for entry in timed:
                rows[entry.name] |= found[entry.name]
                _write(given.output, entry, rows[entry.name])
        for entry in entries:
            if entry.measured and "error" not in rows[entry.name]:
                _tell(f"{entry.title}: first calls, about 2 minutes")
                found = first_inference.measure(FIRST_ROUNDS, trial, folder, cold_every=None)
                rows[entry.name] |= {"first_calls": found}
                _write(given.output, entry, rows[entry.name])
                if not given.skip_measured:
                    rows[entry.name] |= _measured(client, entry)
                    _write(given.output, entry, rows[entry.name])
    _tell("done")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *ENTRIES], help="rows to measure (default: all)")
    parser.add_argument("--part", choices=list(PARTS), help="the rows of one of three commands")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the file to write")
    parser.add_argument("--commit", default=None, help="the commit, where git cannot say it")
    parser.add_argument("--logs", type=Path, default=None, help="folder for the logs of builds")
    parser.add_argument(
        "--beside",
        type=int,
        default=1,
        help="models that are published beside each other (default 1), but for those that autotune; more is quicker, and "
        "their seconds are longer",
    )
    parser.add_argument(
        "--skip-measured",
        action="store_true",
        help="leave out the product's own measuring job, about 80 seconds",
    )
    return parser.parse_args()


def _chosen(given: argparse.Namespace) -> list[Entry]:
    names = given.names or (PARTS[given.part] if given.part else ENTRIES)
    return [ENTRIES[name] for name in names]


def _tell(line: str) -> None:
    """Print progress with the seconds since the start."""
    say(f"[{time.monotonic() - _STARTED:4.0f} s] {line}")


def _groups(entries: list[Entry]) -> list[list[Entry]]:
    """Return groups that may be published beside each other.

    One that autotunes is published alone: others would wait for the device, and their compile steps with them. An entry
    comes after the one that it needs.
    """
    groups: list[list[Entry]] = []
    for later in (False, True):
        some = [entry for entry in entries if bool(entry.after) is later]
        groups += [[entry for entry in some if not entry.is_tuned]]
        groups += [[entry] for entry in some if entry.is_tuned]
    return [group for group in groups if group]


def _timed_together(entries: list[Entry], rows: dict[str, dict[str, Any]]) -> list[list[Entry]]:
    """Return the entries that are timed, those of one process together; the first one says what they are compared with."""
    published = {entry.name: entry for entry in entries if entry.sizes and "error" not in rows[entry.name]}
    guests = {name: entry.timed_with for name, entry in published.items() if entry.timed_with in published}
    return [
        [entry, *(published[name] for name, host in guests.items() if host == entry.name)]
        for entry in published.values()
        if entry.name not in guests
    ]


def _model(entry: Entry) -> str:
    return str(entry.spec.get("model", f"results/{entry.name}"))


def _spec(entry: Entry, measure: dict[str, Any]) -> dict[str, Any]:
    return {**entry.spec, "model": _model(entry), "measure": measure}


def _publish(client: Client, entry: Entry) -> tuple[VersionView | Pt2hubError, float]:
    """Publish without waiting; return the version, or why it was refused at once, and when."""
    spec = _spec(entry, UNMEASURED)
    budget = spec.get("limits", {}).get("autotune_seconds")
    _tell(f"{entry.title}: publish {spec['model']}" + (f", autotuning of about {budget} s" if budget else ""))
    began = time.monotonic()
    try:
        return client.publish(spec, code=CODE if entry.uses_code else None, wait=False), began
    except Pt2hubError as error:
        return error, began


def _published(
    client: Client,
    entry: Entry,
    version: VersionView | Pt2hubError,
    given: argparse.Namespace,
    began: float,
) -> dict[str, Any]:
    """Wait for a build; return what the file says about it."""
    row = {
        "title": entry.title,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": given.commit or commit(),
        "device": encode(environment(device="cuda" if torch.cuda.is_available() else "cpu")),
    }
    if isinstance(version, Pt2hubError):
        _tell(f"{entry.title}: {version}")
        return row | {
            "model": _model(entry),
            "state": "refused",
            "steps": {},
            "error": _error(version.as_dict()),
        }
    version = client.versions.follow(version, timeout=BUILD_TIMEOUT_S, until="ready")
    build = version.builds[0]
    if given.logs:
        _keep_log(client, build, given.logs / f"{entry.name}.txt")
    row |= {
        "model": f"{version.model}@{version.number}",
        "seconds": round(time.monotonic() - began, 1),
        "steps": demo.step_seconds(build),
        "state": str(build.state),
    }
    _tell(f"{entry.title}: {json.dumps({key: row[key] for key in ('state', 'steps')})}")
    if build.artifact is None:
        return row | {"error": _error(build.error or {})}
    view = client.artifacts.get(build.artifact)
    layers = view.manifest["layers"]
    kept = ("code_reused_from", "compile", "autotuning", "verification")
    return row | {
        "target": build.target,
        "code_bytes": layers[0]["size"],
        "weights_bytes": layers[1]["size"],
        "provenance": {key: view.provenance[key] for key in kept if key in view.provenance},
        "isolation": view.provenance["isolation"],
        "parts": [{"calls": part.calls, "modules": list(part.modules)} for part in view.regions],
    }


def _error(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: found.get(key) for key in ("code", "message", "where", "hint", "details")}


def _keep_log(client: Client, build: BuildView, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "\n".join(f"{line.at:.3f} {line.step}: {line.text}" for line in client.builds.logs(build.id))
    )


def _timed(
    trial: TemporaryServer, entries: list[Entry], rows: dict[str, dict[str, Any]], folder: Path
) -> dict[str, dict[str, Any]]:
    """Return what a fresh process measures with artifacts of one model, and what they are compared with."""
    host = entries[0]
    references = {entry.name: rows[entry.name]["model"] for entry in entries}
    environ = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "caches" / host.name),
        "PYTHONPATH": f"{ROOT / 'benchmarks'}:{trial.environ.get('PYTHONPATH', '')}",
    }
    _tell(f"{', '.join(references)}: time beside eager mode and torch.compile {' '.join(host.modes)}")
    arguments = json.dumps(references), ",".join(host.modes), json.dumps(host.sizes)
    try:
        timed = trial.child(*arguments, environ=environ, program=TIMINGS)
    except Pt2hubError as error:
        _tell(f"{host.title}: {error}")
        return {name: {"failed": str(error)} for name in references}
    for name, found in timed.items():
        _tell(f"{name}: first calls {json.dumps(found['first_call_s'])}")
        _tell(f"{name}: {json.dumps(found['p50_ms'])}")
    return {name: {"timed": found} for name, found in timed.items()}


def _measured(client: Client, entry: Entry) -> dict[str, Any]:
    """Return what the product measures itself."""
    _tell(f"{entry.title}: the product's own measuring job, about 80 seconds")
    # The same version, which is to be measured now.
    version = client.publish(_spec(entry, MEASURED), wait=False)
    reference = f"{version.model}@{version.number}"
    client.builds.follow(client.performance.measure(reference), timeout=MEASURE_TIMEOUT_S)
    return {"measurements": _measurements(client, reference)}


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
