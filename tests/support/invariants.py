"""What must hold of a build plane once it is quiet, whatever was killed on the way."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from pt2hub.domain.digests import Digest, digest_file
from pt2hub.errors import Pt2hubError
from pt2hub.server.blobs.keys import StorageKey
from support.plane import PATIENCE
from support.running import processes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.plane import Plane

_FINAL = "('succeeded', 'failed', 'cancelled')"
_RULES = {
    "a build is not over": f"SELECT id FROM builds WHERE state NOT IN {_FINAL}",
    "a version has no build": "SELECT id FROM versions WHERE id NOT IN (SELECT version_id FROM builds)",
    "a build has several artifacts": "SELECT build_id FROM artifacts GROUP BY build_id HAVING count(*) > 1",
    "a build has an artifact, or none, against its state": """
        SELECT builds.id FROM builds LEFT JOIN artifacts ON artifacts.build_id = builds.id
        WHERE (artifacts.digest IS NOT NULL) <> (builds.state = 'succeeded' AND builds.kind = 'build')""",
    "a measuring job has figures, or none, against its state": """
        SELECT builds.id FROM builds WHERE kind = 'measure' AND (state = 'succeeded') <> EXISTS (
            SELECT FROM measurements WHERE artifact = builds.request ->> 'artifact'
            AND starts_with(run, builds.id || ':' || builds.attempt || ':'))""",
    "an artifact is not of the attempt that succeeded": """
        SELECT artifacts.digest FROM artifacts JOIN builds ON builds.id = artifacts.build_id
        LEFT JOIN build_attempts AS a ON (a.build_id, a.attempt) = (artifacts.build_id, artifacts.attempt)
        WHERE a.outcome IS DISTINCT FROM 'succeeded' OR artifacts.attempt <> builds.attempt
        OR (artifacts.provenance ->> 'attempt')::int <> artifacts.attempt""",
    "several attempts at a build succeeded": """
        SELECT build_id FROM build_attempts WHERE outcome = 'succeeded' GROUP BY build_id HAVING count(*) > 1""",
    "an attempt is not closed": """
        SELECT build_id || '/' || attempt FROM build_attempts WHERE ended_at IS NULL OR outcome IS NULL""",
    "attempts are missing, or too many": """
        SELECT builds.id FROM builds LEFT JOIN build_attempts AS a ON a.build_id = builds.id
        GROUP BY builds.id HAVING count(a.attempt) <> builds.attempt
        OR coalesce(max(a.attempt), 0) <> builds.attempt""",
    "an attempt began before the one before it was over": """
        SELECT a.build_id || '/' || a.attempt FROM build_attempts AS a
        JOIN build_attempts AS b ON (b.build_id, b.attempt) = (a.build_id, a.attempt - 1)
        WHERE a.started_at < b.ended_at""",
    "a build that failed or was cancelled does not say why": """
        SELECT id FROM builds WHERE state IN ('failed', 'cancelled') AND error IS NULL""",
    # A job that a killed worker had taken leads nowhere; only a worker that lives on with it would hold it.
    "a job leads to a build that is over": f"""
        SELECT jobs.id || ' to ' || builds.id FROM procrastinate_jobs AS jobs
        JOIN builds ON builds.id = jobs.args ->> 'build_id'
        LEFT JOIN procrastinate_workers AS holders ON holders.id = jobs.worker_id
        WHERE builds.state IN {_FINAL} AND (jobs.status = 'todo'
        OR (jobs.status = 'doing' AND holders.last_heartbeat > builds.finished_at + interval '20 seconds'))""",
}


def check(plane: Plane) -> list[str]:
    """What is wrong with a plane that is quiet; empty where nothing is."""
    return [
        *(f"{rule}: {row[0]}" for rule, query in _RULES.items() for row in plane.sql(query)),
        *_lost(plane),
        *_storage(plane),
        *_left_running(plane),
    ]


def settled(plane: Plane, *, seconds: float = PATIENCE) -> list[str]:
    """Waits until every build is over and all is well; what is still wrong then.

    Nothing that matters mends itself: artifacts, attempts and lost bytes stay as they are. What may take a moment is
    the end of processes whose parent was killed.
    """
    deadline = time.monotonic() + seconds
    while (wrong := check(plane)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return wrong


def _lost(plane: Plane) -> Iterator[str]:
    known = {row[0] for row in plane.sql("SELECT id FROM builds")}
    return (f"a build that was accepted is gone: {build}" for build in plane.accepted if build not in known)


def _storage(plane: Plane) -> Iterator[str]:
    """Every manifest and blob that a row names must be there, with its digest, and so must what manifests name."""
    manifests = {
        row[0] for row in plane.sql("SELECT digest FROM artifacts UNION SELECT digest FROM referrers")
    }
    blobs = {
        row[0]
        for row in plane.sql("""
            SELECT config FROM artifacts UNION SELECT code FROM artifacts UNION SELECT weights FROM artifacts
            UNION SELECT weights FROM versions UNION SELECT golden FROM versions
            UNION SELECT log FROM build_attempts""")
        if row[0] is not None
    }
    for digest in manifests:
        key = StorageKey.manifest(Digest(digest))
        if wrong := list(_wrong(plane, key)):
            yield from wrong
            continue
        document = json.loads((plane.storage / key.path).read_bytes())
        blobs |= {part["digest"] for part in (document["config"], *document["layers"])}
    for digest in blobs:
        yield from _wrong(plane, StorageKey.blob(Digest(digest)))


def _wrong(plane: Plane, key: StorageKey) -> Iterator[str]:
    path = plane.storage / key.path
    try:
        found = digest_file(path)
    except (OSError, Pt2hubError):
        yield f"nothing is stored under {key.path}"
        return
    if found != key.digest:
        yield f"{key.path} holds {found}"


def _left_running(plane: Plane) -> Iterator[str]:
    """Processes that outlived the one that started them."""
    known = plane.living()
    for pid, arguments in processes_of(plane.folder).items():
        if pid not in known:
            yield f"process {pid} was left running: {arguments}"
