"""The page of an artifact and that of its sources: what they show, and what they make of blobs that lie."""

from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain import artifacts as oci
from pt2hub.domain.artifacts import Descriptor, Manifest, Member, SingleFile, StepTiming
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.performance.measurements import Measurement
from pt2hub.server.blobs.keys import StorageKey
from support.artifacts import a_config, a_constant
from support.figures import Run, latency, measured
from support.pages import Page
from support.registry import V4

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient

    from pt2hub.domain.builds import Claim
    from pt2hub.domain.publications import Publication
    from support.registry import Registry

MARKUP = "<script>alert(1)</script>"
KERNEL = "".join(f"int kernel_{n}() {{ return {n}; }}  // {MARKUP}\n" for n in range(1, 1301))


def a_zip(**files: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "."), text)
    return out.getvalue()


def with_sources(served: Registry, claim: Claim, data: bytes, **changes: Any) -> Publication:
    """A publication with generated sources, as a build that compiled hands it over."""
    publication = served.publication(claim, **changes)
    manifest = publication.manifest
    subject = Descriptor(oci.MANIFEST_TYPE, manifest.digest, len(manifest.as_bytes()))
    referrer = Manifest(
        artifactType=oci.SOURCES_TYPE,
        config=served.blob(b"{}", oci.EMPTY_TYPE, holder=claim.holder),
        layers=(served.blob(data, oci.SOURCES_TYPE, holder=claim.holder),),
        subject=subject,
    )
    served.manifest(referrer, holder=claim.holder)
    return replace(publication, referrers=(*publication.referrers, referrer))


def published(served: Registry, data: bytes = b"", **changes: Any) -> Digest:
    """An artifact, with sources where there are any."""
    claim = served.claim(served.submit().builds[0].id)
    publication = (
        with_sources(served, claim, data, **changes) if data else served.publication(claim, **changes)
    )
    served.services.builds.publish(claim, publication)
    return publication.manifest.digest


VIEWS = ("overview", "files", "kernels", "autotune", "benchmark", "trace", "provenance", "raw")


def read(web: FlaskClient, address: str, status: int = 200) -> Page:
    response = web.get(address)
    html = response.get_data(as_text=True)
    assert response.status_code == status, html
    assert "<script>alert" not in html
    return Page(html)


def read_all(web: FlaskClient, address: str) -> Page:
    """All tabs of an artifact's page, as one."""
    return Page("".join(web.get(f"{address}?view={view}").get_data(as_text=True) for view in VIEWS))


def test_its_page_opens_an_artifact_up(web: FlaskClient, served: Registry) -> None:
    digest = published(served, a_zip(kernel__cpp=KERNEL))
    page = read_all(web, f"/artifacts/{digest}")
    for said in (
        "vision/resnet18@1 for CPU v4 · torch 2.13",
        V4,
        "10.5 ms at batch 2, verified against the model, ",
        "; runs on x86-64-v4 CPUs with torch 2.13.",
        "largest error 1e-06 of the signal",
        "in a sandbox",
        "latency_p50 batch 2",
        "10.5 ms",
        "10 ms to 10.75 ms",
        "torch.compile",
        "fetch100 ms 1 %",
        "compile12.5 s 99 %",
        "AUTOTUNE mm(2x512, 512x1000) float32",
        "cpp_gemm chosen block_m=8 0.1000 ms 100.0 %",
        "cpp_gemm block_m=64 failed: RuntimeError: out of registers",
        "strides [512, 1], [1, 512] 3 candidates, 1 failed; precompiling 1.5 s, benchmarking 250 ms",
        "mkl 0.2000 ms 50.0 %",
        "model/ 2 files 5 B",
        "version 1 B",
        "1 to 32",
        f"pt2hub pull vision/resnet18@{digest}",
        '"mediaType": "application/vnd.oci.image.manifest.v1+json"',
        "sources.zip",
    ):
        assert said in page.text, said
    assert f"/api/v1/artifacts/{digest}/model.pt2" in page.links
    assert f"/artifacts/{digest}/sources" in page.links
    files = {link for link in page.links if "/referrers/" in link}
    assert len(files) == 3
    for link in files:
        assert web.get(link, follow_redirects=True).status_code == 200


