"""`pt2hub diff`, its API and its page over a real database and storage: the sections, and what has no data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.artifacts import ProgramKey
from pt2hub.domain.digests import digest_bytes, digest_json
from pt2hub.errors import Ambiguous, InvalidInput, NotFound, NotReady
from support.figures import latency, measured
from support.pages import Page
from support.registry import TOOLCHAIN, V3, V4

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"
FIRST, SECOND = f"{MODEL}@1", f"{MODEL}@2"


def key(**fields: Any) -> ProgramKey:
    return ProgramKey(digest_json(fields), fields)


def report(error: float) -> dict[str, Any]:
    row = {"point": "example", "output": 0, "error": error, "allowed": 0.001, "signal": 1.0}
    return {"result": "passed", "relative_error": error, "tolerance": 0.001, "comparisons": [row]}


@pytest.fixture
def pair(served: Registry) -> Registry:
    """Two versions, the second compiled by another torch with another option."""
    newer = replace(TOOLCHAIN, torch="2.14.0+cpu")
    for number, (tools, tuned) in enumerate(((TOOLCHAIN, False), (newer, True)), 1):
        version = served.submit(checks={"tolerance": 0.001 * number})
        artifact = served.published(
            version,
            code=b"code" * number,
            toolchain=tools,
            key=key(schema=2, toolchain={"torch": tools.torch}, options={"max_autotune": tuned}),
            verification=report(1e-6 * number),
        )
        measured(served, artifact, latency(10.0 * number, 10.1 * number, 9.9 * number))
    return served


def test_a_diff_has_every_section_in_text_json_and_on_the_page(
    shell: Shell, web: FlaskClient, pair: Registry
) -> None:
    found = shell("diff", FIRST, SECOND)
    assert (found.code, found.err) == (0, "")
    lines = found.out.splitlines()
    assert f"after   {SECOND} for {V4}" in lines
    torch = f"torch {TOOLCHAIN.torch}, then 2.14.0+cpu"
    assert f"The toolchain differs: {torch}." in lines
    assert "Compiler options differ: max_autotune false, then true." in lines
    assert any(line.startswith("The code was recompiled") for line in lines)
    assert ["checks.tolerance", "-", "0.002"] in [line.split() for line in lines]  # 0.001 is the default
    assert any(line.split() == ["code", "4", "B", "8", "B", "100.0", "%", "larger"] for line in lines)
    assert any(line.startswith("latency_p50 batch 8") and "slower" in line for line in lines)
    assert any("1e-06" in line and "2e-06" in line and "output 0" in line for line in lines)

    code, document = shell.json("diff", FIRST, SECOND)
    assert code == 0
    assert document == web.get(f"/api/v1/diff?before={FIRST}&after={SECOND}").get_json()
    assert (
        document["comparison"]["after"]["artifact"] == shell.json("show", SECOND)[1]["builds"][0]["artifact"]
    )
    assert [item["path"] for item in document["spec"]["fields"]] == ["checks.tolerance"]
    assert (document["key"]["same"], document["key"]["missing"]) == (False, "")

    page = Page(web.get(f"/diff?before={FIRST}&after={SECOND}").get_data(as_text=True))
    for text in ("Program key", torch, "options.max_autotune", "Sizes", "Numerics", "latency_p50 batch 8"):
        assert text in page.text
    assert f"pt2hub diff {FIRST} {SECOND} --target {V4}" in page.text
    comparison = Page(web.get(f"/compare?before={FIRST}&after={SECOND}").get_data(as_text=True))
    for linked in (comparison, Page(web.get(f"/models/{MODEL}/versions/2").get_data(as_text=True))):
        assert any(link.startswith("/diff?") for link in linked.links)
    assert pair.sql("SELECT count(*) FROM artifacts") == [(2,)]


def test_equal_keys_say_that_the_code_is_reused(registry: Registry) -> None:
    one = registry.published(registry.submit(), key=key(graph="same"))
    other = registry.published(registry.submit(checks={"tolerance": 0.01}), key=key(graph="same"))
    found = registry.services.diffs.diff(f"{MODEL}@{one}", f"{MODEL}@{other}")
    assert found.key.same
    assert found.key.reasons[0] == "The program keys are the same."
    assert "the same code" in found.key.reasons[1]
    assert [item.path for item in found.spec.fields] == ["checks.tolerance"]
    assert all(item.same for item in found.sizes)

    elsewhere = registry.published(
        registry.submit(model="audio/net"), key=key(graph="same"), code=b"compiled again"
    )
    apart = registry.services.diffs.diff(FIRST, f"audio/net@{elsewhere}")
    assert "Code is reused within a team only." in apart.key.reasons


def test_a_damaged_config_leaves_the_other_sections(registry: Registry) -> None:
    registry.published(registry.submit())
    registry.published(registry.submit(checks={"tolerance": 0.01}), code=b"other", key=key(graph="other"))
    bad = registry.blob(b'{"key": NaN}').digest
    for config, reason in ((digest_bytes(b"gone"), "missing from storage"), (bad, "not valid JSON")):
        registry.sql(
            "UPDATE artifacts SET config = %s WHERE code = %s RETURNING 1", config, digest_bytes(b"other")
        )
        found = registry.services.diffs.diff(FIRST, SECOND)
        assert f"The config of {SECOND} for {V4} cannot be read: " in found.spec.missing
        assert reason in found.spec.missing
        assert found.key.missing == found.spec.missing
        assert found.key.reasons[0] == "The program keys differ."
        assert [item.part for item in found.sizes] == ["code", "weights", "package"]


def test_what_cannot_be_compared_has_a_stable_code(registry: Registry, web: FlaskClient) -> None:
    both = registry.submit(targets=[V4, V3])
    for build in both.builds:
        claim = registry.claim(build.id, registry.worker(f"w-{build.target}", build.target))
        registry.services.builds.publish(claim, registry.publication(claim, code=build.target.encode()))
    registry.submit(checks={"tolerance": 0.01})  # not built
    diff = registry.services.diffs.diff
    with pytest.raises(Ambiguous, match="2 targets"):
        diff(FIRST, FIRST)
    with pytest.raises(InvalidInput, match="same artifact"):
        diff(FIRST, FIRST, target=V4)
    with pytest.raises(NotReady):
        diff(FIRST, SECOND)
    with pytest.raises(NotFound):
        diff(FIRST, "vision/none@1")
    across = diff(FIRST, FIRST, target=V4, with_target=V3)
    assert ("request.target", V4, V3) in [(f.path, f.before, f.after) for f in across.spec.fields]

    assert web.get(f"/diff?before={FIRST}&after=vision/none@1").status_code == 404
    assert web.get(f"/diff?before={FIRST}").status_code == 422
    assert "Show differences" in Page(web.get("/diff").get_data(as_text=True)).text
