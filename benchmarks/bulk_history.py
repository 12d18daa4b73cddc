"""Performance histories of any size, inserted in bulk for the benchmarks; nothing in them can be pulled.

Models under the team `seeded`, a hundred versions each, an artifact of each version on two targets, five figures of
each artifact; one model in a hundred became slower at its eightieth version, and machines were replaced at the sixtieth.
Rows are written version by version over all models, as time would have: the points of a series lie far apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psycopg
from psycopg.types.json import Jsonb

from pt2hub.domain.artifacts import Environment
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import digest_json
from pt2hub.domain.performance.measurements import environment_class
from pt2hub.domain.targets import parse_target
from pt2hub.server.db import engine as engines

if TYPE_CHECKING:
    from collections.abc import Callable

TEAM = "seeded"
VERSIONS = 100
"""Versions of a model."""
REPLACED = 60
"""The last version that was measured on the old machines."""
SLOWER = 80
"""The first slow version, of the models that have one."""
RATIO = 1.15
METRICS = (
    ("latency_p50", "ms", 2, 10.0),
    ("latency_p50", "ms", 16, 60.0),
    ("throughput", "1/s", 16, 260.0),
    ("load_time", "ms", 0, 25.0),
    ("package_bytes", "B", 0, 45e6),
)
"""Name, unit, batch and typical value of each."""
_OLD = Environment("Seeded CPU 1", "x86_64_v4", 8, 32 << 30, "2.13.0+cpu", isolation="sandbox")
_ENVIRONMENTS = {
    "torch2.13-cpu-x86_64_v4": (_OLD, replace(_OLD, cpu_model="Seeded CPU 2")),
    "torch2.11-cu130-sm90": tuple(
        replace(_OLD, torch="2.11.0+cu130", cuda="13.0", gpu="Seeded GPU", driver=driver)
        for driver in ("580.1", "590.1")
    ),
}
TARGETS = tuple(_ENVIRONMENTS)
PER_VERSION = len(METRICS) * len(TARGETS)
_BLOCK = 10
"""Versions that are written at a time."""

_TARGET = """
    INSERT INTO targets (name, torch, device, arch, cuda, os, machine)
    VALUES (%(name)s, %(torch)s, %(device)s, %(arch)s, %(cuda)s, %(os)s, %(machine)s) ON CONFLICT DO NOTHING
"""
_ENVIRONMENT = """
    INSERT INTO environments (digest, class_digest, fields) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING
"""
_PREPARE = """
    CREATE TEMPORARY TABLE seed_targets (target text, position int, environment text, class_digest text, recent bool);
    CREATE TEMPORARY TABLE seed_metrics (metric text, unit text, batch bigint, typical double precision)
"""
_MODELS = f"""
    INSERT INTO models (name, description)
    SELECT '{TEAM}/model-' || lpad(place::text, 5, '0'), 'Made up for a benchmark; nothing can be pulled.'
    FROM generate_series(1, %(models)s) AS place
"""
_SERIES = f"""
    INSERT INTO series (model_id, target, class_digest, metric, unit, batch, changed_at, examined_at)
    SELECT models.id, target, class_digest, metric, unit, batch, now(), now()
    FROM models CROSS JOIN seed_targets CROSS JOIN seed_metrics WHERE models.name LIKE '{TEAM}/%%'
"""
_BLOCK_OF_VERSIONS = f"""
    CREATE TEMPORARY TABLE seed_block ON COMMIT DROP AS
    WITH made AS (
        INSERT INTO versions (model_id, number, identity, spec, settings, pins, weights, golden, created_at)
        SELECT models.id, number, pg_temp.seed_digest('version', models.name || '@' || number), %(spec)s,
            %(settings)s, '{{}}',
            pg_temp.seed_digest('weights', models.name || '@' || number), pg_temp.seed_digest('golden', models.name),
            timestamptz %(began)s + make_interval(hours => number, secs => models.id %% 3600)
        FROM generate_series(%(first)s, %(last)s) AS number CROSS JOIN models
        WHERE models.name LIKE '{TEAM}/%%' ORDER BY number, models.id
        RETURNING id, model_id, number, identity, created_at
    )
    SELECT made.*, target, position, environment, class_digest,
        left(md5(identity || target), 16) AS build, pg_temp.seed_digest('artifact', identity || target) AS artifact
    FROM made JOIN seed_targets ON recent = (number > %(replaced)s) ORDER BY number, model_id, position
"""
_BUILDS = """
    INSERT INTO builds (id, version_id, target, position, request, first_submitted, state, attempt, created_at,
        queued_at, started_at, finished_at)
    SELECT build, id, target, position, '{}', true, 'succeeded', 1, created_at, created_at, created_at, created_at
    FROM seed_block ORDER BY number, model_id, position
"""
_ARTIFACTS = """
    INSERT INTO artifacts (digest, build_id, attempt, environment, program_key, config, code, code_bytes, weights,
        weights_bytes, single_file, single_file_bytes, torch, python, compiler, libc, pt2hub, verification, provenance,
        created_at)
    SELECT artifact, build, 1, environment, pg_temp.seed_digest('key', artifact), pg_temp.seed_digest('config', artifact),
        pg_temp.seed_digest('code', artifact), 200000, pg_temp.seed_digest('weights', identity), 45000000,
        pg_temp.seed_digest('single', artifact), 45200000, '2.13.0', '3.11', 'g++', 'glibc', 'seeded', '{}', '{}', created_at
    FROM seed_block ORDER BY number, model_id, position
