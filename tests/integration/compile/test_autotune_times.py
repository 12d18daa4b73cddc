"""Autotuning's measurements from build to build, with the compiler."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pt2hub_workers.builds.aoti_toolchain import AotiToolchain
from pt2hub_workers.builds.autotune_tables import AutotuneTables
from support.workbench import TEAM, Workbench, tiny_spec

# Split weights leave a CPU nothing to choose; `max_autotune_gemm` alone times the candidates of matrix products.
TUNED = {"weights": "baked", "options": {"max_autotune_gemm": True, "max_autotune_gemm_backends": "CPP,ATEN"}}


@dataclass
class Tuned:
    """Builds that share their measurements, each with what it said."""

    folder: Path
    toolchain: AotiToolchain
    tables: Path = field(init=False)

    def __post_init__(self) -> None:
        self.tables = self.folder / "tables"

    def build(self, seed: int) -> tuple[dict[str, Any], Workbench]:
        """Builds one program with weights of its own."""
        bench = Workbench(self.folder / f"build{seed}", self.toolchain)
        bench.tables = AutotuneTables(self.tables, bench.machine)
        source = {"factory": "support.tiny_models:Mlp", "kwargs": {}, "seed": seed}
        return bench.build(tiny_spec(compile=TUNED, source=source)), bench


def lines(bench: Workbench) -> list[str]:
    return [event["text"] for event in bench.events if event["event"] == "log" and "autotun" in event["text"]]


def chosen(parts: dict[str, Any]) -> list[str]:
    return [item["template"] for item in parts["autotune"] if item["chosen"]]


@pytest.mark.compiles
def test_a_build_times_nothing_that_an_earlier_one_measured_and_lies_cost_speed_alone(
    tmp_path: Path, aoti: AotiToolchain
) -> None:
    tuned = Tuned(tmp_path, aoti)

    first, said = tuned.build(3)
    assert first["autotuning"]["choices"] == 2
    assert "known" not in first["autotuning"]
    assert [event["mode"] for event in said.events if event["event"] == "device"] == ["exclusive", "shared"]
    each = [line.partition(":")[0] for line in lines(said)]
    assert each == [
        "autotuned operation 1, linear_unary s77x8 16x8 16",
        "autotuned operation 2, linear_unary s77x16 4x16 4",
        "autotuning",
    ]
    details = [event["detail"] for event in said.events if event.get("detail")]
    assert "autotuning operation 1, linear_unary s77x8 16x8 16, 2 candidates" in details

    second, said = tuned.build(4)
    assert second["verification"]["result"] == "passed"
    assert lines(said) == ["autotuning: 0 choices made in 0.0 s, 2 known from earlier builds"]
    assert second["autotuning"] == {
        "seconds": 0.0,
        "budget": None,
        "choices": 2,
        "known": 2,
        "left_to_default": 0,
    }
    assert [event for event in said.events if event["event"] == "device"] == []
    assert chosen(second) == chosen(first)
    times = [[item["milliseconds"] for item in parts["autotune"]] for parts in (first, second)]
    assert times[0] == times[1]
    assert second["key"]["digest"] != first["key"]["digest"]  # of the baked weights

    (path,) = tuned.tables.glob("*.json")
    table = json.loads(path.read_bytes())
    for inputs in table["operations"].values():
        for precisions in inputs.values():
            for times_of in precisions.values():
                for name, time in times_of.items():
                    times_of[name] = 1 / time
    path.write_text(json.dumps(table))
    third, _ = tuned.build(5)
    assert third["verification"]["result"] == "passed"
    assert third["autotuning"]["known"] == 2
    assert all(one != other for one, other in zip(chosen(third), chosen(first), strict=True))


@pytest.mark.compiles
def test_another_team_measures_for_itself(tmp_path: Path, aoti: AotiToolchain) -> None:
    tables = AutotuneTables(tmp_path, aoti.machine())
    sent = tmp_path / "sent.json"
    sent.write_text(json.dumps({"operations": {"mm": {"key": {"high": {"extern": 0.5}}}}, "kernels": {}}))
    assert tables.add(TEAM, sent)
    assert tables.fetch(TEAM, tmp_path / "own.json")
    assert not tables.fetch("other", tmp_path / "others.json")
