from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pt2hub.errors import BadConfiguration, InternalError, PortTaken
from pt2hub.server.config import ServerConfig
from pt2hub.server.startup_barrier import StartupBarrier, may_serve
from pt2hub.server.up.isolation import confining, warning
from pt2hub.server.up.port import Probe, listen, listen_for_each
from pt2hub.server.up.supervised_services import Service, stop_all
from pt2hub.server.up.supervisor import _environ
from pt2hub.system.interrupts import SIGNALS, Interrupted, Interrupts
from pt2hub.system.processes import Child, spawn, tail

if TYPE_CHECKING:
    from pathlib import Path


def test_a_service_that_keeps_ending_is_started_after_longer_and_longer_pauses(tmp_path: Path) -> None:
    starts: list[float] = []
    reports: list[str] = []

    def launch() -> Child:
        starts.append(time.monotonic())
        code = "print('no disk'); raise SystemExit(3)"
        return spawn([sys.executable, "-c", code], log=tmp_path / "log", environ=os.environ)

    service = Service("worker", launch, patience=1, report=reports.append)
    service.start()
    deadline = time.monotonic() + 30
    while len(starts) < 3 and time.monotonic() < deadline:
        service.tend()
        time.sleep(0.01)
    service.stop()
    assert ["exit code 3; restarting in 0.5 s" in reports[0], "in 1 s" in reports[1]] == [True, True]
    assert starts[1] - starts[0] >= 0.5
    assert starts[2] - starts[1] >= 1.0


def test_a_service_that_ended_before_it_was_ready_shows_its_log(tmp_path: Path) -> None:
    code = "import sys; sys.exit('g++ is missing')"
    service = Service(
        "worker",
        lambda: spawn([sys.executable, "-c", code], log=tmp_path / "log", environ=os.environ),
        patience=1,
        report=print,
    )
    service.start()
    deadline = time.monotonic() + 20
    with pytest.raises(InternalError, match="g\\+\\+ is missing") as caught:  # noqa: PT012  # it ends at some time
        while time.monotonic() < deadline:
            service.require_running()
    assert caught.value.where == str(tmp_path / "log")
    service.stop()


def test_services_stop_beside_each_other_and_get_sigterm_once(tmp_path: Path) -> None:
    code = """
import signal, time
def told(number, frame):
    print("told", flush=True)
signal.signal(signal.SIGTERM, told)
print("ready", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    time.sleep(0.05)
"""
    logs = [tmp_path / f"log{number}" for number in range(6)]

    def launch(log: Path) -> Child:
        return spawn([sys.executable, "-c", code], log=log, environ=os.environ)

    services = [Service("stubborn", partial(launch, log), patience=1, report=print) for log in logs]
    for service in services:
        service.start()
    deadline = time.monotonic() + 20
    while not all("ready" in tail(log) for log in logs):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    began = time.monotonic()
    stop_all(services)
    assert 0.9 < time.monotonic() - began < 5  # and not six, one after the other
    assert [tail(log) for log in logs] == ["ready\ntold"] * 6


def test_a_signal_is_noted_and_acted_on_only_where_our_own_code_waits() -> None:
    before = signal.getsignal(signal.SIGTERM)
    interrupts = Interrupts()
    with interrupts.install():
        interrupts.check()
        signal.raise_signal(signal.SIGTERM)  # raises nothing: this might be the middle of a query
        with pytest.raises(Interrupted):
            interrupts.check()
        with pytest.raises(Interrupted):
            interrupts.pause(60)
        with pytest.raises(Interrupted):
            interrupts.call(lambda: pytest.fail("nothing more is begun"))
        assert interrupts.wait(0) == signal.SIGTERM
        assert interrupts.wait(0) is None
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_leaves_what_a_library_is_at_where_it_is() -> None:
    interrupts, began, go_on, ended = Interrupts(), threading.Event(), threading.Event(), threading.Event()

    def library() -> None:
        began.set()
        go_on.wait(60)
        ended.set()

    def send() -> None:
        began.wait(60)
        os.kill(os.getpid(), signal.SIGTERM)

    with interrupts.install():
        threading.Thread(target=send).start()
        with pytest.raises(Interrupted):
            interrupts.call(library)
    assert not ended.is_set(), "it was not waited for"
    go_on.set()
    assert ended.wait(60), "and no exception was thrown into it"