@pytest.mark.parametrize("tab", ["overview", "autotune", "provenance"])
def test_rows_of_its_tables_are_cards_on_phones(web: FlaskClient, served: Registry, tab: str) -> None:
    digest = published(served, a_zip(kernel__cpp=KERNEL))
    html = web.get(f"/artifacts/{digest}?view={tab}").get_data(as_text=True)
    tables = re.findall(r"<table[^>]*>.*?</table>", html, re.DOTALL)
    assert tables
    for table in tables:
        assert re.match(r'<table class="(?:\w+ )?rows[ "]', table), table
        bodies = re.findall(r"<tbody>(.*?)</tbody>", table, re.DOTALL)
        cells = [cell for body in bodies for cell in re.findall(r"<td([^>]*)>", body)]
        assert all(re.search("data-label|whole-row|bar|implementation", cell) for cell in cells), cells


def test_each_tab_has_an_address_and_shows_its_part_alone(web: FlaskClient, served: Registry) -> None:
    digest = published(served, a_zip(kernel__cpp=KERNEL))
    address = f"/artifacts/{digest}"
    own = {
        "overview": "always resolves to this artifact",
        "files": "2 files 5 B",
        "kernels": "No kernels to show",
        "autotune": "AUTOTUNE mm(",
        "benchmark": "median time of a call",
        "trace": "Time breakdown of a call",
        "provenance": "largest error 1e-06 of the signal",
        "raw": "vnd.oci.image.manifest",
    }
    texts = {view: read(web, f"{address}?view={view}").text for view in VIEWS}
    for view, said in own.items():
        assert [name for name, text in texts.items() if said in text] == [view], said
    tabs = [address, *(f"{address}?view={view}" for view in VIEWS[1:])]
    links = read(web, address).links
    assert [link for link in dict.fromkeys(links) if link in tabs][: len(tabs)] == tabs
    assert read(web, address).text == texts["overview"]
    assert "Must be one of overview, files" in read(web, f"{address}?view=everything", 422).text


def test_addresses_of_the_page_that_held_everything_still_lead_somewhere(
    web: FlaskClient, served: Registry
) -> None:
    digest = published(served)
    html = web.get(f"/artifacts/{digest}").get_data(as_text=True)
    anchors = ("speed", "profile", "verification", "steps", "kernels", "autotune", "files", "call")
    for anchor in (*anchors, "config", "manifest", "downloads", "measure", "what", "pull"):
        assert html.count(f'id="{anchor}"') == 1, anchor
    assert "AUTOTUNE mm(" in read(web, f"/artifacts/{digest}?tuned=0").text
    assert "Measuring job queued" in read(web, f"/artifacts/{digest}?done=measuring").text


def test_machine_and_time_are_said_once_and_where_they_differ(web: FlaskClient, served: Registry) -> None:
    digest = published(served)
    text = read(web, f"/artifacts/{digest}?view=benchmark").text
    speed = text.partition("Runs")[0]
    assert speed.count("EPYC") == 1
    assert "unless a row says otherwise" not in speed
    measured(served, digest, latency(12.0, 13.0, 12.5, batch=2), run=Run(day=3))
    speed = read(web, f"/artifacts/{digest}?view=benchmark").text.partition("Runs")[0]
    assert "unless a row says otherwise" in speed


def test_without_measurements_the_first_sentence_says_so(web: FlaskClient, served: Registry) -> None:
    digest = published(served)
    served.sql("DELETE FROM series_points")
    assert "Latency not measured, verified against the model" in read(web, f"/artifacts/{digest}").text


def test_what_ran_beside_it_stands_beside_its_own_time_of_that_process(
    web: FlaskClient, served: Registry
) -> None:
    digest = published(served)
    beside = {"implementation": "eager", "batch": 2}
    eager, ratio = Measurement("latency_p50", 8.0, "ms", **beside), Measurement("speedup", 2.0, "1", **beside)
    measured(served, digest, latency(12.0, 13.0, 12.5, batch=2), eager, ratio)
    text = read(web, f"/artifacts/{digest}?view=benchmark").text
    assert "this artifact in fresh processes 12.5 ms" in text  # so that eager would look faster
    assert "this artifact in the build's own process 4 ms" in text
    assert "eager in the build's own process 8 ms" in text
    assert "eager 2 times faster than eager: 4 ms compared with 8 ms" in text


def test_the_runs_behind_its_figures_are_listed_with_their_times_and_machines(
    web: FlaskClient, served: Registry
) -> None:
    digest = published(served)
    measured(served, digest, latency(12.0, 13.0, 12.5, batch=2), run=Run(day=3))
    page = read(web, f"/artifacts/{digest}?view=benchmark")
    figures, _, runs = page.text.partition("All on ")
    assert "12.5 ms" in figures
    assert "10 ms to 13 ms" in figures  # over both runs
    assert runs.index("12.5 ms at batch 2") < runs.index("10.5 ms at batch 2")
    assert "EPYC, torch 2.13.0+cpu" in runs
    assert "at build time" in runs


