"""`pt2hub diff`, its API and its page over a real database and storage: the sections, and what has no data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.artifacts import EMPTY_TYPE, FUSION_TYPE, MANIFEST_TYPE, Descriptor, Manifest, ProgramKey
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import canonical_json, digest_bytes, digest_json
from pt2hub.domain.fusion import FUSION_SCHEMA, FusedKernel, Fusion, GraphNode
from pt2hub.errors import Ambiguous, InvalidInput, NotFound, NotReady
from pt2hub.rendering.changed_parts import describe_changed_parts
from pt2hub.rendering.differences import sections
from support.figures import latency, measured
from support.pages import Page
from support.registry import TOOLCHAIN, V3, V4

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.domain.digests import Digest
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
    changed = "Changed between them: the checks of verification, compiler options and the toolchain. All differences"
    assert changed in comparison.text
    for linked in (comparison, Page(web.get(f"/models/{MODEL}/versions/2").get_data(as_text=True))):
        assert any(link.startswith("/diff?") for link in linked.links)
    assert pair.sql("SELECT count(*) FROM artifacts") == [(2,)]


def recorded(registry: Registry, fusion: bytes, **changes: Any) -> Digest:
    """Publish a version with a record of its graph and kernels."""
    number = len(registry.sql("SELECT 1 FROM versions")) + 1
    claim = registry.claim(registry.submit(checks={"tolerance": 0.001 * number}).builds[0].id)
    publication = registry.publication(claim, code=fusion, **changes)
    artifact = publication.manifest
    record = Manifest(
        artifactType=FUSION_TYPE,
        config=registry.blob(b"{}", EMPTY_TYPE, holder=claim.holder),
        layers=(registry.blob(fusion, FUSION_TYPE, holder=claim.holder),),
        subject=Descriptor(MANIFEST_TYPE, artifact.digest, len(artifact.as_bytes())),
    )
    registry.manifest(record, holder=claim.holder)
    referrers = (*publication.referrers, record)
    registry.services.builds.publish(claim, replace(publication, referrers=referrers))
    return artifact.digest


def fusion(*nodes: str, registers: int) -> bytes:
    graph = tuple(
        GraphNode("call_function", name, f"aten.{name}.default", ("s0", "8"), "float32", "net.py:7")
        for name in nodes
    )
    kernel = FusedKernel("triton_poi_fused_0", len(nodes), nodes, registers=registers)
    return canonical_json(encode(Fusion(FUSION_SCHEMA, graph, (kernel,))))


def test_graphs_and_kernels_are_compared_where_they_are_recorded(served: Registry, shell: Shell) -> None:
    recorded(served, fusion("relu", registers=16), key=key(graph="relu"))
    recorded(served, fusion("relu", "mul", registers=32), key=key(graph="relu and mul"))
    recorded(served, b'{"schema": 99}', key=key(graph="damaged"))
    found = shell("diff", FIRST, SECOND).out
    assert "\nThe exported graph differs: 1 node added.\n" in found
    assert "\nGraph\n1 node added.\n" in found
    rows = [line.split() for line in found.splitlines()]
    assert ["added", "aten.mul.default", "-", "float32[s0,", "8]", "net.py:7"] in rows
    assert "\n1 changed; the code has 1 call before, 2 after.\n" in found
    assert ["changed", "triton_poi_fused_0", "1,", "then", "2", "16,", "then", "32", "-", "-"] in rows

    recorded(served, fusion("relu", registers=64), key=key(graph="relu with other arguments"))
    recorded(served, fusion("relu", registers=8), key=key(graph="relu", options={"max_autotune": True}))
    found_graphs = [
        shell("diff", FIRST, f"{MODEL}@{number}").out.partition("\nGraph\n")[2] for number in (4, 5)
    ]
    assert found_graphs[0].startswith(
        "The exported graphs differ, but not in what is recorded of their nodes: "
    )
    assert found_graphs[1].startswith("The exported graphs are the same.\n")

    document = shell.json("diff", FIRST, SECOND)[1]
    assert [item["after"]["target"] for item in document["graph"]["nodes"]] == ["aten.mul.default"]
    assert document["kernels"]["kernels"][0]["after"]["registers"] == 32

    damaged = served.services.diffs.diff(SECOND, f"{MODEL}@3")
    assert f"{MODEL}@3 for {V4}: " in damaged.graph.missing
    assert damaged.kernels.missing == damaged.graph.missing
    assert f"{SECOND} for" not in damaged.graph.missing


def test_equal_keys_say_that_the_code_is_reused(registry: Registry) -> None:
    one = registry.published(registry.submit(), key=key(graph="same"))
    other = registry.published(registry.submit(checks={"tolerance": 0.01}), key=key(graph="same"))
    found = registry.services.diffs.diff(f"{MODEL}@{one}", f"{MODEL}@{other}")
    assert found.key.same
    assert "No kernels are recorded" in found.kernels.missing
    text = "\n".join(line for section in sections(found) for line in section.lines)
    assert "The program keys are the same, and so the graphs." in text
    assert "No kernels are recorded" not in text, "the same code has the same kernels"
    assert found.key.reasons[0] == "The program keys are the same."
    assert "the same code" in found.key.reasons[1]
    assert [item.path for item in found.spec.fields] == ["checks.tolerance"]
    assert all(item.same for item in found.sizes)
    parts = registry.services.diffs.changed_parts(found.comparison)
    assert parts is not None
    assert describe_changed_parts(parts) == "Changed between them: the checks of verification."
    assert describe_changed_parts(replace(parts, spec=("labels.a",))).startswith("Nothing recorded changed")
    many = replace(parts, has_other_weights=True, spec=("source.seed", "dtype", "dims.n.max", "dims.n.min"))
    assert describe_changed_parts(replace(many, key=("graph", "literals"))) == (
        "Changed between them: the weights, the seed, the spec's dtype, the spec's dims, the exported graph and 1 more."
    )

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
        assert registry.services.diffs.changed_parts(found.comparison) is None
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
