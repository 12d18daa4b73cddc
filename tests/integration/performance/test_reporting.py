"""Figures reported over HTTP: by `client.performance.history.report` and by `pt2hub report`."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import pt2hub
from pt2hub.cli import main
from pt2hub.client.performance import reporter
from pt2hub.domain.artifacts import Environment
from pt2hub.errors import BadConfiguration, Conflict, InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.client import Client
    from support.registry import Registry

PLACE: dict[str, Any] = {"cpu_model": "Xeon", "cores": 8, "torch": "2.13.0+cpu"}
HERE = Environment(cpu_model="Xeon", cores=8, torch="2.13.0+cpu")


def a_figure(built: str, **changes: Any) -> dict[str, Any]:
    return {"artifact": built, "metric": "latency_p50", "value": 3.5, "unit": "ms"} | changes


def test_many_figures_go_in_batches_each_once_however_often_they_are_sent(
    client: Client, served: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = served.published()
    monkeypatch.setattr(reporter, "BATCH", 10)
    seen: list[int] = []
    figures = [a_figure(artifact, value=1.0 + n) for n in range(25)]
    told = client.performance.report(
        figures, environment=HERE, on_batch=lambda sum_: seen.append(sum_.accepted)
    )
    assert (told.accepted, told.duplicates, seen) == (25, 0, [10, 20, 25])
    again = client.performance.report(
        iter([*figures, a_figure(artifact, value=99, environment="a")]),
        environment=PLACE,
        environments={"a": HERE},
    )
    assert (again.accepted, again.duplicates) == (1, 25)
    with pytest.raises(InvalidInput) as caught:
        client.performance.report([*figures, a_figure(artifact, unit="us")], environment=HERE)
    assert [item.path for item in caught.value.details] == ["measurements[25].unit"]
    assert "The first 20 measurements were stored" in (caught.value.hint or "")
    changed = [*figures[:12], a_figure(artifact, key="mine"), a_figure(artifact, key="mine", value=9)]
    with pytest.raises(InvalidInput, match=r"measurements\[12\] has the same key"):
        client.performance.report(changed, environment=HERE)
    client.performance.report([a_figure(artifact, key="mine")], environment=HERE)
    with pytest.raises(Conflict, match="mine"):
        client.performance.report([a_figure(artifact, key="mine", value=9)], environment=HERE)


@pytest.mark.parametrize(
    ("item", "where"),
    [
        (a_figure("x", value=float("nan")), "measurements[1].value"),
        (a_figure("x", samples=[[1.0, float("inf")]]), "measurements[1].samples[0][1]"),
        (a_figure("x", value=object()), "measurements[1].value"),
        (["no figure"], "measurements[1]"),
    ],
)
def test_what_is_no_figure_is_refused_before_anything_is_sent(
    client: Client, served: Registry, item: Any, where: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        client.performance.report([a_figure(served.published()), item], environment=HERE)
    with pytest.raises(InvalidInput, match="measurements must be a list, got a single measurement"):
        client.performance.report(a_figure("x"), environment=HERE)  # type: ignore[arg-type]
    assert caught.value.where == where
    assert served.sql("SELECT count(*) FROM measurements WHERE source = 'report'") == [(0,)]


def run(client: Client, monkeypatch: pytest.MonkeyPatch, *args: str, stdin: str = "") -> int:
    monkeypatch.setenv("PT2HUB_HOME", str(client.config.home))
    monkeypatch.setenv("PT2HUB_URL", client.config.url)
    monkeypatch.setenv("PT2HUB_TOKEN", client.config.token or "")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
    return main.run(["report", *args])


def test_the_command_takes_a_document_a_list_and_lines(
    client: Client,
    served: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    artifact = served.published(
        served.submit(targets=["torch2.13-cpu-x86_64"])
    )  # any machine can report on it
    document, machine = tmp_path / "figures.json", tmp_path / "machine.json"
    document.write_text(
        json.dumps({"measurements": [a_figure(artifact, environment="a")], "environments": {"a": PLACE}})
    )
    machine.write_text(json.dumps(PLACE | {"cores": 4}))
    assert run(client, monkeypatch, str(document)) == 0
    assert "1 measurement stored." in capsys.readouterr().out
    lines = "\n".join(json.dumps(a_figure(artifact, value=value)) for value in (1, 2)) + "\n\n"
    assert run(client, monkeypatch, "-", "--environment", str(machine), "--json", stdin=lines) == 0
    assert json.loads(capsys.readouterr().out) == {"accepted": 2, "duplicates": 0, "notes": []}
    listed = json.dumps([a_figure(artifact, value=5)])
    assert run(client, monkeypatch, "-", "--environment", "auto", stdin=listed) == 0
    assert run(client, monkeypatch, "-", "--environment", str(machine), stdin=lines) == 0
    assert "0 measurements stored, 2 already stored." in capsys.readouterr().out
    cores = served.sql(
        "SELECT DISTINCT fields->>'cores' FROM environments e JOIN measurements m ON e.digest = "
        "m.environment WHERE source = 'report'"
    )
    assert {"8", "4", str(pt2hub.environment().cores)} == {row[0] for row in cores}


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ('{"a": 1}\n{"a":', "-, line 2: The line is not JSON"),
        ('{"measurements": 3}', "measurements must be a list"),
        ('{"measurements": [], "environment": {}}', "Unknown field 'environment'"),
        ("[]", "At least one measurement is required"),
        ("[3]", "A measurement must be an object"),
        ("[[[" * 100_000, "is nested too deeply"),
        ('[{"value": NaN}]', "nan is not a finite number"),
    ],
)
def test_the_command_says_what_is_wrong_with_a_file(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stdin: str,
    words: str,
) -> None:
    assert run(client, monkeypatch, "-", stdin=stdin) == 1
    assert words in capsys.readouterr().err
    assert run(client, monkeypatch, "/nowhere/file") == 1
    assert "cannot be read" in capsys.readouterr().err


def test_the_fingerprint_describes_this_machine_without_torch() -> None:
    script = "import pt2hub, sys; e = pt2hub.environment(); print('torch' in sys.modules, e.threads, e.cores, e.torch)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"OMP_NUM_THREADS": "3,2"},
    )
    torch = pytest.importorskip("torch")
    here = pt2hub.environment(device="cpu")
    assert done.stdout.split() == ["False", "3", str(here.cores), torch.__version__]
    assert (here.torch, here.threads) == (torch.__version__, torch.get_num_threads())
    assert here.cpu_level in {"x86_64", "x86_64_v2", "x86_64_v3", "x86_64_v4"}
    assert here.cpu_model
    assert (here.memory_bytes or 0) > 1 << 28
    assert (here.gpu, here.driver, here.cuda) == (None, None, None)
    with pytest.raises(BadConfiguration, match="GPU cuda:99 not found"):
        pt2hub.environment(device="cuda:99")
    with pytest.raises(InvalidInput, match="Unknown device"):
        pt2hub.environment(device="gpu")
    assert here.container in {"docker", "kubernetes", "podman", "none"}
