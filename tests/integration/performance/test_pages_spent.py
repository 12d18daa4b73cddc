"""Where the time of an artifact's calls goes: on its page, in the API and the CLI, after a reindex, and when it lies."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain import artifacts as oci
from pt2hub.domain.artifacts import Descriptor, Manifest
from pt2hub.domain.digests import Digest, canonical_json
from pt2hub.domain.performance.profiles import MAX_PROFILE_BYTES
from support.pages import Page

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from support.registry import Registry

NAME = "cpp_fused_relu_0"
KERNEL = f'int other() {{}}\n// {NAME}\nextern "C"  void  {NAME}(const float* in)\n{{\n}}\n'
SOURCES = {
    "a.wrapper.cpp": f'extern "C" void {NAME}(const float* in);\n{NAME}(x);\nop(aoti_torch_cpu_mm_out(y));\n'
}
SOURCES["z.kernel.cpp"] = KERNEL
TRACE = gzip.compress(b'{"traceEvents": []}')


def zipped(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def row(name: str, share: float) -> dict[str, Any]:
    return {"name": name, "calls": 6, "total_us": 3000 * share, "mean_us": 500 * share, "share": share}


def profile(**changes: Any) -> bytes:
    names = [NAME, "aoti_torch_cpu_mm_out", "<script>alert(1)</script>", *(f"aten::op{n}" for n in range(20))]
    rows = [row(name, 0.3 / (place + 1)) for place, name in enumerate(names)]
    told = {
        "schema": 2,
        "device": "cpu",
        "calls": 3,
        "call_us": 1000.0,
        "rest_us": 120.0,
        "left_out": 7,
        "batch": 8,
    }
    return canonical_json({**told, "rows": rows, **changes})


def published(served: Registry, told: bytes, *, sources: bool = True) -> Digest:
    """An artifact with a profile, a trace and sources beside it."""
    claim = served.claim(served.submit().builds[0].id)
    publication = served.publication(claim)
    manifest = publication.manifest
    brought = [(told, oci.PROFILE_TYPE), (TRACE, oci.TRACE_TYPE)]
    brought += [(zipped(SOURCES), oci.SOURCES_TYPE)] if sources else []
    referrers = [
        Manifest(
            artifactType=kind,
            config=served.blob(b"{}", oci.EMPTY_TYPE, holder=claim.holder),
            layers=(served.blob(data, kind, holder=claim.holder),),
            subject=Descriptor(oci.MANIFEST_TYPE, manifest.digest, len(manifest.as_bytes())),
        )
        for data, kind in brought
    ]
    for referrer in referrers:
        served.manifest(referrer, holder=claim.holder)
    whole = replace(publication, referrers=(*publication.referrers, *referrers))
    served.services.builds.publish(claim, whole)
    return manifest.digest


def read(web: FlaskClient, address: str) -> Page:
    response = web.get(address)
    assert response.status_code == 200
    html = response.get_data(as_text=True)
    assert "<script>alert" not in html
    return Page(html)


def test_the_page_shows_the_table_and_leads_to_the_trace_and_to_lines_of_the_sources(
    web: FlaskClient, served: Registry
) -> None:
    digest = published(served, profile())
    page = read(web, f"/artifacts/{digest}?view=trace")
    for said in (
        "3 calls at batch 8 recorded with torch's profiler",
        f"{NAME} 30.0 % 300 µs 2 150 µs 900 µs",
        "between operations 12.0 % 120 µs",
        "3 more",
        "7 more are only in the trace",
        "Perfetto",
    ):
        assert said in page.text, said
    assert page.text.index("3 more") < page.text.index("between operations 12.0 %")
    referrers = served.services.resolve.artifact(digest).referrers
    (trace,) = (item.digest for item in referrers if item.artifact_type == oci.TRACE_TYPE)
    link = f"/artifacts/{digest}/referrers/{trace}"
    assert link in page.links
    assert web.get(link, follow_redirects=True).data == TRACE
    kernel, operation = (
        f"/artifacts/{digest}/sources?find={name}" for name in (NAME, "aoti_torch_cpu_mm_out")
    )
    assert {kernel, operation} <= set(page.links)
    assert web.get(kernel).location.endswith("file=z.kernel.cpp&from=1#L3")
    assert web.get(operation).location.endswith("file=a.wrapper.cpp&from=1#L3")
    assert (
        web.get(f"/artifacts/{digest}/sources?find=no.such(name").location == f"/artifacts/{digest}/sources"
    )


def test_of_a_gpu_the_shares_are_of_what_it_ran_and_the_whole_call_stands_below(
    web: FlaskClient, served: Registry
) -> None:
    kernel = {
        "name": "triton_poi_fused_0",
        "calls": 3,
        "total_us": 1200.0,
        "mean_us": 400.0,
        "share": 1.0,
    }
    told = {"schema": 2, "device": "cuda", "call_us": 1480.0, "rest_us": 180.0, "rows": [kernel]}
    told |= {"device_us": 400.0, "gap_us": 900.0, "plain_us": 550.0, "left_out": 0}
    digest = published(served, profile(**told))
    page = read(web, f"/artifacts/{digest}?view=trace")
    for said in (
        "100.0 % 400 µs",
        "GPU idle between kernels (an earlier pt2hub recorded no causes) 900 µs",
        "before the first kernel and after the last 180 µs",
        "profiler overhead 930 µs",
        "GPU idle in a call without the profiler 150 µs",
    ):
        assert said in page.text, said
    assert "between operations" not in page.text
    assert f"/artifacts/{digest}/sources?find=triton_poi_fused_0" in page.links
    text = " ".join(str(served.services.resolve.artifact(digest)).split())
    assert "GPU time in triton_poi_fused_0 100 %" in text
    assert "GPU idle 150 µs of a call of 550 µs; the profiler adds 930 µs" in text


def test_the_api_has_it_and_it_comes_back_with_the_index(served: Registry, web: FlaskClient) -> None:
    digest = published(served, profile())
    before = served.services.resolve.artifact(digest)
    served.sql("TRUNCATE models, versions, builds, artifacts, referrers CASCADE")
    served.services.reindex.reindex()
    assert served.services.resolve.artifact(digest).referrers == before.referrers
    told = json.loads(web.get(f"/api/v1/artifacts/{digest}").data)
    assert told["profile"]["rows"][0] == {**row(NAME, 0.3), "operator": None}
    assert told["profile"]["left_out"] == 7
    assert f"time in {NAME} 30 %" in " ".join(str(before).split())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"{}", "calls"),
        (profile(rows=[row("x", 0.1)] * 201), "out of range"),
        (profile(calls=0), "out of range"),
        (b" " * (MAX_PROFILE_BYTES + 1), "more than the"),
    ],
)
def test_a_table_that_lies_is_a_sentence(web: FlaskClient, served: Registry, data: bytes, said: str) -> None:
    digest = published(served, data, sources=False)
    page = read(web, f"/artifacts/{digest}?view=trace")
    assert "The profile cannot be shown: " in page.text
    assert said in page.text
    assert served.services.resolve.artifact(digest).profile is None


def test_the_kernels_begin_with_the_largest_even_where_the_compiler_recorded_none(
    web: FlaskClient, served: Registry
) -> None:
    digest = published(served, profile())
    page = read(web, f"/artifacts/{digest}?view=kernels")
    for said in (
        f"{NAME} takes 30.0 % of the time: 300 µs of a call at batch 8.",
        "No kernels are recorded for the artifact",
        f"{NAME} 30.0 % 300 µs 2 not recorded by the compiler aoti_torch_cpu_mm_out 15.0 % 150 µs 2",
        "Times are of 3 calls under torch's profiler",
    ):
        assert said in page.text, said
    assert f"/artifacts/{digest}/sources?find={NAME}" in page.links
    assert f"/artifacts/{digest}?view=trace" in page.links


@pytest.mark.parametrize(
    ("tab", "title"), [("trace", "No profile."), ("kernels", "No times of kernels are recorded.")]
)
def test_without_one_the_page_says_why(web: FlaskClient, served: Registry, tab: str, title: str) -> None:
    digest = served.published()
    page = read(web, f"/artifacts/{digest}?view={tab}")
    assert title in page.text
    assert "A measuring job profiles some calls" in page.text
    assert f"pt2hub measure vision/resnet18@{digest} --wait" in page.text
    served.sql("UPDATE versions SET settings = %s", json.dumps({"measure": {"profile": False}}))
    page = read(web, f"/artifacts/{digest}?view={tab}")
    assert "The spec sets measure: {profile: false}, so measuring jobs profile no calls." in page.text
