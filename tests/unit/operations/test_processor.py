"""The one place that decides which instruction set pt2hub believes in, and the setting that lowers it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import pt2hub
from pt2hub.client.config import CPU_LEVEL
from pt2hub.client.machine.host import check_host, this_host
from pt2hub.client.machine.processor import cpu_flags, cpuinfo, limit_flags
from pt2hub.domain.targets import CPU_LEVELS, Target, cpu_level, flags_of_level
from pt2hub.errors import BadConfiguration, Incompatible
from pt2hub_workers.config import WorkerConfig
from support.artifacts import a_config

LEVELS = tuple(CPU_LEVELS)


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CPU_LEVEL, raising=False)


def reached() -> list[str]:
    """Levels that this very machine has."""
    return list(LEVELS[: LEVELS.index(cpu_level(cpu_flags()) or "x86_64") + 1])


def test_without_the_setting_a_cpu_is_what_it_is() -> None:
    assert cpu_flags() == frozenset(cpuinfo()["flags"].split())


def test_every_level_of_the_machine_can_be_taken_and_all_parts_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for level in reached():
        monkeypatch.setenv(CPU_LEVEL, level)
        assert cpu_flags() == flags_of_level(level)
        assert this_host().cpu_flags == flags_of_level(level)
        assert str(this_host().native_target()).endswith(f"-{level}")
        assert pt2hub.environment(device="cpu").cpu_level == level


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_hides_what_lies_beyond_it(level: str) -> None:
    flags = flags_of_level(LEVELS[-1]) | {"avx512_vnni", "amx_tile", "nx"}
    assert limit_flags(flags, level) == flags_of_level(level)
    assert cpu_level(limit_flags(flags, level)) == level


def test_a_level_that_the_cpu_lacks_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="below x86_64_v3: it lacks abm, avx, ") as refused:
        limit_flags(flags_of_level("x86_64_v2"), "x86_64_v3")
    assert refused.value.where == CPU_LEVEL
    assert "this CPU is x86_64_v2" in str(refused.value.hint)


@pytest.mark.parametrize("level", ["v3", "x86_64_v5", "avx2"])
def test_what_is_no_level_is_refused(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setenv(CPU_LEVEL, level)
    with pytest.raises(BadConfiguration, match=f"Unknown CPU level '{level}'") as refused:
        this_host()
    assert refused.value.where == CPU_LEVEL


def test_an_artifact_above_the_level_does_not_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    config = a_config(target=Target("2.13", "cpu", "x86_64_v2"))
    monkeypatch.setenv(CPU_LEVEL, "x86_64")
    with pytest.raises(Incompatible, match="cpu: needs x86_64_v2"):
        check_host(config)


def test_the_workers_children_are_held_to_it() -> None:
    database = {"PT2HUB_DATABASE_URL": "postgresql://user@host/database"}
    held = WorkerConfig.from_environ(database | {CPU_LEVEL: "x86_64_v3"}).child_environ
    assert held[CPU_LEVEL] == "x86_64_v3"
    assert (held["ATEN_CPU_CAPABILITY"], held["ONEDNN_MAX_CPU_ISA"]) == ("avx2", "AVX2")
    assert "ATEN_CPU_CAPABILITY" not in WorkerConfig.from_environ(database).child_environ


@pytest.mark.compiles
@pytest.mark.parametrize(("level", "aten"), [("x86_64_v2", "DEFAULT"), ("x86_64_v3", "AVX2")])
def test_the_probe_and_torch_itself_follow(level: str, aten: str) -> None:
    if level not in reached():
        pytest.skip(f"this machine is below {level}")
    environ = WorkerConfig.from_environ(
        {**os.environ, "PT2HUB_DATABASE_URL": "postgresql://user@host/database", CPU_LEVEL: level}
    ).child_environ
    script = (
        "import json, torch; from pt2hub_workers.inside.operations.probe import probe; "
        "print(json.dumps([probe(), torch.backends.cpu.get_cpu_capability()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True
    )
    machine, capability = json.loads(done.stdout)
    assert machine["target"]["arch"] == machine["environment"]["cpu_level"] == level
    assert frozenset(machine["cpu_flags"]) == flags_of_level(level)
    assert capability == aten
