"""What audit entries changed, in words."""

from __future__ import annotations

from typing import Any

import pytest

from pt2hub.domain.principals import Principal
from pt2hub.rendering.audit_log import format_change, format_fields
from pt2hub.wire.audit_log import AuditEntry

DIGEST = "sha256:" + "0123456789abcdef" * 4


def entry(**change: Any) -> AuditEntry:
    principal = Principal("token", "ci")
    return AuditEntry(1, "2026-11-27T12:00:00Z", principal, "alias.move", "a/b@prod", ("a/b",), change=change)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"before": 2, "after": 3, "reason": "canary passed"}, "2 → 3; canary passed"),
        ({"before": None, "after": 1, "forced": None}, "none → 1"),
        (
            {"targets": ["torch2.13-cu130-sm90"], "identity": DIGEST},
            "targets H100 · torch 2.13; identity 0123456789ab",
        ),
        ({"admin": False, "patterns": ["a/*", "b/*"], "expires_at": None}, "admin no; patterns a/*, b/*"),
        ({"forced": {"count": 2}}, "forced count=2"),
        ({"before": {}, "after": {"owner": "ada", "stage": "dev"}}, "owner=ada, stage=dev"),
        (
            {"before": {"owner": "ada", "stage": "dev"}, "after": {"owner": "bob"}},
            "owner=ada → bob, stage=dev → none",
        ),
        (
            {"before": {"state": "failed", "priority": 0}, "after": {"state": "queued", "priority": 0}},
            "state=failed → queued",
        ),
        ({"before": {"last": 10, "pulled_within_days": None}, "after": None}, "last=10 → none"),
        (
            {
                "before": {"checks": [{"metric": "latency_p50", "max_worse": 0.05}]},
                "after": {
                    "checks": [{"metric": "latency_p50", "max_worse": 0.1}],
                    "protected": {"prod": {"promoters": ["ada", "bob"], "verified": True}},
                },
            },
            "checks[0].max_worse=0.05 → 0.1, protected.prod.promoters=[ada, bob], protected.prod.verified=yes",
        ),
        ({"before": ["a@1"], "after": []}, "a@1 → none"),
        ({"after": 3}, "after 3"),
        ({}, ""),
    ],
)
def test_a_change_is_told_in_words(change: dict[str, Any], text: str) -> None:
    assert format_change(entry(**change)) == text


def test_long_and_hostile_values_stay_on_one_line_and_the_fields_are_whole() -> None:
    made = entry(reason="x\n\u202e" + "y" * 400, identity=DIGEST)
    assert "\n" not in format_change(made)
    assert "\u202e" not in format_change(made)
    assert len(format_change(made)) == 303
    assert DIGEST in format_fields(made)
    assert "\n" not in format_fields(made)
