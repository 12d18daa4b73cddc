from __future__ import annotations

import json
import warnings

import pytest

from pt2hub.client.artifacts.yanks import YankedVersionWarning, YankWarnings, read_yank
from pt2hub.domain.tokens import matches_name
from pt2hub.domain.verification_reports import VerificationReport
from pt2hub.rendering.promotions import check_rows, protection_rows, yank_text
from pt2hub.wire.performance import PromotionCheckResult
from pt2hub.wire.resolution import Yank

YANK = Yank("wrong\nlabels", "ada", "2026-11-26T18:37:13.123456Z")


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("ada", "ada", True),
        ("ada", "Ada", False),
        ("release-*", "release-7", True),
        ("release-*", "my-release-7", False),
        ("*", "anybody at all", True),
        ("ci [a]", "ci [a]", True),
        ("ci [a]", "ci a", False),
        ("c?", "ci", False),
        ("c?", "c?", True),
        ("*a" * 49, "a" * 100, True),
        ("*a" * 49, "b" * 100, False),
    ],
)
def test_only_a_star_is_special_in_the_name_of_a_promoter(pattern: str, name: str, matches: bool) -> None:
    assert matches_name(pattern, name) is matches


@pytest.mark.parametrize(
    ("report", "lack"),
    [
        ({"result": "passed", "comparisons": [{"error": 0.0, "allowed": 1.0}]}, ""),
        ({"verdict": "passed", "comparisons": [{"error": 0.0, "allowed": 1.0}]}, ""),
        ({"result": "passed", "comparisons": [{"error": 0.0}]}, "its verification compared nothing"),
        ({"result": "passed", "comparisons": "all"}, "its verification compared nothing"),
        ({"result": "no_power", "comparisons": []}, "its verification has no power"),
        ({"comparisons": [{"error": 0.0, "allowed": 1.0}]}, "its verification is unknown"),
    ],
)
def test_a_verification_has_power_only_where_it_says_so(report: dict[str, object], lack: str) -> None:
    assert VerificationReport.of(report).lack_of_power == lack


def test_results_of_older_servers_have_rows_too() -> None:
    old = PromotionCheckResult({"metric": "latency_p50"}, "checks[0]", passed=False, message="20 % worse")
    assert check_rows([old]) == (("latency_p50", "-", "20 % worse", "-", "fails"),)


def test_each_requirement_of_a_protected_alias_has_a_row() -> None:
    limit = {"min": 0.7, "max": 0.9, "unit": "F1", "target": "t", "reporters": ["eval"]}
    document = {"protected": {"b": {"metrics": {"score": limit}}, "a": {"ready": True}}}
    assert protection_rows(document) == (
        ("a", "promoters", "every token with the scope promote"),
        ("a", "ready", "every target ready"),
        ("b", "promoters", "every token with the scope promote"),
        ("b", "score", "at least 0.7 F1 and at most 0.9 F1 on t, reported by eval"),
    )
    assert protection_rows({}) == ()


def test_a_yank_is_one_line_and_warned_of_once() -> None:
    assert yank_text(YANK) == "yanked by ada, 2026-11-26: wrong labels"
    found = YankWarnings()
    with pytest.warns(YankedVersionWarning, match=r"team/net@3 is yanked by ada, 2026-11-26: wrong labels"):
        found.warn("team/net@3", YANK)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.warn("team/net@3", YANK)
        found.warn("team/net@4", None)


@pytest.mark.parametrize("header", [None, "", "{", "[]", '{"reason": 3}', "[" * 100_000])
def test_a_header_that_names_no_yank_is_passed_over(header: str | None) -> None:
    assert read_yank(header) is None
    fields = {"reason": YANK.reason, "by": YANK.by, "at": YANK.at}
    assert read_yank(json.dumps(fields)) == YANK
