"""Short names of targets."""

from __future__ import annotations

import pytest

from pt2hub.rendering.targets import describe_target, name_platforms, short_target


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("torch2.13-cu130-sm90", "H100 · torch 2.13"),
        ("torch2.11-cu126-sm75", "T4 · torch 2.11"),
        ("torch2.13-cu130-sm103a", "sm103a · torch 2.13"),
        ("torch2.13-cpu-x86_64_v4", "CPU v4 · torch 2.13"),
        ("torch2.13-cpu-x86_64", "CPU x86-64 · torch 2.13"),
        ("torch0.0-cpu-x86_64_v3", "no-op x86_64_v3"),
        ("auto", "auto"),
    ],
)
def test_a_target_is_named_by_its_machine_and_torch(name: str, short: str) -> None:
    assert short_target(name) == short


def test_targets_with_the_same_short_name_say_what_differs() -> None:
    cuda = ["torch2.13-cu126-sm90", "torch2.13-cu130-sm90", "torch2.13-cu130-sm80"]
    assert [short_target(name, cuda) for name in cuda] == [
        "H100 · torch 2.13 · cu126",
        "H100 · torch 2.13 · cu130",
        "A100 · torch 2.13",
    ]
    portable = ["torch2.13-cu130-sm90", "torch2.13-cu130-sm90a"]
    assert [short_target(name, portable) for name in portable] == portable


def test_devices_are_named_once_for_each_release_of_torch() -> None:
    names = [
        "torch2.13-cu130-sm90",
        "torch2.13-cpu-x86_64_v4",
        "torch2.11-cu128-sm80",
        "torch2.13-cu128-sm90",
    ]
    assert name_platforms(names) == ["H100, CPU v4 with torch 2.13", "A100 with torch 2.11"]
    assert name_platforms([]) == []


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("torch2.13-cu130-sm90a", "torch 2.13, CUDA 13.0, GPUs of compute capability 9.0"),
        ("torch2.13-cu128-sm103", "torch 2.13, CUDA 12.8, GPUs of compute capability 10.3"),
        ("torch2.13-cpu-x86_64_v4", "torch 2.13, x86-64-v4 CPUs"),
        ("torch2.11-cpu-x86_64", "torch 2.11, x86-64 CPUs"),
        ("torch0.0-cpu-x86_64", "nowhere: a placeholder"),
        ("auto", "auto"),
    ],
)
def test_a_target_says_where_its_artifacts_run(name: str, place: str) -> None:
    assert describe_target(name) == place
