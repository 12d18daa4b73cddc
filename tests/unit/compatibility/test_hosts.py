"""Descriptions of machines: written by this one, read from anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pt2hub.client.machine import libraries
from pt2hub.client.machine.host import this_host, whole_host
from pt2hub.domain.compatibility.hosts import MAX_HOST_BYTES, Host, parse_host
from pt2hub.domain.targets import flags_of_level
from pt2hub.errors import InvalidInput

SMALLEST = {"os": "linux", "machine": "x86_64", "cpu_flags": []}


def test_a_description_of_this_machine_comes_back_as_it_was() -> None:
    host = whole_host()
    text = json.dumps(host.as_document())
    assert parse_host(json.loads(text)) == host
    assert len(text) < MAX_HOST_BYTES / 4


def test_this_machine_knows_its_libraries() -> None:
    import torch

    host = whole_host()
    assert tuple(map(int, str(host.glibcxx).split("."))) >= (3, 4, 20)
    assert tuple(map(int, str(host.glibc).split("."))) >= (2, 28)
    assert "aoti_torch_delete_tensor_object" in (host.aoti_symbols or ())
    assert (host.operator_libraries or {})["torchvision"]
    assert "pip" not in (host.operator_libraries or {})
    assert host.torch == ".".join(torch.__version__.split(".")[:2])


def test_the_functions_of_libtorch_are_those_that_the_loader_finds() -> None:
    import ctypes

    import torch

    library = ctypes.CDLL(torch._C.__file__)
    found = libraries.aoti_symbols()
    assert found is not None
    assert len(found) > 200
    assert not [name for name in found if not hasattr(library, name)]


def test_what_costs_time_is_left_out_where_nothing_depends_on_it() -> None:
    host = this_host()
    assert (host.aoti_symbols, host.operator_libraries, host.sm, host.driver_cuda) == (None, None, None, None)


def test_the_smallest_description_is_a_machine_without_torch() -> None:
    assert parse_host(SMALLEST) == Host("linux", "x86_64", None, frozenset())
    assert parse_host({**SMALLEST, "torch": None, "a_field_of_a_newer_client": [1]}) == parse_host(SMALLEST)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("os", "Linux 6"),
        ("machine", "x" * 21),
        ("torch", "2.13.0+cpu"),
        ("torch", 2.13),
        ("cuda", "13.0"),
        ("sm", "sm_90a"),
        ("glibc", "2.36\n"),
        ("glibcxx", "3.4.30; DROP TABLE hosts"),
        ("glibcxx", "9" * 100),
        ("driver", "580.82.07.1.2"),
        ("driver_cuda", "13"),
        ("shared_memory_bytes", -1),
        ("shared_memory_bytes", True),
        ("shared_memory_bytes", 1.5),
        ("shared_memory_bytes", 1 << 40),
        ("cpu_flags", "avx2 fma"),
        ("cpu_flags", [1]),
        ("cpu_flags", ["AVX2"]),
        ("cpu_flags", ["a" * 41]),
        ("cpu_flags", ["avx"] * 1_001),
        ("cpu_flags", {"avx": True}),
        ("aoti_symbols", ["printf"]),
        ("aoti_symbols", ["aoti_torch_x"] * 5_001),
        ("operator_libraries", ["torchvision"]),
        ("operator_libraries", {"torchvision": 1}),
        ("operator_libraries", {"../x": "1"}),
        ("operator_libraries", {f"p{number}": "1" for number in range(501)}),
    ],
)
def test_what_is_malformed_is_named_and_shortened(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_host({**SMALLEST, field: value})
    (detail,) = caught.value.details
    assert (detail.path, detail.message) == (field, "invalid value")
    assert len(detail.given or "") <= 80
    assert detail.allowed
    assert "pt2hub host --json" in str(caught.value.hint)


@pytest.mark.parametrize("document", [None, [], "linux", 3])
def test_what_is_no_object_is_refused(document: object) -> None:
    with pytest.raises(InvalidInput, match="must be an object"):
        parse_host(document)


def test_every_missing_field_is_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_host({"torch": "2.13"})
    assert [item.path for item in caught.value.details] == ["os", "machine", "cpu_flags"]


def test_the_target_that_fits_a_machine_best() -> None:
    flags = flags_of_level("x86_64_v3")
    cpu = Host("linux", "x86_64", "2.13", flags)
    assert (cpu.native_target(), cpu.native_target("cuda")) == ("torch2.13-cpu-x86_64_v3",) * 2
    gpu = Host("linux", "x86_64", "2.13", flags, cuda="130", sm="sm90")
    assert (gpu.native_target("cuda"), gpu.native_target()) == (
        "torch2.13-cu130-sm90",
        "torch2.13-cpu-x86_64_v3",
    )
    assert Host("linux", "x86_64", None, flags).native_target() is None
    assert Host("linux", "aarch64", "2.13", frozenset({"asimd"})).native_target() is None
