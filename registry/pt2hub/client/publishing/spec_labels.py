"""Labels of a publication: those of the caller, and a CI job's commit, repository, branch and run; and its lineage."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from pt2hub.client.config import ci_job
from pt2hub.domain.labels import check_value
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from pt2hub.client.publishing.options import Options

_SCP = re.compile(r"(?:[\w.-]+@)?([\w.-]{2,}):(?!//)([^\\]+)")
"""An address as Git writes it for SSH: `git@host:team/repository.git`. A host of one letter is a drive of Windows."""
_CREDENTIALS = re.compile(r"(https?://)[^/@]+@")


@dataclass(frozen=True, slots=True)
class SpecLabels:
    """Labels and lineage to add to a spec.

    Attributes:
        given: Labels that come before those of the spec.
        of_job: Labels of the CI job, which come last.
        derived_from: Derivations besides those of the spec.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    of_job: Mapping[str, str] = field(default_factory=dict)
    derived_from: Sequence[str] = ()

    @classmethod
    def of(cls, options: Options) -> Self:
        """Return the labels and the lineage among the options of a publication."""
        return cls(
            options.get("labels") or {},
            ci_labels(ci_job()) if options.get("ci_labels", True) else {},
            options.get("derived_from") or (),
        )

    def __bool__(self) -> bool:
        return bool(self.given or self.of_job or self.derived_from)

    def added_to(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the spec with both; a malformed field is left to the server, which says what is wrong with it."""
        added: dict[str, Any] = {}
        own, parents = document.get("labels") or {}, document.get("derived_from") or []
        if (self.given or self.of_job) and isinstance(own, dict):
            added["labels"] = {**self.of_job, **own, **self.given}
        if self.derived_from and isinstance(parents, list):
            added["derived_from"] = [*parents, *self.derived_from]
        return {**document, **added}


NO_LABELS = SpecLabels()


def ci_labels(job: Mapping[str, str]) -> dict[str, str]:
    """Return labels for a CI job; what is missing or malformed is left out.

    Args:
        job: The job's variables, as from `config.ci_job`.
    """
    found = _github(job) if "GITHUB_SHA" in job else _others(job)
    return {key: value for key, value in found.items() if value and _is_valid(key, value)}


def _github(job: Mapping[str, str]) -> dict[str, str]:
    server, repository = job.get("GITHUB_SERVER_URL", ""), job.get("GITHUB_REPOSITORY", "")
    address = f"{server}/{repository}" if server and repository else ""
    run = job.get("GITHUB_RUN_ID", "")
    return {
        "git.sha": job["GITHUB_SHA"],
        "git.repository": address,
        "git.branch": job.get("GITHUB_REF_NAME", ""),
        "run": f"{address}/actions/runs/{run}" if address and run else "",
    }


def _others(job: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a job of GitLab or Jenkins."""

    def first(*names: str) -> str:
        return next((job[name] for name in names if name in job), "")

    return {
        "git.sha": first("CI_COMMIT_SHA", "GIT_COMMIT"),
        "git.repository": _web_address(first("CI_PROJECT_URL", "GIT_URL")),
        "git.branch": first("CI_COMMIT_REF_NAME", "GIT_BRANCH").removeprefix("origin/"),
        "run": first("CI_JOB_URL", "BUILD_URL"),
    }


def _web_address(url: str) -> str:
    """Return a repository's address for a browser, without a user or password; empty if none is known.

    An address for SSH has the host and the path of that for a browser, but a port of its own.
    """
    if url.startswith("ssh://"):
        return _of_ssh(url)
    found = url.partition("?")[0]  # which may have a token
    if not found.startswith("http") and (match := _SCP.fullmatch(found)):
        found = f"https://{match[1]}/{match[2].lstrip('/')}"
    return _CREDENTIALS.sub(r"\1", found).removesuffix(".git")


def _of_ssh(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"https://{parts.hostname}{parts.path}".removesuffix(".git") if parts.hostname else ""


def _is_valid(key: str, value: str) -> bool:
    try:
        check_value(key, value)
    except InvalidInput:
        return False
    return True
