"""The kernels of an artifact by command, API and page, and what becomes of a record that lies."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain import artifacts as oci
from pt2hub.domain.artifacts import Descriptor, Manifest
from pt2hub.domain.digests import Digest, canonical_json, digest_bytes
from pt2hub.domain.fusion import MAX_FUSION_BYTES, MAX_KERNELS
from pt2hub.domain.reading import ReadMode
from pt2hub.domain.tokens import Scope
from pt2hub.server.api import waits
from pt2hub.server.api.app import create_app
from pt2hub.server.pages.installation import install
from support.artifacts import a_region
from support.pages import Page
from support.registry import V4

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container
    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"
GRAPH = [
    {"opcode": "placeholder", "name": "x", "target": "x", "shape": ["s0", "8"], "dtype": "float32"},
    {"opcode": "call_function", "name": "linear", "target": "aten.linear.default", "source": "net.py:7"},
    {"opcode": "call_function", "name": "relu", "target": "aten.relu.default", "source": "net.py:8"},
]
KERNEL = {
    "name": "triton_poi_fused_relu_0",
    "calls": 2,
    "operations": ["linear", "relu"],
    "lowered": ["relu"],
}
LIBRARY = {"name": "aoti_torch_cuda_addmm_out", "calls": 1, "lowered": ["addmm"]}


def record(**changes: Any) -> bytes:
    return canonical_json(
        {"schema": 1, "graph": GRAPH, "kernels": [KERNEL, LIBRARY], "left_out": 0, **changes}
    )


def published(
    served: Registry,
    data: bytes | None,
    *,
    seed: int = 0,
    layer: str = oci.FUSION_TYPE,
    model: str = MODEL,
    profile: bytes | None = None,
    **changes: Any,
) -> Digest:
    """An artifact of the one program, with a record of its kernels and a profile of its calls if there is one."""
    version = served.submit(model=model, source={"factory": "timm:create_model", "seed": seed})
    claim = served.claim(version.builds[0].id)
    publication = served.publication(claim, **changes)
    for kind, kept, media_type in (
        (oci.FUSION_TYPE, data, layer),
        (oci.PROFILE_TYPE, profile, oci.PROFILE_TYPE),
    ):
        if kept is None:
            continue
        manifest = publication.manifest
        referrer = Manifest(
            artifactType=kind,
            config=served.blob(b"{}", oci.EMPTY_TYPE, holder=claim.holder),
            layers=(served.blob(kept, media_type, holder=claim.holder),),
            subject=Descriptor(oci.MANIFEST_TYPE, manifest.digest, len(manifest.as_bytes())),
        )
        served.manifest(referrer, holder=claim.holder)
        publication = replace(publication, referrers=(*publication.referrers, referrer))
    served.services.builds.publish(claim, publication)
    return publication.manifest.digest


def read(web: FlaskClient, digest: Digest) -> Page:
    response = web.get(f"/artifacts/{digest}?view=kernels")
    html = response.get_data(as_text=True)
    assert response.status_code == 200, html
    assert "<script>alert" not in html
    return Page(html)


def test_command_api_and_page_show_which_operations_each_kernel_holds(
    shell: Shell, web: FlaskClient, served: Registry
) -> None:
    used = KERNEL | {"registers": 40, "shared_bytes": 2048, "spills": 0}
    digest = published(served, record(kernels=[used, LIBRARY]))

    found = shell("kernels", f"{MODEL}@1")
    assert (found.code, found.err) == (0, "")
    _, headings, first, second = found.out.splitlines()
    assert headings.split() == ["KERNEL", "CALLS", "REGISTERS", "SHARED", "MEMORY", "SPILLS", "OPERATIONS"]
    assert "triton_poi_fused_relu_0 2 40 2 KiB 0 net.py:7 linear, net.py:8 relu" in " ".join(first.split())
    assert second.split() == ["aoti_torch_cuda_addmm_out", "1", "-", "-", "-", "addmm"]

    told = json.loads(shell("kernels", f"{MODEL}@{digest}", "--json").out)
    assert told == web.get(f"/api/v1/artifacts/{digest}/kernels").get_json()
    assert (told["artifact"], told["compiled_for"], told["target"]) == (digest, digest, V4)
    assert told["graph"][0] == GRAPH[0] | {"source": ""}
    assert told["kernels"][0] == used

    page = read(web, digest)
    assert "triton_poi_fused_relu_0 2 40 2 KiB 0 net.py:7 linear net.py:8 relu" in page.text
    raw = web.get(f"/artifacts/{digest}?view=raw").get_data(as_text=True)
    assert "Exported graph and kernels" in raw
    assert "reused" not in page.text.split("2 kernels, each")[1][:200]


def test_reused_code_has_the_kernels_of_the_artifact_that_it_was_compiled_for(
    shell: Shell, web: FlaskClient, served: Registry
) -> None:
    first = published(served, record())
    second = published(served, None, seed=1)
    assert first != second

    assert web.get(f"/api/v1/artifacts/{second}/kernels").get_json()["compiled_for"] == first
    assert f"The code is reused from {first}." in shell("kernels", f"{MODEL}@2").out
    assert f"/artifacts/{first}" in read(web, second).links


def test_kernels_have_their_times_also_where_the_profiled_code_is_reused(
    web: FlaskClient, served: Registry
) -> None:
    rows = [
        {"name": name, "calls": 2, "total_us": 2000 * share, "mean_us": 1000 * share, "share": share}
        for name, share in (("triton_poi_fused_relu_0", 0.31), ("Memcpy DtoH", 0.69))
    ]
    rows[1]["operator"] = "aten::addmm"
    told = {"schema": 3, "device": "cuda", "calls": 2, "call_us": 1200.0, "rest_us": 9.0, "rows": rows}
    first = published(served, record(), profile=canonical_json(told))
    second = published(served, None, seed=1)

    page = read(web, first)
    assert (
        "aoti_torch_cuda_addmm_out takes 69.0 % of the time that the GPU is busy: 690 µs of a call."
        in page.text
    )
    overview = Page(web.get(f"/artifacts/{first}").get_data(as_text=True))
    assert "Largest: aoti_torch_cuda_addmm_out, 69.0 % of the time that the GPU is busy" in overview.text
    assert "addmm_out 69.0 % 690 µs 1 addmm triton_poi_fused_relu_0 31.0 % 310 µs 2 net.py:7" in page.text
    assert "Measured with" not in page.text

    page = read(web, second)
    assert f"690 µs of a call. Measured with {MODEL}@1, whose code this artifact reuses." in page.text
    assert f"pt2hub measure {MODEL}@{second} --wait" in page.text
    assert f"/artifacts/{first}?view=trace" in page.links


def test_kernels_without_a_record_have_the_runs_that_the_profiler_counted(
    web: FlaskClient, served: Registry
) -> None:
    row = {"name": "ampere_sgemm", "calls": 10, "total_us": 500.0, "mean_us": 50.0, "share": 0.8}
    told = {"schema": 3, "device": "cuda", "calls": 2, "call_us": 1200.0, "rest_us": 9.0, "rows": [row]}
    digest = published(served, record(kernels=[KERNEL, KERNEL]), profile=canonical_json(told))
    assert "ampere_sgemm 80.0 % 250 µs 5 not recorded by the compiler" in read(web, digest).text


def test_the_times_of_kernels_of_one_name_are_in_its_first_row(web: FlaskClient, served: Registry) -> None:
    row = {"name": KERNEL["name"], "calls": 2, "total_us": 500.0, "mean_us": 250.0, "share": 0.8}
    told = {"schema": 3, "device": "cuda", "calls": 2, "call_us": 1200.0, "rest_us": 9.0, "rows": [row]}
    digest = published(served, record(kernels=[KERNEL, KERNEL]), profile=canonical_json(told))
    assert read(web, digest).text.count("in the first row of this name") == 1


def test_equal_code_of_another_team_lends_no_record(web: FlaskClient, served: Registry) -> None:
    published(served, record(), model="others/resnet18")
    own = published(served, None)

    response = web.get(f"/api/v1/artifacts/{own}/kernels")
    assert (response.status_code, response.get_json()["code"]) == (404, "not_recorded")


def test_kernels_of_parts_with_code_of_another_artifact_are_said_to_be_there(
    shell: Shell, web: FlaskClient, served: Registry
) -> None:
    first = published(served, record(), regions=(a_region("layer", "layers.0"), a_region("rest")))
    layer = a_region("layer", "layers.0", "layers.1<b>", code_reused_from=digest_bytes(b"code"))
    gone = a_region("gone", code_reused_from=digest_bytes(b"gone"))
    second = published(
        served,
        record(kernels=[]),
        seed=1,
        key="second",
        code=b"other",
        regions=(layer, gone, a_region("end")),
    )
    lines = (
        f"The kernels of 2 calls of layers.0, layers.1<b> are listed with {MODEL}@1, whose code is reused.",
        "The kernels of 1 call of a part between regions are not listed: no artifact that you may read has them.",
    )

    said = shell("kernels", f"{MODEL}@2").out
    assert "The code that was compiled for it calls no kernel." in said
    assert all(line in said for line in lines)
    told = web.get(f"/api/v1/artifacts/{second}/kernels").get_json()["reused_parts"]
    assert [(part["calls"], part["artifact"], part["version"]) for part in told] == [
        (2, first, f"{MODEL}@1"),
        (1, None, ""),
    ]
    page = read(web, second)
    assert all(line in page.text for line in lines)
    assert f"/artifacts/{first}" in page.links
    assert "reused" not in shell("kernels", f"{MODEL}@1").out

    differences = shell("diff", f"{MODEL}@1", f"{MODEL}@2").out
    assert (
        f"Not compared: the kernels of 2 parts of {MODEL}@2 that run code of other artifacts." in differences
    )


def test_nothing_of_a_model_that_may_not_be_read_is_shown_with_code_reused_from_it(
    web: FlaskClient, served: Registry, container: Container, config: ServerConfig
) -> None:
    hidden, shown = "vision/secret", "vision/open"
    rows = [{"name": KERNEL["name"], "calls": 2, "total_us": 900.0, "mean_us": 450.0, "share": 0.31}]
    told = {"schema": 3, "device": "cuda", "calls": 2, "call_us": 1200.0, "rest_us": 9.0, "rows": rows}
    layer = a_region("layer", "layers.0", code_reused_from=digest_bytes(b"code"))
    first = published(
        served, record(), model=hidden, profile=canonical_json(told), regions=(a_region("layer", "layers.0"),)
    )
    second = published(served, None, model=shown, seed=1)
    third = published(
        served, record(), model=shown, seed=2, key="third", code=b"other", regions=(layer, a_region("rest"))
    )
    views = [f"/artifacts/{second}?view={name}" for name in ("overview", "kernels", "autotune", "trace")]
    urls = [
        *views,
        f"/artifacts/{second}/sources",
        f"/artifacts/{second}/debug",
        f"/artifacts/{third}?view=kernels",
        f"/api/v1/artifacts/{third}/kernels",
        f"/compare?before={shown}@1&after={shown}@2",
        f"/diff?before={shown}@1&after={shown}@2",
    ]
    everything = "".join(web.get(url).get_data(as_text=True) for url in urls)
    assert all(text in everything for text in (hidden, first, "450 µs"))

    app = create_app(container, replace(config, read=ReadMode.TEAM))
    install(app)
    team = app.test_client()
    token = served.services.access.create_token("ci", scopes=[Scope.READ], patterns=[shown])
    team.post("/sign-in", data={"token": token}, headers={"Sec-Fetch-Site": "same-origin"})
    headers = {"Authorization": f"Bearer {token}"}
    for url in urls:
        answer = team.get(url, headers=headers if url.startswith("/api") else {})
        html = answer.get_data(as_text=True)
        assert answer.status_code == 200, html
        assert not [text for text in (hidden, first, "450 µs") if text in html], url
    assert (
        team.get(f"/api/v1/artifacts/{second}/kernels", headers=headers).get_json()["code"] == "not_recorded"
    )
    waits.stop(app)


def test_an_artifact_without_a_record_has_an_error_code_of_its_own(
    shell: Shell, web: FlaskClient, served: Registry
) -> None:
    digest = published(served, None)
    answer = web.get(f"/api/v1/artifacts/{digest}/kernels")
    assert (answer.status_code, answer.get_json()["code"]) == (404, "not_recorded")
    found = shell("kernels", f"{MODEL}@1")
    assert found.code != 0
    assert f"No kernels are recorded for the artifact {digest}" in found.err
    assert f"No kernels are recorded for the artifact {digest}" in read(web, digest).text
    missing = web.get(f"/api/v1/artifacts/sha256:{'0' * 64}/kernels")
    assert (missing.status_code, missing.get_json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (record(schema=2), "Unknown schema 2"),
        (record(kernels=[{"name": 3}]), "kernels[0].name must be str"),
        (record(kernels=[KERNEL] * (MAX_KERNELS + 1)), "too many nodes or kernels"),
        (record(graph=[GRAPH[0] | {"target": "x" * 5000}]), "a text that is too long"),
        (record(kernels=[KERNEL | {"calls": -1}]), "out of range"),
        (b" " * MAX_FUSION_BYTES + record(), "more than the"),
    ],
)
def test_a_record_that_lies_is_refused_and_the_page_says_so(
    web: FlaskClient, served: Registry, data: bytes, said: str
) -> None:
    digest = published(served, data)
    answer = web.get(f"/api/v1/artifacts/{digest}/kernels").get_json()
    assert answer["code"] in {"corrupt_archive", "too_large"}
    assert said in answer["detail"]
    assert said in read(web, digest).text


def test_a_record_of_another_type_is_refused(web: FlaskClient, served: Registry) -> None:
    digest = published(served, record(), layer=oci.SOURCES_TYPE)
    assert "contains no record of kernels" in read(web, digest).text


def test_names_in_a_record_stay_text(shell: Shell, web: FlaskClient, served: Registry) -> None:
    hostile = "<script>alert(1)</script>\x1b[2J\u202e"
    node = GRAPH[1] | {"source": hostile}
    digest = published(
        served,
        record(graph=[node], kernels=[KERNEL | {"name": hostile}, LIBRARY | {"lowered": [hostile, "\x00"]}]),
    )
    page = read(web, digest)
    assert "<script>alert(1)</script>" in page.text.replace("\u200b", "")
    out = shell("kernels", f"{MODEL}@1").out
    assert "alert(1)" in out
    assert not {"\x1b", "\u202e", "\x00"} & set(out)
    assert web.get(f"/api/v1/artifacts/{digest}/kernels").status_code == 200
