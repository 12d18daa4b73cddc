"""The debug logs of a compile by command, API and page, after a reindex, and what becomes of an archive that lies."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain import artifacts as oci
from pt2hub.domain.debug_logs import DEBUG_LOGS, MAX_STORED_BYTES
from support.pages import Page
from support.registry import V4, a_spec

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.domain.digests import Digest
    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"
LOGS = {
    "fusion.txt": "fusing op0 with op1\ncannot fuse op1 with op2: memory deps did not match\n",
    "graph.txt": "",
}


def zipped(files: dict[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def published(
    served: Registry, data: bytes | None, *, seed: int = 0, layer: str = oci.DEBUG_LOGS_TYPE
) -> Digest:
    """An artifact of the one program, with debug logs if there are any."""
    version = served.submit(source={"factory": "timm:create_model", "seed": seed})
    contents = [(oci.DEBUG_LOGS_TYPE, data)] if data is not None else []
    return served.published_with(*contents, version=version, layer=layer)


def read(web: FlaskClient, address: str) -> Page:
    response = web.get(address)
    html = response.get_data(as_text=True)
    assert response.status_code == 200, html
    assert "<script>alert" not in html
    return Page(html)


def test_command_api_and_page_show_a_log(shell: Shell, web: FlaskClient, served: Registry) -> None:
    digest = published(served, zipped(LOGS))

    found = shell("kernels", f"{MODEL}@1", "--debug", "fusion")
    assert (found.code, found.err, found.out) == (0, "", LOGS["fusion.txt"])
    told = json.loads(shell("kernels", f"{MODEL}@1", "--debug", "fusion", "--json").out)
    assert told == web.get(f"/api/v1/artifacts/{digest}/debug/fusion").get_json()
    assert (told["kind"], told["target"], told["text"]) == ("fusion", V4, LOGS["fusion.txt"])
    assert (told["artifact"], told["compiled_for"]) == (digest, digest)
    whole = web.get(f"/api/v1/artifacts/{digest}/debug").get_json()
    assert whole["logs"] == [
        {"kind": "fusion", "bytes": len(LOGS["fusion.txt"])},
        {"kind": "graph", "bytes": 0},
    ]

    page = read(web, f"/artifacts/{digest}")
    link = f"/artifacts/{digest}/debug"
    assert link in page.links
    assert "Debug logs of the compile" in read(web, f"/artifacts/{digest}?view=raw").text
    logs = read(web, link)
    assert "cannot fuse op1 with op2" in logs.text
    assert DEBUG_LOGS["graph"] in logs.text
    assert f"{link}?file=graph.txt" in logs.links
    assert "Lines 1 to 1 of 1" in read(web, f"{link}?file=graph.txt").text
    assert "Lines 2 to 2 of 2" in read(web, f"{link}?file=fusion.txt&from=2").text


def test_reused_code_has_the_logs_of_the_artifact_that_it_was_compiled_for(
    web: FlaskClient, served: Registry
) -> None:
    first = published(served, zipped(LOGS))
    second = published(served, None, seed=1)
    assert web.get(f"/api/v1/artifacts/{second}/debug/fusion").get_json()["compiled_for"] == first
    page = read(web, f"/artifacts/{second}/debug")
    assert "these are the logs of its compile" in page.text
    assert f"/artifacts/{first}" in page.links


def test_logs_come_back_with_the_index(web: FlaskClient, served: Registry) -> None:
    digest = published(served, zipped(LOGS))
    served.sql("TRUNCATE models, versions, builds, artifacts, referrers CASCADE")
    served.services.reindex.reindex()
    assert web.get(f"/api/v1/artifacts/{digest}/debug/fusion").get_json()["text"] == LOGS["fusion.txt"]


def test_what_is_not_recorded_has_a_code_and_says_what_to_do(
    shell: Shell, web: FlaskClient, served: Registry
) -> None:
    digest = published(served, None)
    for path in ("debug", "debug/fusion"):
        answer = web.get(f"/api/v1/artifacts/{digest}/{path}")
        assert (answer.status_code, answer.get_json()["code"]) == (404, "not_recorded")
        assert "compile: {debug: [" in answer.get_json()["hint"]
    found = shell("kernels", f"{MODEL}@1", "--debug", "fusion")
    assert found.code != 0
    assert f"No debug logs are recorded for the artifact {digest}" in found.err
    assert "compile: {debug: [output_code, fusion, schedule, graph]}" in found.err
    assert "No debug logs." in read(web, f"/artifacts/{digest}/debug").text
    assert f"/artifacts/{digest}/debug" not in read(web, f"/artifacts/{digest}").links


def test_a_kind_that_was_not_asked_for_names_those_that_were(shell: Shell, served: Registry) -> None:
    published(served, zipped(LOGS))
    found = shell("kernels", f"{MODEL}@1", "--debug", "schedule")
    assert "not_recorded" in found.err
    assert "No schedule log is recorded" in found.err
    assert "only fusion, graph" in found.err
    assert "compile: {debug: [schedule]}" in found.err


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("fuson", "did you mean fusion?"),
        ("Graph", "did you mean graph?"),
        ("bytecode", "There are output_code"),
    ],
)
def test_an_unknown_kind_is_refused_with_a_suggestion(
    shell: Shell, web: FlaskClient, served: Registry, kind: str, said: str
) -> None:
    digest = published(served, zipped(LOGS))
    answer = web.get(f"/api/v1/artifacts/{digest}/debug/{kind}")
    assert (answer.status_code, answer.get_json()["code"]) == (422, "invalid_input")
    found = shell("kernels", f"{MODEL}@1", "--debug", kind)
    assert f"Unknown debug log '{kind}'" in found.err
    assert said in found.err


@pytest.mark.parametrize("kind", ["", "a/b", "../x", "%", "\x1b[2J", "x" * 5000, "é"])
def test_a_kind_that_is_no_name_is_an_error_with_a_code(shell: Shell, served: Registry, kind: str) -> None:
    published(served, zipped(LOGS))
    found = shell("kernels", f"{MODEL}@1", "--debug", kind)
    assert (found.code, found.out) == (1, "")
    assert found.err.startswith("pt2hub: debug: Unknown debug log ")
    assert "[invalid_input]" in found.err
    assert len(found.err) < 300
    assert "\x1b" not in found.err


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"no zip", "zip"),
        (zipped({f"{n}.txt": "x" for n in range(5)}), "members"),
        (zipped({"../fusion.txt": "x"}), "name"),
        (zipped({"fusion.txt": b"x" * (MAX_STORED_BYTES + 1)}), "larger than the maximum"),
        (b" " * (5 * MAX_STORED_BYTES), "more than the"),
    ],
)
def test_an_archive_that_lies_is_refused_and_the_page_says_so(
    web: FlaskClient, served: Registry, data: bytes, said: str
) -> None:
    digest = published(served, data)
    answer = web.get(f"/api/v1/artifacts/{digest}/debug/fusion").get_json()
    assert answer["code"] in {"corrupt_archive", "too_large"}
    assert said in answer["detail"]
    page = read(web, f"/artifacts/{digest}/debug")
    assert "The debug logs cannot be shown: " in page.text


def test_an_archive_of_another_type_is_refused(web: FlaskClient, served: Registry) -> None:
    digest = published(served, zipped(LOGS), layer=oci.SOURCES_TYPE)
    assert "contains no debug logs" in read(web, f"/artifacts/{digest}/debug").text


def test_hostile_text_stays_text_and_long_lines_are_cut(
    shell: Shell, web: FlaskClient, served: Registry
) -> None:
    hostile = "<script>alert(1)</script>\x1b[2J\u202e\x00" + "y" * 200_000 + "\n" + "\xff\ufffd\ud7ff\n" * 3
    digest = published(served, zipped({"graph.txt": hostile}))
    page = read(web, f"/artifacts/{digest}/debug")
    assert "<script>alert(1)</script>" in page.text
    assert "more)" in page.text
    assert len(page.text) < 10_000
    out = shell("kernels", f"{MODEL}@1", "--debug", "graph").out
    assert "alert(1)" in out
    assert not {"\x1b", "\u202e", "\x00"} & set(out)
    assert len(out) > 200_000


def test_a_submission_says_where_its_builds_have_succeeded_and_record_nothing(served: Registry) -> None:
    spec: dict[str, Any] = {"compile": {"debug": ["graph"]}}
    first = served.submit(**spec)
    assert first.notes == ()
    assert first.settings["compile"] == {"debug": ["graph"]}
    served.published(first)
    again = served.submit(**spec)
    assert (again.created, again.number) == (False, 1)
    (note,) = again.notes
    assert note.startswith(f"{V4}: compile.debug records nothing, because the build has succeeded")
    assert served.services.publish.check(a_spec(**spec)).notes == again.notes
    assert served.services.publish.check(a_spec()).settings == ("compile.debug",)
    document = served.services.publish.document(MODEL, 1)
    assert document["compile"] == {"debug": ["graph"]}


def test_an_attempt_has_the_debug_logs_of_the_latest_submission(served: Registry) -> None:
    build = served.submit(compile={"options": {"shape_padding": True}}).builds[0].id
    served.submit(compile={"options": {"shape_padding": True}, "debug": ["fusion"]})
    claim = served.claim(build)
    assert claim.spec["compile"] == {"options": {"shape_padding": True}, "debug": ["fusion"]}
    assert claim.version_spec["compile"] == {"options": {"shape_padding": True}}
