"""The first sentence of an artifact's page: speed, proof, size, and where it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.verification_reports import VerificationReport
from pt2hub.errors import InvalidInput
from pt2hub.server.pages.artifacts.artifact_answers import answer_artifact
from pt2hub.server.pages.artifacts.artifact_tabs import ArtifactTab, parse_tab
from pt2hub.server.views.inspection import InspectionView, MetricView
from pt2hub.wire.artifacts import ArtifactView, DamagedPart
from pt2hub.wire.responses import MeasurementStatus

DIGEST = digest_bytes(b"")
LATENCY = MetricView("latency_p50", "ms", "artifact", 1.2, 1.1, 1.3, 3, "2026-11-22T10:00:00Z", DIGEST, 8)


def view(target: str, **changes: Any) -> InspectionView:
    artifact = ArtifactView(
        digest=DIGEST, model="team/net", number=7, target=target, device="cuda", arch="sm90", build="b1", attempt=1,
        created_at="2026-11-22T10:00:00Z", program_key=DIGEST, code=DIGEST, code_bytes=1, weights=DIGEST,
        weights_bytes=1, single_file=DIGEST, single_file_bytes=94 << 20, config_digest=DIGEST, torch="2.13.0",
        python="3.12", compiler="g++", libc="glibc", pt2hub="0.2", **changes,
    )  # fmt: skip
    return InspectionView(artifact, LATENCY)


def said(found: InspectionView, result: str | None = "passed", *damaged: DamagedPart) -> tuple[str, str]:
    answer = answer_artifact(found, VerificationReport.of({"result": result} if result else {}), damaged)
    return answer.tone, answer.text


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("torch2.13-cu130-sm90", "runs on GPUs of compute capability 9.0 with torch 2.13"),
        ("torch2.13-cu130-sm100a", "runs on GPUs of compute capability 10.0 with torch 2.13"),
        ("torch2.13-cpu-x86_64_v4", "runs on x86-64-v4 CPUs with torch 2.13"),
        ("of-another-server", "runs on of-another-server"),
    ],
)
def test_an_artifact_says_how_quick_it_is_and_where_it_runs(target: str, place: str) -> None:
    assert said(view(target)) == ("good", f"1.2 ms at batch 8, verified against the model, 94 MiB; {place}.")


@pytest.mark.parametrize(
    ("result", "proof"),
    [
        ("no_power", "not provably equal to the model"),
        (None, "not verified by this server"),
        ("odd\u202e" * 30, "verification: odd"),
    ],
)
def test_only_what_was_proven_is_good(result: str | None, proof: str) -> None:
    tone, text = said(view("torch2.13-cu130-sm90"), result)
    assert tone == "warn"
    assert f", {proof}" in text
    assert "\u202e" not in text


def test_what_is_not_measured_or_damaged_says_so() -> None:
    waiting = view("torch2.13-cu130-sm90", measurement=MeasurementStatus("waiting"))
    assert said(replace(waiting, latency=None))[1].startswith("Waiting to be measured, verified")
    lost = DamagedPart("code", DIGEST, "digest", "2026-11-22T10:00:00Z")
    tone, text = said(waiting, "passed", lost)
    assert (tone, text[:43]) == ("bad", "Damaged on the server: it cannot be pulled.")


def test_a_view_that_is_not_there_names_those_that_are() -> None:
    assert [parse_tab(tab.value) for tab in ArtifactTab] == list(ArtifactTab)
    with pytest.raises(InvalidInput, match="Invalid view 'everything'"):
        parse_tab("everything")
