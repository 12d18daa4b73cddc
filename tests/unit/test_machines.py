"""A machine in an address: what verdicts need arrives, and nothing else is taken for one."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from pt2hub.client.opening import address, this_machine
from pt2hub.domain.targets import flags_of_level, parse_target
from pt2hub.domain.verdicts import Host, judge
from pt2hub.errors import InvalidInput
from pt2hub.wire.machines import MAX_TEXT, Machine, host_name
from support.artifacts import a_config

PROPERTIES = frozenset(
    {"hypervisor", "constant_tsc", "rep_good", *(f"bug_{number}" for number in range(300))}
)
"""What a processor says of itself besides its instruction sets."""


def a_machine(**changes: Any) -> Machine:
    given: dict[str, Any] = {
        "os": "linux",
        "machine": "x86_64",
        "torch": "2.13",
        "cpu_flags": flags_of_level("x86_64_v4") | {"avx512_vnni", "amx_tile"} | PROPERTIES,
        "cuda": "130",
        "sm": "sm90",
        "glibc": "2.36",
    }
    return Machine("gpu-7.example", Host(**given | changes))


def text_of(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


@pytest.mark.parametrize(
    "machine",
    [
        a_machine(),
        a_machine(torch=None, cuda=None, sm=None, glibc=None),
        a_machine(cpu_flags=frozenset({"avx2"})),
    ],
    ids=["gpu", "without torch", "below every level"],
)
def test_the_reader_of_an_address_judges_as_the_machine_would(machine: Machine) -> None:
    told = Machine.parse(machine.text())
    assert (told.name, told.level) == (machine.name, machine.level)
    for name in ("torch2.13-cu130-sm90", "torch2.13-cpu-x86_64_v3", "torch2.11-cpu-x86_64_v4"):
        assert judge(parse_target(name), told.host) == judge(parse_target(name), machine.host)
    assert told.host.cpu_flags.isdisjoint(PROPERTIES)
    assert len(machine.text()) < 500


def test_this_machine_runs_what_is_built_for_it_after_the_journey_too() -> None:
    machine, config = this_machine(), a_config()
    assert judge(config.target, Machine.parse(machine.text()).host, config.native).runs
    page = address("http://hub.example/pt2hub", "/models/a/b", machine)
    assert page.startswith("http://hub.example/pt2hub/machine?machine=")
    assert page.endswith("&to=%2Fmodels%2Fa%2Fb")


def test_code_that_says_nonsense_of_the_c_library_it_needs_is_refused_and_not_compared() -> None:
    config = a_config()
    for release in ("latest", "2.x", "9" * 5000):
        (finding,) = judge(config.target, this_machine().host, replace(config.native, glibc=release)).failures
        assert (finding.axis, release[:9] in finding.needs, len(finding.needs) < 60) == ("libc", True, True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "cannot be read"),
        ("<script>", "cannot be read"),
        ("A" * (MAX_TEXT + 1), "too long"),
        (base64.urlsafe_b64encode(b"[" * 1500).decode(), "cannot be read"),
        (text_of([]), "no object"),
        (text_of({"os": "linux", "machine": "x86_64"}), "name is wrong"),
        (text_of({"name": "<b>", "os": "linux", "machine": "x86_64"}), "name is wrong"),
        (text_of({"name": "a", "os": "linux"}), "machine is wrong"),
        (text_of({"name": "a", "os": "linux", "machine": "x86_64", "glibc": "x.y"}), "glibc is wrong"),
        (text_of({"name": "a", "os": "linux", "machine": "x86_64", "level": ["x"]}), "level is wrong"),
        (text_of({"name": "a", "os": "linux", "machine": "x86_64", "more": [{}]}), "more is wrong"),
        (text_of({"name": "a", "os": "linux", "machine": "x86_64", "more": ["a"] * 101}), "more is wrong"),
    ],
)
def test_what_describes_no_machine_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as caught:
        Machine.parse(text)
    assert "pt2hub open" in str(caught.value.hint)


def test_every_hosts_name_can_be_told() -> None:
    assert host_name("gpu-7.example") == "gpu-7.example"
    assert host_name("Zoë's laptop") == "Zo-s-laptop"
    assert host_name("...") == "this-machine"
    for name in ("x" * 300, "-_", "ü"):
        assert Machine.parse(Machine(host_name(name), a_machine().host).text())