def test_it_is_compared_with_the_artifact_of_the_version_before(web: FlaskClient, served: Registry) -> None:
    first = served.published()
    second = served.published(served.submit(checks={"tolerance": 0.01}), code=b"other")
    assert not [link for link in read(web, f"/artifacts/{first}").links if link.startswith("/compare?")]
    (link,) = (link for link in read(web, f"/artifacts/{second}").links if link.startswith("/compare?"))
    assert first[7:] in link
    assert second[7:] in link


def test_sources_come_in_colours_some_lines_at_a_time(web: FlaskClient, served: Registry) -> None:
    digest = published(served, a_zip(kernel__cpp=KERNEL, wrapper__txt="plain"))
    address = f"/artifacts/{digest}/sources"
    html = web.get(address).get_data(as_text=True)
    assert '<span class="k">return</span>' in html
    assert "// &lt;script&gt;alert(1)&lt;/script&gt;" in html
    first = Page(html)
    assert "Lines 1 to 300 of 1,300" in first.text
    (on,) = (link for link in first.links if "from=301" in link)
    assert "Lines 301 to 600 of 1,300" in read(web, on).text
    assert "Lines 1,300 to 1,300 of 1,300" in read(web, f"{address}?from=99999999").text
    assert "wrapper.txt" in read(web, f"{address}?file=wrapper.txt").text
    assert "They have kernel.cpp" in read(web, f"{address}?file=kernl.cpp", 404).text
    assert "Invalid whole number" in read(web, f"{address}?from=x", 422).text


def test_sources_of_reused_code_are_those_it_was_compiled_from(web: FlaskClient, served: Registry) -> None:
    first = published(served, a_zip(kernel__cpp=KERNEL))
    second = served.published(served.submit(checks={"tolerance": 0.01}))
    page = read(web, f"/artifacts/{second}/sources")
    assert "reused from vision/resnet18@1" in page.text
    assert "kernel_250" in page.text
    assert f"/artifacts/{first}" in page.links


def test_without_sources_or_times_of_candidates_the_pages_say_so(web: FlaskClient, served: Registry) -> None:
    digest = served.published()
    assert "No generated sources" in read(web, f"/artifacts/{digest}/sources").text
    served.sql("DELETE FROM autotune_choices")
    html = web.get(f"/artifacts/{digest}?view=autotune").get_data(as_text=True)
    section = html.partition('id="autotune"')[2].partition("</section>")[0]
    assert "autotun" in section.lower()
    assert 'class="empty"' not in section


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"no zip at all", "not a zip"),
        (a_zip(**{"../../evil__py": "x"}), "leaves its folder"),
        (a_zip(a__cpp="x" * (5 << 20)), "is too large to show"),
    ],
)
def test_sources_that_lie_are_a_sentence(web: FlaskClient, served: Registry, data: bytes, said: str) -> None:
    digest = published(served, data)
    assert said in read(web, f"/artifacts/{digest}/sources").text


def test_bytes_that_the_storage_changed_are_never_shown(
    web: FlaskClient, served: Registry, tmp_path: Path
) -> None:
    data = a_zip(kernel__cpp=KERNEL)
    digest = published(served, data)
    view = served.services.resolve.artifact(digest)
    stored = tmp_path / "blobs"
    for blob in (digest_bytes(data), view.config_digest):
        path = stored / StorageKey.blob(blob).path
        path.chmod(0o600)
        path.write_bytes(b"other" + path.read_bytes()[5:])
    assert "its bytes have another digest" in read(web, f"/artifacts/{digest}/sources").text
    page = read(web, f"/artifacts/{digest}?view=raw")
    assert "The config cannot be shown" in page.text
    assert "No call signature." in read(web, f"/artifacts/{digest}").text
    (stored / StorageKey.blob(view.config_digest).path).unlink()
    page = read_all(web, f"/artifacts/{digest}")
    assert "is missing from storage" in page.text
    assert "AUTOTUNE mm" in page.text, "what the database knows is shown"


