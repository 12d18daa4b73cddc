"""The worker's tables of autotuning times: what a build hands over is checked, bounded and kept apart."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.artifacts import Environment, Toolchain
from pt2hub.domain.targets import parse_target
from pt2hub_workers.builds import autotune_tables
from pt2hub_workers.builds.autotune_tables import AutotuneTables, check_table
from pt2hub_workers.inside.builds.compile.known_times import KnownTimes
from pt2hub_workers.operations.machine import Machine

if TYPE_CHECKING:
    from pathlib import Path

TIMES = {"triton_mm-8d2f": 0.012, "extern_mm": 0.02, "triton_mm-91ac": "OutOfResources: shared memory"}
CONFIG = {"XBLOCK": 512, "num_warps": 8, "num_stages": 1, "configs_hash": "9f", "found_by_coordesc": True}
FILE = f"ab/{'c' * 52}.best_config"


def a_table(**changes: Any) -> dict[str, Any]:
    return {"operations": {"mm": {"[256, 512]": {"highest": TIMES}}}, "kernels": {FILE: CONFIG}, **changes}


def a_machine(gpu: str = "NVIDIA H100") -> Machine:
    return Machine(
        target=parse_target("torch2.11-cu130-sm90"),
        toolchain=Toolchain("2.11.0+cu130", "3.12", "g++ 13", "glibc 2.39", "0.1.0", triton="3.6.0"),
        environment=Environment(cpu_model="a CPU", gpu=gpu),
        packages={},
        cpu_flags=(),
        device="cuda:0",
    )


def sent(folder: Path, table: object) -> Path:
    path = folder / "sent.json"
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    return path


def fetched(tables: AutotuneTables, folder: Path, team: str = "team") -> Any:
    path = folder / "fetched.json"
    return json.loads(path.read_bytes()) if tables.fetch(team, path) else None


def test_a_table_is_kept_for_the_team_the_gpu_and_the_toolchain(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    tables = AutotuneTables(folder, a_machine())
    assert fetched(tables, tmp_path) is None
    assert tables.add("team", sent(tmp_path, a_table()))
    assert fetched(tables, tmp_path) == a_table()
    assert folder.stat().st_mode & 0o777 == 0o700
    machine = a_machine()
    newer = replace(machine, toolchain=replace(machine.toolchain, triton="3.7.0"))
    assert fetched(tables, tmp_path, "other") is None
    assert fetched(AutotuneTables(folder, a_machine("NVIDIA A100")), tmp_path) is None
    assert fetched(AutotuneTables(folder, newer), tmp_path) is None


def test_new_times_join_the_old_ones_and_replace_an_operations_candidates(tmp_path: Path) -> None:
    tables = AutotuneTables(tmp_path / "tables", a_machine())
    tables.add("team", sent(tmp_path, a_table()))
    again = {"mm": {"[256, 512]": {"highest": {"extern_mm": 0.01}}, "[8, 8]": {"high": {"extern_mm": 0.5}}}}
    tables.add("team", sent(tmp_path, {"operations": again, "kernels": {}}))
    assert fetched(tables, tmp_path) == {"operations": again, "kernels": {FILE: CONFIG}}


@pytest.mark.parametrize(
    "table",
    [
        "no JSON",
        "[" * 100_000,
        [],
        {"operations": {}},
        a_table(code="print()"),
        a_table(operations={"mm": {"key": {"highest": {"a": -1.0}}}}),
        a_table(operations={"mm": {"key": {"highest": {"a": float("nan")}}}}),
        a_table(operations={"mm": {"key": {"highest": {"a": [1.0]}}}}),
        a_table(operations={"mm": {"key": {"exact": {"a": 1.0}}}}),
        a_table(operations={"mm": {"k" * 20_001: {"high": {"a": 1.0}}}}),
        a_table(operations={"mm": ["key"]}),
        a_table(kernels={"../../etc/profile": CONFIG}),
        a_table(kernels={f"ab/{'c' * 52}.py": CONFIG}),
        a_table(kernels={FILE: {"XBLOCK": [1]}}),
        a_table(kernels={FILE: {"__class__ x": 1}}),
        a_table(kernels={FILE: {"XBLOCK": 1e300}}),
    ],
)
def test_what_is_no_table_is_not_kept(tmp_path: Path, table: object) -> None:
    tables = AutotuneTables(tmp_path / "tables", a_machine())
    assert not tables.add("team", sent(tmp_path, table))
    assert fetched(tables, tmp_path) is None


def test_a_damaged_table_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    tables = AutotuneTables(folder, a_machine())
    tables.add("team", sent(tmp_path, a_table()))
    (path,) = folder.glob("*.json")
    path.write_text(path.read_text()[:20])
    assert fetched(tables, tmp_path) is None
    assert tables.add("team", sent(tmp_path, a_table()))
    assert fetched(tables, tmp_path) == a_table()


def test_a_table_that_grows_too_large_loses_its_oldest_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autotune_tables, "MAX_BYTES", 2000)
    tables = AutotuneTables(tmp_path / "tables", a_machine())
    for number in range(80):
        inputs = {f"key{number}": {"high": {"extern_mm": 0.5}}}
        assert tables.add("team", sent(tmp_path, {"operations": {"mm": inputs}, "kernels": {}}))
    kept = list(fetched(tables, tmp_path)["operations"]["mm"])
    assert kept[-1] == "key79"
    assert "key0" not in kept
    assert len(kept) >= 10
    assert not tables.add("team", sent(tmp_path, a_table(operations={"mm": {"k" * 2000: {}}})))


def test_tables_that_nobody_used_for_long_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    tables = AutotuneTables(folder, a_machine())
    tables.add("team", sent(tmp_path, a_table()))
    old = time.time() - autotune_tables.UNUSED_SECONDS - 60
    for path in folder.glob("*.json"):
        os.utime(path, (old, old))
    tables.add("other", sent(tmp_path, a_table()))
    assert fetched(tables, tmp_path) is None
    assert fetched(tables, tmp_path, "other") == a_table()


@dataclass(frozen=True)
class _Candidate:
    name: str

    def hash_key(self) -> str:
        return self.name


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("OutOfResources: shared memory", True),
        ("CUDA out of memory. Tried to allocate 2 GiB", False),
        ("OSError: [Errno 12] Cannot allocate memory", False),
        ("OSError: [Errno 28] No space left on device", False),
    ],
)
def test_failures_for_lack_of_room_are_not_kept(reason: str, *, kept: bool) -> None:
    failed, timed = _Candidate("failed"), _Candidate("timed")
    known = KnownTimes()

    known.add("mm", "[2, 2]", {timed: 0.5}, {id(failed): reason}, [failed, timed])

    assert bool(known.added) is kept


def test_configurations_of_triton_kernels_go_through_inductors_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor writes and reads them here; that kernels are launched with them only a GPU can show."""
    from torch._inductor.runtime.autotune_cache import AutotuneCache

    slow, fast = (
        SimpleNamespace(kwargs={"XBLOCK": size}, num_warps=4, num_stages=1, extra_options=None)
        for size in (64, 512)
    )

    def a_cache(folder: Path) -> AutotuneCache:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
        cache = AutotuneCache.create({}, str(folder / "ab" / f"c{'a' * 50}.py"), "9f")
        assert cache is not None
        return cache

    first = a_cache(tmp_path / "one")
    first.save(fast, 12_000_000, triton_cache_hash="where it was compiled")  # type: ignore[arg-type]
    assert KnownTimes().write(tmp_path / "times.json")
    table = check_table((tmp_path / "times.json").read_bytes())
    assert [config["XBLOCK"] for config in table["kernels"].values()] == [512]

    second = a_cache(tmp_path / "two")
    assert second.read_best({}, [slow, fast]) is None  # type: ignore[list-item]
    known = KnownTimes.read(tmp_path / "times.json")
    known.install()
    assert second.read_best({}, [slow, fast]) is fast  # type: ignore[list-item]
    assert not known.write(tmp_path / "nothing.json")
