"""What docker/ starts, read out of its files, so that it can be started without containers."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

DOCKER = Path(__file__).resolve().parents[2] / "docker"


@dataclass(frozen=True)
class Image:
    """A stage of the Dockerfile.

    Attributes:
        base: The stage or image it begins with.
        environ: Its variables.
        entrypoint: What always runs.
        command: The entry point's arguments, unless others are given.
        check: The health check.
        user: Whom it runs as.
    """

    base: str
    environ: dict[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    user: str = "root"


@dataclass(frozen=True)
class Started:
    """What a service of the compose file starts.

    Attributes:
        argv: The whole command.
        environ: Its variables.
        check: Its health check; empty where there is none.
    """

    argv: tuple[str, ...]
    environ: dict[str, str]
    check: tuple[str, ...]


def images(text: str) -> dict[str, Image]:
    """The stages of a Dockerfile by name, each with what it takes over from the stage it begins with."""
    found: dict[str, Image] = {}
    name = ""
    for word, rest in _instructions(text):
        if word == "FROM":
            base, _, name = re.sub(r"\s+AS\s+", " ", rest, flags=re.IGNORECASE).partition(" ")
            found[name] = Image(**{**vars(found.get(base, Image(base))), "base": base})
        elif name:
            found[name] = _with(found[name], word, rest)
    return found


def services(text: str, environ: dict[str, str], built: dict[str, Image]) -> dict[str, Started]:
    """What each service of a compose file starts.

    Args:
        text: The file.
        environ: Values for its `${...}`.
        built: The images that it builds.
    """
    document = yaml.safe_load(interpolated(text, environ))
    return {name: _started(service, built) for name, service in document["services"].items()}


def interpolated(text: str, environ: dict[str, str]) -> str:
    """A compose file with its variables filled in; one that must be set and is not is a KeyError."""

    def value(match: re.Match[str]) -> str:
        name, operator, rest = match[1], match[2], match[3]
        return environ.get(name) or rest if operator == ":-" else environ[name]

    return re.sub(r"\$\{(\w+)(?:(:-|:\?)([^}]*))?\}", value, text)


def _started(service: dict[str, Any], built: dict[str, Image]) -> Started:
    image = built.get(service.get("build", {}).get("target", ""), Image(""))
    entrypoint, command = service.get("entrypoint", image.entrypoint), service.get("command", image.command)
    health = service.get("healthcheck", {})
    check = () if health.get("disable") else tuple(health.get("test", ["CMD", *image.check])[1:])
    return Started((*entrypoint, *command), {**image.environ, **service.get("environment", {})}, check)


def _instructions(text: str) -> list[tuple[str, str]]:
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    whole = re.sub(r"\\\n\s*", " ", lines)
    return [
        (word, rest.strip()) for word, _, rest in (line.partition(" ") for line in whole.splitlines() if line)
    ]


def _with(image: Image, word: str, rest: str) -> Image:
    changed: dict[str, Any] = {}
    if word == "ENV":
        pairs = dict(part.partition("=")[::2] for part in shlex.split(rest))
        changed["environ"] = {**image.environ, **pairs}
    elif word == "HEALTHCHECK":
        changed["check"] = tuple(json.loads(rest.partition(" CMD ")[2]))
    elif word in ("ENTRYPOINT", "CMD"):
        changed[word.lower().replace("cmd", "command")] = tuple(json.loads(rest))
    elif word == "USER":
        changed["user"] = rest
    return Image(**{**vars(image), **changed})
