"""Labels: keys, values of each type, links, conditions, and what a CI job says about itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pt2hub.client.config import ci_job
from pt2hub.client.publishing.spec_labels import SpecLabels, ci_labels
from pt2hub.domain.builds import Readiness
from pt2hub.domain.labels import check_labels, check_value, label_link
from pt2hub.domain.version_filters import LabelFilter, VersionFilter, parse_conditions
from pt2hub.errors import InvalidInput

SHA = "4f1c8a0e9d3b7c65f2a1908e7d6c5b4a39281706"
DIGEST = "sha256:" + "ab" * 32
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("git.sha", f" {SHA.upper()} ", SHA),
        ("git.sha", "ab" * 32, "ab" * 32),
        ("git.repository", "https://git.example.org/team/net", "https://git.example.org/team/net"),
        ("license", "apache-2.0 or mit", "Apache-2.0 OR MIT"),
        ("license", "LicenseRef-Proprietary", "LicenseRef-Proprietary"),
        ("data", f"imagenet-v2@{DIGEST}", f"imagenet-v2@{DIGEST}"),
        ("data", "people@home.example", "people@home.example"),
        ("team.budget_2026", "<b>1 000 \u20ac</b>", "<b>1 000 \u20ac</b>"),
        ("x", "y" * 1000, "y" * 1000),
    ],
)
def test_a_label_is_kept_in_the_form_of_its_type(key: str, value: str, kept: str) -> None:
    assert check_labels({key: value}) == {key: kept}


@pytest.mark.parametrize(
    ("key", "value", "where"),
    [
        ("Git.sha", SHA, "labels"),
        ("", "x", "labels"),
        ("-a", "x", "labels"),
        ("a" * 64, "x", "labels"),
        ("a b", "x", "labels"),
        ("<script>", "x", "labels"),
        ("pt2hub.stage", "x", "labels"),
        ("owner", "", "labels.owner"),
        ("owner", "   ", "labels.owner"),
        ("owner", "x" * 10_000, "labels.owner"),
        ("owner", "two\nlines", "labels.owner"),
        ("owner", "a\x1b[31m", "labels.owner"),
        ("owner", "a\u202eb", "labels.owner"),
        ("git.sha", "4f1c8a0", "labels.git.sha"),
        ("git.repository", "git.example.org/net", "labels.git.repository"),
        ("run", "javascript:alert(1)", "labels.run"),
        ("run", "https://user:secret@runs.example.org/1", "labels.run"),
        ("data", "imagenet@sha256:12", "labels.data"),
        ("license", "do what you want", "labels.license"),
    ],
)
def test_a_malformed_label_is_refused_at_its_place(key: str, value: str, where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_labels({key: value})
    assert caught.value.where == where
    assert caught.value.hint
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "message", "hint"),
    [
        (
            "owner",
            " ",
            "The value of label owner is empty",
            "Give a value, owner=VALUE. To remove the label: pt2hub label rm MODEL@N owner",
        ),
        (
            "run",
            "https://user:secret@runs.example.org:8443/1?a=b",
            "The value of label run contains a user or password",
            "Everybody who can read the label would read them. Leave them out: https://runs.example.org:8443/1?a=b",
        ),
    ],
)
def test_a_refused_value_comes_with_what_to_write(key: str, value: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_labels({key: value})
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_thousand_labels_are_too_many() -> None:
    with pytest.raises(InvalidInput, match=r"Too many labels \(1000, at most 64\)"):
        check_labels({f"k{number}": "v" for number in range(1000)})


def test_links_lead_to_the_commit_the_run_and_the_data_and_nowhere_else() -> None:
    labels = {
        "git.sha": SHA,
        "git.repository": "https://git.example.org/team/net.git",
        "run": "https://runs.example.org/7",
        "data": f"https://data.example.org/set@{DIGEST}",
        "owner": "https://evil.example.org",
    }
    assert label_link("git.sha", labels) == f"https://git.example.org/team/net/commit/{SHA}"
    assert label_link("run", labels) == "https://runs.example.org/7"
    assert label_link("data", labels) == "https://data.example.org/set"
    assert label_link("owner", labels) is None
    assert label_link("git.sha", {"git.sha": SHA}) is None


def test_conditions_are_fields_ages_times_and_labels() -> None:
    found = parse_conditions(
        [
            "model=vision/",
            "alias=prod",
            "state=READY",
            "since=7d",
            "until=2026-11-26",
            "owner=a=b",
            "git.sha",
        ],
        now=NOW,
    )
    assert found == VersionFilter(
        model="vision/",
        labels=(LabelFilter("owner", "a=b"), LabelFilter("git.sha")),
        alias="prod",
        state=Readiness.READY,
        since=NOW - timedelta(days=7),
        until=datetime(2026, 11, 26, tzinfo=UTC),
    )
    assert parse_conditions(["label.target=x"], now=NOW).labels == (LabelFilter("target", "x"),)


@pytest.mark.parametrize(
    "texts",
    [
        ["alias"],
        ["alias="],
        ["alias=3"],
        ["alias=prod", "alias=beta"],
        ["state=good"],
        ["since=yesterday"],
        ["since=999999w"],
        ["until=0001-01-01T00:00:00+20:00"],
        ["target=gpu"],
        ["model=Vision/x"],
        ["owner="],
        ["a b=c"],
        ["x=1"] * 11,
    ],
)
def test_a_malformed_condition_is_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_conditions(texts, now=NOW)
    assert caught.value.hint


GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SHA": SHA,
    "GITHUB_SERVER_URL": "https://github.example.org",
    "GITHUB_REPOSITORY": "team/net",
    "GITHUB_REF_NAME": "main",
    "GITHUB_RUN_ID": "77",
    "GITHUB_TOKEN": "a secret",
}
GITLAB = {
    "GITLAB_CI": "true",
    "CI_COMMIT_SHA": SHA,
    "CI_PROJECT_URL": "https://gitlab.example.org/team/net",
    "CI_COMMIT_REF_NAME": "main",
    "CI_JOB_URL": "https://gitlab.example.org/team/net/-/jobs/9",
}
JENKINS = {
    "JENKINS_URL": "https://ci.example.org",
    "GIT_COMMIT": SHA,
    "GIT_URL": "git@git.example.org:team/net.git",
    "GIT_BRANCH": "origin/main",
    "BUILD_URL": "https://ci.example.org/job/net/3/",
}


@pytest.mark.parametrize(
    ("environ", "repository", "run"),
    [
        (
            GITHUB,
            "https://github.example.org/team/net",
            "https://github.example.org/team/net/actions/runs/77",
        ),
        (GITLAB, GITLAB["CI_PROJECT_URL"], GITLAB["CI_JOB_URL"]),
        (JENKINS, "https://git.example.org/team/net", JENKINS["BUILD_URL"]),
    ],
)
def test_a_ci_job_says_what_it_works_on(environ: dict[str, str], repository: str, run: str) -> None:
    expected = {"git.sha": SHA, "git.repository": repository, "git.branch": "main", "run": run}
    assert ci_labels(ci_job(environ)) == expected


def test_a_job_that_says_nothing_or_something_malformed_gives_no_label() -> None:
    assert ci_labels(ci_job({})) == {}
    assert ci_labels(ci_job({"CI_COMMIT_SHA": SHA})) == {}
    assert (
        ci_labels(ci_job({"GITLAB_CI": "true", "CI_COMMIT_SHA": "main", "CI_JOB_URL": "javascript:x"})) == {}
    )
    secret = JENKINS | {"GIT_URL": "https://user:secret@git.example.org/net.git"}
    assert ci_labels(ci_job(secret))["git.repository"] == "https://git.example.org/net"


@pytest.mark.parametrize(
    ("url", "repository"),
    [
        ("ssh://git@git.example.org:7999/team/net.git", "https://git.example.org/team/net"),
        ("ssh://git@git.example.org/team/net.git", "https://git.example.org/team/net"),
        ("ssh://git.example.org:22/net", "https://git.example.org/net"),
        ("git.example.org:team/net.git", "https://git.example.org/team/net"),
        ("https://git.example.org/team/net.git?private_token=secret", "https://git.example.org/team/net"),
        ("ssh://git@[::1/net.git", None),
        ("file:///srv/net.git", None),
        ("C:/srv/net", None),
        ("C:\\srv\\net", None),
    ],
)
def test_a_repository_is_named_by_its_address_for_a_browser(url: str, repository: str | None) -> None:
    assert ci_labels(ci_job(JENKINS | {"GIT_URL": url})).get("git.repository") == repository


@pytest.mark.parametrize(
    "value", ["sha256:abc", "x@SHA256:" + "a" * 64, "https://user:secret@x.example/data"]
)
def test_a_data_set_without_a_valid_digest_or_with_a_password_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_value("data", value)
    assert caught.value.where == "labels.data"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"), [("owner", "a\u2028b"), ("owner", "a\u2029b"), ("run", "https://x/\u00a0y")]
)
def test_a_value_is_one_line_and_an_address_has_no_spaces(key: str, value: str) -> None:
    with pytest.raises(InvalidInput):
        check_value(key, value)


def test_what_is_given_comes_before_the_spec_and_that_before_the_job() -> None:
    labels = SpecLabels({"owner": "given"}, {"git.sha": SHA, "git.branch": "main"})
    spec = {"model": "a/b", "labels": {"owner": "spec", "stage": "spec", "git.branch": "other"}}
    assert labels.added_to(spec)["labels"] == {
        "git.sha": SHA,
        "git.branch": "other",
        "owner": "given",
        "stage": "spec",
    }
    assert labels.added_to({"labels": 3}) == {"labels": 3}


def test_a_team_without_a_slash_is_explained() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_conditions(["model=trial"], now=NOW)
    assert caught.value.hint == "Use model=trial/ for all models of the team, or model=trial/NAME for one."