def test_whatever_a_build_wrote_is_text(web: FlaskClient, served: Registry) -> None:
    turned = "\u202egnp.exe\u0007"
    deep = "/".join(["a"] * 300)
    members = tuple(
        Member(name, 1, digest_bytes(b"")) for name in (MARKUP + turned, deep, "b/c.so", "b/c.so/d")
    )
    changes: dict[str, Any] = {
        "single_file": SingleFile(digest_bytes(b"s"), 9, members),
        "constants": replace(a_config().constants, table=(a_constant(MARKUP, (2, 3)),)),
        "steps": (StepTiming(MARKUP, -5.0), StepTiming("compile", 1e300)),
        "verification": {
            "result": MARKUP,
            "comparisons": [1, {"error": "x", "allowed": None}],
            "notes": MARKUP,
        },
        "provenance": {
            "autotuning": {"seconds": MARKUP, "choices": [MARKUP]},
            "worker": turned,
            "isolation": 3,
        },
    }
    digest = published(served, **changes)
    served.sql(
        "UPDATE autotune_choices SET candidate = %s, template = %s, reason = %s, milliseconds = NULLIF(rank, 2)",
        *[MARKUP] * 3,
    )
    for view in VIEWS:
        read(web, f"/artifacts/{digest}?view={view}")
    page = read_all(web, f"/artifacts/{digest}")
    assert MARKUP in page.text
    assert "\u202e" not in page.text
    assert "\u0007" not in page.text


def test_a_config_of_another_kind_is_shown_as_it_is(web: FlaskClient, served: Registry) -> None:
    digest = served.published()
    other = json.dumps({"schema": 9, "odd": ["\ud800", "\u0000", 1]}).encode()
    blob = served.blob(other)
    served.sql("UPDATE artifacts SET config = %s", blob.digest)
    page = read_all(web, f"/artifacts/{digest}")
    assert "No call signature." in page.text
    assert "odd" in page.text
    served.sql("UPDATE artifacts SET config = %s", served.blob(b"[" * 100_000).digest)
    assert "The document is not valid JSON" in read(web, f"/artifacts/{digest}?view=raw").text


def test_what_is_no_artifact_is_not_found(web: FlaskClient, served: Registry) -> None:
    digest = served.published()
    referrer = served.services.resolve.artifact(digest).referrers[0].digest
    for wrong in ("sha256:12", "x%00y", "sha256:" + "0" * 64):
        read(web, f"/artifacts/{wrong}", 404)
        read(web, f"/artifacts/{wrong}/sources", 404)
        read(web, f"/artifacts/{wrong}/referrers/{referrer}", 404)
    assert f"a referrer of the artifact {digest}" in read(web, f"/artifacts/{referrer}", 404).text
    read(web, f"/artifacts/{digest}/referrers/{digest}", 404)
    read(web, f"/artifacts/{digest}?tuned=9999999999999999999", 422)


def test_who_signed_in_has_it_measured_again(signed_in: FlaskClient, served: Registry) -> None:
    digest = served.published()
    address = f"/artifacts/{digest}"
    fields = dict(read(signed_in, f"{address}?view=benchmark").fields)
    assert (fields["repeat"], fields["priority"], fields["baseline"]) == ("1", "-10", "")
    sent = {**fields, "repeat": "3", "baseline": ""}
    done = signed_in.post(f"{address}/measure", data=sent, headers={"Sec-Fetch-Site": "same-origin"})
    assert (done.status_code, done.location) == (303, f"{address}?view=benchmark&done=measuring#measure")
    page = read(signed_in, done.location.partition("#")[0])
    assert "Measuring job queued" in page.text
    ((job, request),) = served.sql("SELECT id, request FROM builds WHERE kind = 'measure'")
    assert (request["repeat"], request["by"]) == (3, "tester")
    assert f"/builds/{job}" in page.links


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"repeat": "99"}, "Enter a whole number from 1 to 20"),
        ({"priority": "soon"}, "Enter a whole number from -100 to 100"),
        ({"baseline": "other/net@1"}, "belong to different teams"),
        ({"baseline": f"{MARKUP}@"}, "at baseline"),
    ],
)
def test_a_wrong_order_comes_back_as_it_was_typed(
    signed_in: FlaskClient, served: Registry, typed: dict[str, str], said: str
) -> None:
    digest = served.published()
    fields = {**dict(read(signed_in, f"/artifacts/{digest}?view=benchmark").fields), "repeat": "2", **typed}
    headers = {"Sec-Fetch-Site": "same-origin"}
    response = signed_in.post(f"/artifacts/{digest}/measure", data=fields, headers=headers)
    html = response.get_data(as_text=True)
    assert (response.status_code, "<script>alert" in html) == (422, False)
    page = Page(html)
    assert said in page.text
    assert dict(page.fields).items() >= {**typed}.items()
    assert served.sql("SELECT 1 FROM builds WHERE kind = 'measure'") == []


def test_who_only_reads_is_asked_to_sign_in(web: FlaskClient, served: Registry) -> None:
    digest = served.published()
    page = read(web, f"/artifacts/{digest}?view=benchmark")
    assert "Sign in to measure again" in page.text
    assert web.post(f"/artifacts/{digest}/measure", data={"repeat": "1"}).status_code == 401