def test_a_call_beside_returns_and_raises_as_one_in_place() -> None:
    interrupts = Interrupts()
    assert interrupts.call(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        interrupts.call(lambda: 1 / 0)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_during_a_childs_start_waits_for_its_handlers(
    tmp_path: Path, number: signal.Signals
) -> None:
    code = """
import time
time.sleep(0.5)
from pt2hub.system.interrupts import Interrupted, Interrupts
interrupts = Interrupts()
with interrupts.install():
    try:
        interrupts.pause(60)
    except Interrupted:
        raise SystemExit(7)
"""
    child = spawn([sys.executable, "-c", code], log=tmp_path / "log", environ=os.environ, signals_held=True)
    child.send(number)
    assert child.stop((signal.SIGCONT, 60.0)) == 7, tail(tmp_path / "log")


def test_a_process_of_the_api_serves_only_once_it_may() -> None:
    with StartupBarrier() as gate:
        gate.count_launch()
        waiting = os.dup(gate.reader)
        assert select.select([waiting], [], [], 0)[0] == [], "the checks still run"
        gate.open()
        assert may_serve(waiting)
        gate.count_launch()  # one that is started again
        assert may_serve(os.dup(gate.reader))
        left = os.dup(gate.reader)
    assert not may_serve(left), "the supervisor has gone, or refused"


def test_a_taken_port_and_a_foreign_address_are_told_apart() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert Probe(listener).url == f"http://127.0.0.1:{port}"
        with pytest.raises(PortTaken, match=str(port)):
            listen("127.0.0.1", port)
    with pytest.raises(BadConfiguration, match="Cannot listen"):
        listen("203.0.113.1", 0)
    with pytest.raises(BadConfiguration, match="Cannot listen"):
        listen("no.such.host.invalid", 0)


def test_each_process_gets_its_share_of_the_connections_and_nobody_else_the_port() -> None:
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(opened) for opened in listen_for_each("127.0.0.1", 0, processes=2)]
        address = listeners[0].getsockname()
        for _ in range(64):
            stack.enter_context(socket.create_connection(address))
        accepted = [_waiting(listener, stack) for listener in listeners]
        assert sum(accepted) == 64
        assert min(accepted) >= 8
        with pytest.raises(PortTaken):
            listen_for_each("127.0.0.1", address[1], processes=2)


def _waiting(listener: socket.socket, stack: contextlib.ExitStack) -> int:
    listener.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            stack.enter_context(listener.accept()[0])
            count += 1
    return count


def test_listening_everywhere_is_shown_as_an_address_that_can_be_asked() -> None:
    with listen("0.0.0.0", 0) as listener:
        assert Probe(listener).url.startswith("http://127.0.0.1:")
    if socket.has_ipv6:
        try:
            listener = listen("::1", 0)
        except BadConfiguration:
            pytest.skip("no IPv6 here")
        with listener:
            assert Probe(listener).url.startswith("http://[::1]:")


def test_an_api_that_does_not_answer_is_not_ready() -> None:
    with listen("127.0.0.1", 0) as listener:
        probe = Probe(listener)
    assert not probe.ready()
    assert probe.live_targets() == ()


@pytest.mark.parametrize(("given", "passed"), [({}, "0"), ({"PT2HUB_DRAIN_SECONDS": "30"}, "30")])
def test_the_worker_of_up_hands_builds_back_at_once_unless_the_user_wants_it_to_go_on(
    given: dict[str, str], passed: str
) -> None:
    config = ServerConfig.from_environ({"PT2HUB_HOME": "/home", **given})
    assert _environ(config, "postgresql://host/database", "sandbox")["PT2HUB_DRAIN_SECONDS"] == passed


@pytest.mark.parametrize(
    ("host", "isolation", "required", "told"),
    [
        ("127.0.0.1", None, "process", "auto"),
        ("localhost", None, "process", "auto"),
        ("127.0.0.1", "sandbox", "sandbox", "sandbox"),
        ("127.0.0.1", "process", "process", "process"),
        ("0.0.0.0", None, "sandbox", "sandbox"),
        ("0.0.0.0", "auto", "process", "auto"),
    ],
)
def test_a_sandbox_is_a_must_as_soon_as_others_reach_the_api(
    host: str, isolation: str | None, required: str, told: str
) -> None:
    with listen(host, 0) as listener:
        found = confining(isolation, listener)
    assert (found.required, found.worker) == (required, told)
    config = ServerConfig.from_environ({"PT2HUB_HOME": "/home"})
    assert _environ(config, "postgresql://host/database", found.worker)["PT2HUB_ISOLATION"] == told


def test_the_warning_says_what_the_workers_log_says_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    said = [
        {"event": "isolation is only `process`", "isolation_reason": "an older start"},
        {
            "event": "isolation is only `process`",
            "isolation_reason": "bwrap: it is not installed\n  Install it.",
        },
        {"event": "worker ready"},
    ]
    log.write_text("\n".join(["no JSON", *map(json.dumps, said), "[1]"]))
    assert warning(log) == (
        "WARNING: models' code runs with this user's permissions: bwrap: it is not installed",
        "  Install it.",
        "  Publish only models that you trust.",
    )
    assert warning(None)[0].endswith(
        "this user's permissions: PT2HUB_ISOLATION=process"
    )  # nobody asked for a sandbox
    log.write_text("")
    assert warning(log)[0].endswith("this user's permissions: PT2HUB_ISOLATION=process")
