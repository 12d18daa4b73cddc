"""Paths of the API."""

from __future__ import annotations

from urllib.parse import quote

from pt2hub.domain.names import parse_model_name


def model_path(model: str) -> str:
    """Return the path of a model."""
    return f"/api/v1/models/{parse_model_name(model)}"


def files_path(model: str, number: int) -> str:
    """Return the path of the attached files of a version."""
    return f"{model_path(model)}/versions/{number}/files"


def file_path(model: str, number: int, name: str) -> str:
    """Return the path of an attached file of a version."""
    return f"{files_path(model, number)}/{quote(name, safe='')}"


def build_path(build_id: str) -> str:
    """Return the path of a build."""
    return f"/api/v1/builds/{quote(build_id, safe='')}"


def debug_log_path(digest: str, kind: str) -> str:
    """Return the path of a debug log of an artifact."""
    return f"/api/v1/artifacts/{digest}/debug/{quote(kind, safe='')}"
