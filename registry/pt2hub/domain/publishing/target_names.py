"""Target names as fields of documents: specs, reports and policies."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from pt2hub.domain.targets import parse_target
from pt2hub.errors import UnknownTarget

AUTO = "auto"
"""Every target with a live worker, in place of a name."""


def _check_target(name: str) -> str:
    try:
        return parse_target(name).name
    except UnknownTarget as exc:
        context = {"given": name, "allowed": "such as torch2.13-cpu-x86_64_v4 or torch2.11-cu130-sm90"}
        raise PydanticCustomError(UnknownTarget.code, "unknown target", context) from exc


def _check_requested(name: str) -> str:
    return name if name == AUTO else _check_target(name)


TargetName = Annotated[str, AfterValidator(_check_target)]
RequestedTarget = Annotated[str, AfterValidator(_check_requested)]
"""The name of a target, or `auto`."""