"""
_FIGURES = """
    WITH figures AS (
        INSERT INTO measurements (series_id, number, artifact, environment, source, run, value, replicates, measured_at)
        SELECT series.id, seed_block.number, artifact, environment, 'build', build || ':1', middle.value,
            CASE WHEN series.metric = 'latency_p50'
                THEN ARRAY[middle.value * 0.97, middle.value * 0.99, middle.value, middle.value * 1.01, middle.value * 1.04]
            END,
            created_at
        FROM seed_block
        JOIN series USING (model_id, target, class_digest)
        JOIN seed_metrics USING (metric, batch)
        CROSS JOIN LATERAL (SELECT typical * (1 + (series.model_id %% 7) * 0.1)
            * CASE WHEN series.unit = 'B' THEN 1 ELSE 0.97 + 0.06 * random() END
            * CASE WHEN seed_block.number >= %(slower)s AND seed_block.model_id %% 100 = 0
                AND series.metric = 'latency_p50' THEN %(ratio)s ELSE 1 END AS value) AS middle
        ORDER BY seed_block.number, model_id, position
        RETURNING series_id, number, artifact, value, replicates, measured_at
    )
    INSERT INTO series_points (series_id, number, artifact, value, low, high, count, measured_at)
    SELECT series_id, number, artifact, value, coalesce(replicates[1], value), coalesce(replicates[5], value), 1,
        measured_at
    FROM figures
"""
_EVENTS = """
    INSERT INTO performance_events (series_id, model_id, kind, number, before, outcome, ratio, method)
    SELECT id, model_id, kind, %(slower)s, %(slower)s - 1, 'worse', %(ratio)s, 'series'
    FROM series CROSS JOIN (VALUES ('change_point'), ('comparison')) AS kinds (kind)
    JOIN seed_targets USING (target, class_digest)
    WHERE recent AND model_id %% 100 = 0 AND metric = 'latency_p50'
"""
_NEWEST = """
    UPDATE series SET newest_at = (
        SELECT measured_at FROM series_points WHERE series_id = series.id ORDER BY number DESC LIMIT 1
    )
    WHERE (target, class_digest) IN (SELECT target, class_digest FROM seed_targets)
"""
_DIGEST = """
    CREATE FUNCTION pg_temp.seed_digest(kind text, name text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
        SELECT 'sha256:' || encode(sha256(convert_to(kind || ' ' || name, 'UTF8')), 'hex')
    $$
"""
_SPEC = {
    "schema": 1,
    "model": f"{TEAM}/model",
    "source": {"factory": "torchvision.models:none"},
    "inputs": [{"name": "x", "shape": ["batch", 3, 224, 224], "generate": {"normal": {}}}],
    "dims": {"batch": {"max": 32, "example": 2}},
}
_SETTINGS = {"measure": {"batches": [16]}}
_BEGAN = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Seeded:
    """What was written."""

    models: int
    versions: int
    series: int
    measurements: int


def insert_history(
    database_url: str, measurements: int, say: Callable[[str], None] = lambda _: None
) -> Seeded:
    """Insert a history into a migrated database, one transaction for each ten versions; analyzes the tables."""
    models = max(1, -(-measurements // (VERSIONS * PER_VERSION)))
    address, with_values_inside = engines.conninfo(database_url), psycopg.ClientCursor
    with psycopg.connect(address, autocommit=True, cursor_factory=with_values_inside) as connection:
        _prepare(connection, models)
        for first in range(1, VERSIONS + 1, _BLOCK):
            _write_block(connection, first)
            say(f"{min(first + _BLOCK - 1, VERSIONS)} of {VERSIONS} versions of {models} models")
        connection.execute(_NEWEST)
        connection.execute(_EVENTS, {"slower": SLOWER, "ratio": RATIO})
        connection.execute("VACUUM ANALYZE")
        written = connection.execute(
            "SELECT count(*), (SELECT count(*) FROM measurements) FROM series"
        ).fetchone()
    assert written is not None
    return Seeded(models, models * VERSIONS, *written)


def _prepare(connection: psycopg.Connection, models: int) -> None:
    connection.execute("SELECT setseed(0.5)")
    for statement in (*_PREPARE.split(";"), _DIGEST):
        connection.execute(statement)
    for position, (name, environments) in enumerate(_ENVIRONMENTS.items()):
        connection.execute(_TARGET, {"name": name, **encode(parse_target(name))})
        for recent, environment in enumerate(environments):
            fields = {key: value for key, value in encode(environment).items() if value is not None}
            digest, in_class = digest_json(fields), environment_class(environment)
            connection.execute(_ENVIRONMENT, (digest, in_class, Jsonb(fields)))
            row = (name, position, digest, in_class, bool(recent))
            connection.execute("INSERT INTO seed_targets VALUES (%s, %s, %s, %s, %s)", row)
    for metric in METRICS:
        connection.execute("INSERT INTO seed_metrics VALUES (%s, %s, %s, %s)", metric)
    connection.execute(_MODELS, {"models": models})
    connection.execute(_SERIES, {})


def _write_block(connection: psycopg.Connection, first: int) -> None:
    values = {
        "first": first,
        "last": min(first + _BLOCK - 1, VERSIONS),
        "replaced": REPLACED,
        "slower": SLOWER,
        "ratio": RATIO,
        "spec": Jsonb(_SPEC),
        "settings": Jsonb(_SETTINGS),
        "began": _BEGAN,
    }
    with connection.transaction():
        for statement in (_BLOCK_OF_VERSIONS, _BUILDS, _ARTIFACTS, _FIGURES):
            connection.execute(statement, values)
