"""An artifact's calls beside torch.compile's: kernels with what they compute, and gaps by cause, wherever they are shown."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain import artifacts as oci
from pt2hub.domain.digests import canonical_json
from support.pages import Page

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.domain.digests import Digest
    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"
CONV = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc"
FUSED, OTHER = "triton_poi_fused_relu_0", "triton_red_fused_mean_1"
SOURCES = {
    "model.wrapper.cpp": f"// {FUSED}\nvoid call() {{\n  aoti_torch_cuda_convolution(x, w);\n}}\n",
    "kernels.py": f"import triton\n\ndef {FUSED}(in_ptr0):\n    pass\n",
}
RECORD = {
    "schema": 1,
    "graph": [
        {"opcode": "call_function", "name": "conv2d", "target": "aten.conv2d.default", "source": "net.py:7"},
        {"opcode": "call_function", "name": "relu", "target": "aten.relu.default", "source": "net.py:8"},
    ],
    "kernels": [
        {"name": FUSED, "calls": 1, "operations": ["relu"], "lowered": ["relu"]},
        {"name": "aoti_torch_cuda_convolution", "calls": 1, "operations": ["conv2d"]},
    ],
    "left_out": 0,
}


def row(name: str, total: float, share: float, operator: str | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "calls": 3,
        "total_us": total,
        "mean_us": total / 3,
        "share": share,
        "operator": operator,
    }


OWN: dict[str, Any] = {
    "schema": 3,
    "device": "cuda",
    "calls": 3,
    "call_us": 600.0,
    "rest_us": 100.0,
    "rows": [row(CONV, 900.0, 0.75, "aten::cudnn_convolution"), row(FUSED, 300.0, 0.25)],
    "batch": 8,
    "device_us": 400.0,
    "gap_us": 100.0,
    "plain_us": 450.0,
    "gaps": {"launch_us": 60.0, "sync_us": 30.0, "device_us": 10.0, "unknown_us": 0.0},
    "implementation": "artifact",
}
COMPILED = OWN | {
    "rows": [row(CONV, 840.0, 0.7, "aten::convolution"), row(FUSED, 240.0, 0.2), row(OTHER, 120.0, 0.1)],
    "gaps": {"launch_us": 200.0, "sync_us": 0.0, "device_us": 0.0, "unknown_us": 5.0},
    "gap_us": 205.0,
    "call_us": 740.0,
    "plain_us": 520.0,
    "implementation": "torch_compile",
}


def zipped(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def published(served: Registry, own: Any = OWN, other: Any = COMPILED, *, origins: bool = True) -> Digest:
    contents = [(oci.PROFILE_TYPE, canonical_json(own))] if own else []
    contents += [(oci.BASELINE_PROFILE_TYPE, canonical_json(other))] if other else []
    if origins:
        contents += [(oci.FUSION_TYPE, canonical_json(RECORD)), (oci.SOURCES_TYPE, zipped(SOURCES))]
    return served.published_with(*contents)


def read(web: FlaskClient, digest: Digest) -> Page:
    response = web.get(f"/artifacts/{digest}?view=trace")
    html = response.get_data(as_text=True)
    assert response.status_code == 200, html
    assert "<script>alert" not in html
    return Page(html)


def test_the_page_shows_both_side_by_side_with_what_each_kernel_computes(
    web: FlaskClient, served: Registry
) -> None:
    digest = published(served)
    page = read(web, digest)
    for said in (
        f"{CONV} net.py:7 conv2d 75.0 % 300 µs 1 300 µs 900 µs 70.0 % 280 µs",
        f"{FUSED} net.py:8 relu 25.0 % 100 µs 1 100 µs 300 µs 20.0 % 80 µs",
        f"{OTHER} - not in the artifact's calls 10.0 % 40 µs",
        "Whole call Artifact torch.compile",
        "GPU busy with kernels and copies 400 µs 400 µs",
        "gaps, launch-bound: the host launched the next kernel too late 60 µs 200 µs",
        "gaps, synchronisation: a synchronising call held the host up before the launch 30 µs 0 µs",
        "gaps on the device: a dependency between streams, or scheduling 10 µs -",
        "gaps of unknown cause: the launch is not in the trace - 5 µs",
        "call without the profiler 450 µs 520 µs",
    ):
        assert said in page.text, said
    assert "compare shares only" not in page.text
    links = {f"/artifacts/{digest}/sources?find={name}" for name in (FUSED, "aoti_torch_cuda_convolution")}
    assert links <= set(page.links)


def test_command_and_api_show_the_same_with_places_in_the_sources(
    shell: Shell, web: FlaskClient, served: Registry
) -> None:
    digest = published(served)
    told = web.get(f"/api/v1/artifacts/{digest}/profile").get_json()
    assert [item["name"] for item in told["rows"]] == [CONV, FUSED, OTHER]
    conv, fused, other = told["rows"]
    assert conv["kernel"] == "aoti_torch_cuda_convolution"
    assert conv["source"] == {"file": "model.wrapper.cpp", "line": 3}
    assert fused["lines"] == [{"line": "net.py:8", "operations": ["relu"]}]
    assert fused["source"] == {"file": "kernels.py", "line": 3}
    assert (other["artifact"], other["kernel"], other["source"]) == (None, None, None)
    assert told["artifact"]["gaps"] == OWN["gaps"]
    assert told["torch_compile"]["gaps"] == COMPILED["gaps"]
    assert told["artifact"]["rows"] == []

    found = shell("show", f"{MODEL}@1", "--profile")
    assert (found.code, found.err) == (0, "")
    lines = [" ".join(line.split()) for line in found.out.splitlines()]
    assert "KERNEL SHARE MEAN COMPILE SHARE COMPILE MEAN COMPUTES" in lines
    assert f"{CONV} 75.0 % 300 µs 70.0 % 280 µs net.py:7 conv2d, model.wrapper.cpp:3" in lines
    assert f"{OTHER} - - 10.0 % 40 µs -" in lines
    assert "WHOLE CALL ARTIFACT TORCH.COMPILE" in lines
    assert "gaps, launch-bound: the host launched the next kernel too late 60 µs 200 µs" in lines
    assert "GPU gaps launch-bound 60 µs, synchronisation 30 µs, on the device 10 µs" in lines
    document = json.loads(shell("show", f"{MODEL}@1", "--profile", "--json").out)
    (artifact,) = document["artifacts"].values()
    assert artifact["call_profile"] == told
    assert artifact["torch_compile_profile"]["implementation"] == "torch_compile"
    plain = json.loads(shell("show", f"{MODEL}@1", "--json").out)
    assert "call_profile" not in next(iter(plain["artifacts"].values()))


def test_both_profiles_come_back_with_the_index(web: FlaskClient, served: Registry) -> None:
    digest = published(served)
    before = web.get(f"/api/v1/artifacts/{digest}/profile").get_json()
    served.sql("TRUNCATE models, versions, builds, artifacts, referrers CASCADE")
    served.services.reindex.reindex()
    assert web.get(f"/api/v1/artifacts/{digest}/profile").get_json() == before
    assert served.services.measuring_jobs.profiled(digest) == {"artifact", "torch_compile"}


def test_without_torch_compile_and_record_the_artifact_stands_alone(
    shell: Shell, web: FlaskClient, served: Registry
) -> None:
    digest = published(served, other=None, origins=False)
    page = read(web, digest)
    assert f"{CONV} launched by aten::cudnn_convolution 75.0 % 300 µs" in page.text
    assert "torch.compile share" not in page.text
    assert "GPU busy with kernels and copies 400 µs" in page.text
    lines = [" ".join(line.split()) for line in shell("show", f"{MODEL}@1", "--profile").out.splitlines()]
    assert f"{CONV} 75.0 % 300 µs launched by aten::cudnn_convolution" in lines
    assert f"{FUSED} 25.0 % 100 µs -" in lines
    assert served.services.measuring_jobs.profiled(digest) == {"artifact"}


def test_profiles_of_different_batches_are_compared_by_shares_only(
    shell: Shell, web: FlaskClient, served: Registry
) -> None:
    digest = published(served, other=COMPILED | {"batch": 2})
    assert "they had batch 2, so compare shares only" in read(web, digest).text
    assert (
        "torch.compile was traced at batch 2: compare shares only."
        in shell("show", f"{MODEL}@1", "--profile").out
    )


@pytest.mark.parametrize(
    "other",
    [
        {"schema": 3},
        COMPILED | {"implementation": "eager"},
        COMPILED | {"gaps": {"launch_us": -1}},
        COMPILED | {"rows": [row("x", 1.0, 0.1)] * 201},
        [],
    ],
)
def test_a_baseline_profile_that_lies_is_left_out(web: FlaskClient, served: Registry, other: Any) -> None:
    digest = published(served, other=other)
    told = web.get(f"/api/v1/artifacts/{digest}/profile").get_json()
    assert told["torch_compile"] is None
    assert "torch.compile share" not in read(web, digest).text


def test_a_profile_that_lies_or_is_missing_has_a_code(
    shell: Shell, web: FlaskClient, served: Registry
) -> None:
    digest = published(served, own=OWN | {"calls": 0})
    answer = web.get(f"/api/v1/artifacts/{digest}/profile").get_json()
    assert (answer["code"], "out of range" in answer["detail"]) == ("corrupt_archive", True)
    lines = shell("show", f"{MODEL}@1", "--profile")
    assert lines.code == 0
    assert "no profile; pt2hub measure records one" in lines.out

    missing = served.published(served.submit(model="vision/other"))
    answer = web.get(f"/api/v1/artifacts/{missing}/profile")
    assert (answer.status_code, answer.get_json()["code"]) == (404, "not_recorded")
    assert "pt2hub measure" in answer.get_json()["hint"]
    nothing = web.get(f"/api/v1/artifacts/sha256:{'0' * 64}/profile")
    assert (nothing.status_code, nothing.get_json()["code"]) == (404, "not_found")


def test_an_older_profile_is_read_without_causes(shell: Shell, web: FlaskClient, served: Registry) -> None:
    older = {name: value for name, value in OWN.items() if name not in ("gaps", "implementation")}
    older |= {
        "schema": 2,
        "rows": [{k: v for k, v in item.items() if k != "operator"} for item in OWN["rows"]],
    }
    digest = published(served, own=older)
    assert (
        "GPU idle between kernels (an earlier pt2hub recorded no causes) 100 µs -" in read(web, digest).text
    )
    out = shell("show", f"{MODEL}@1", "--profile").out
    assert "GPU gaps" not in out
    assert "an earlier pt2hub recorded no causes" in out


def test_names_stay_text(shell: Shell, web: FlaskClient, served: Registry) -> None:
    hostile = "<script>alert(1)</script>\x1b[2J\u202e"
    rows = [row(hostile, 900.0, 0.75, hostile), row(f"{hostile}2", 300.0, 0.25)]
    published(served, own=OWN | {"rows": rows}, other=COMPILED | {"rows": rows})
    digest = served.services.resolve.resolve(f"{MODEL}@1").artifacts[0].digest
    assert "<script>alert(1)</script>" in read(web, digest).text.replace("\u200b", "")
    out = shell("show", f"{MODEL}@1", "--profile").out
    assert "alert(1)" in out
    assert not {"\x1b", "\u202e"} & set(out)
