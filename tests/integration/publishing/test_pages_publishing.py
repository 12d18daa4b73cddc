"""Publishing from a page: what a spec would do is told before, and what is wrong stands beside its line."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.tokens import SERVER
from pt2hub.errors import Pt2hubError
from pt2hub.server.pages.publishing.publish import EXAMPLE
from pt2hub.wire.documents import parse_document, write_document
from pt2hub.wire.positions import find_positions
from pt2hub.wire.responses import WaitReason
from support.pages import Page
from support.registry import GPU, V3, V4, a_spec

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from support.registry import Registry

HERE = {"Sec-Fetch-Site": "same-origin"}
DIGEST = f"sha256:{'0' * 64}"


def send(client: FlaskClient, address: str, spec: str, **more: str) -> Any:
    return client.post(address, data={"spec": spec, **more}, headers=HERE)


def told(client: FlaskClient, **changes: Any) -> str:
    return Page(send(client, "/publish/check", write_document(a_spec(**changes))).text).text


def typed(page: str) -> str:
    area = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    assert area
    return html.unescape(area[1])


def test_what_a_spec_would_do_is_told_while_it_is_written(registry: Registry) -> None:
    check = registry.services.publish.check
    registry.worker("w1")
    new = check(a_spec(targets=["auto"]))
    assert (new.number, new.created, new.first, new.queued) == (1, True, True, 1)
    assert registry.sql("SELECT count(*) FROM models") == [(0,)]

    registry.published(registry.submit())
    same = check(a_spec(targets=["auto"]))
    assert (same.number, same.created, same.queued) == (1, False, 0)
    assert same.targets[0].state == "succeeded"

    more = check(a_spec(targets=[V4, GPU]))
    assert (more.created, more.queued, more.targets[1].state) == (False, 1, None)
    assert more.targets[1].wait == WaitReason("never_offered")
    registry.silence("w1")
    other = check(a_spec(checks={"tolerance": 0.01}))
    assert (other.number, other.created, other.first) == (2, True, False)
    assert other.targets[0].wait == WaitReason("no_live_worker")


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "Vision"},
        {"source": {"factory": "os:system"}},
        {"targets": ["auto"]},
        {"targets": ["torch2"]},
        {"targets": [V4, V4]},
        {"targets": [V4, "torch0.0-cpu-x86_64"]},
        {"targets": [{"target": V4, "dtype": "bfloat16"}]},
        {"weights": DIGEST},
        {"dims": {}},
    ],
)
def test_what_publishing_refuses_is_refused_before_in_the_same_words(
    registry: Registry, changes: dict[str, Any]
) -> None:
    registry.submit(targets=[V4])
    with pytest.raises(Pt2hubError) as before:
        registry.services.publish.check(a_spec(**changes))
    with pytest.raises(Pt2hubError) as after:
        registry.submit(**changes)
    assert before.value.as_dict() == after.value.as_dict()


def test_the_spec_of_a_version_can_be_published_again(registry: Registry) -> None:
    given = a_spec(
        targets=[{"target": V4, "memory_format": "channels_last"}, V3],
        source={
            "factory": "torchvision.models:resnet18",
            "kwargs": {"eps": 1e-5, "name": "1e-3", "no": "no"},
        },
    )
    registry.services.publish.submit(given, by=SERVER)
    text = write_document(registry.services.publish.document("vision/resnet18", 1))
    assert text.startswith("model: vision/resnet18\nsource:\n  factory: torchvision.models:resnet18\n")
    preview = registry.services.publish.check(parse_document(text.encode()))
    assert (preview.created, preview.queued) == (False, 0)
    assert [item.target for item in preview.targets] == [V4, V3]


def test_a_spec_is_published_from_the_page(signed_in: FlaskClient) -> None:
    assert "It creates the model and its first version, vision/resnet18@1" in told(signed_in)
    answer = send(signed_in, "/publish", write_document(a_spec()), priority="3")
    assert (answer.status_code, answer.headers["Location"]) == (
        303,
        "/models/vision/resnet18/versions/1?done=published",
    )
    assert "It is the same as vision/resnet18@1" in told(signed_in)
    again = send(signed_in, "/publish", json.dumps(a_spec(), indent="\t"))
    assert again.headers["Location"].endswith("/1?done=published-again")
    taken = signed_in.get("/publish?from=vision/resnet18@1")
    assert parse_document(typed(taken.text).encode())["model"] == "vision/resnet18"
    assert "It is the same as" in Page(taken.text).text


def test_a_wrong_spec_comes_back_as_it_was_typed_with_what_is_wrong_at_its_line(
    signed_in: FlaskClient,
) -> None:
    text = write_document(a_spec(model="</textarea><script>alert(1)</script>")) + "wieghts: 1\n"
    answer = send(signed_in, "/publish", text, priority="5")
    assert answer.status_code == 422
    assert "<script>alert" not in answer.text
    assert typed(answer.text) == text
    assert ("priority", "5") in Page(answer.text).fields
    said = Page(answer.text).text
    assert "line 1 model invalid format" in said
    assert f"line {len(text.splitlines())} wieghts unknown field" in said
    broken = Page(send(signed_in, "/publish/check", "model: a/b\ninputs: [1, 2\nweights: 3").text).text
    assert "got ':'. line 3 column 8 Correct" in broken
    late = send(signed_in, "/publish", write_document(a_spec()), priority="soon")
    assert (late.status_code, "Invalid priority 'soon'" in Page(late.text).text) == (422, True)


@pytest.mark.parametrize("origin", ["nobody/nothing@1", "vision/resnet18", "<script>", "a/b@sha256:123456"])
def test_an_origin_that_is_none_is_explained_and_stays(signed_in: FlaskClient, origin: str) -> None:
    answer = signed_in.get("/publish", query_string={"from": origin})
    assert answer.status_code in {404, 422}
    assert ("from", origin) in Page(answer.text).fields


def test_the_example_is_right_wherever_a_worker_lives(registry: Registry) -> None:
    registry.worker("w1")
    assert registry.services.publish.check(parse_document(EXAMPLE.encode())).created


def test_who_did_not_sign_in_is_led_to_and_shown_no_form(web: FlaskClient) -> None:
    page = Page(web.get("/publish?from=a/b@1").text)
    assert "/sign-in?to=/publish?from%3Da/b@1" in page.links
    assert "priority" not in {name for name, _ in page.fields}
    assert web.post("/publish/check", data={"spec": EXAMPLE}, headers=HERE).status_code == 401


@pytest.mark.parametrize(
    ("path", "line"),
    [("a", 1), ("b[1].c", 5), ("b[1]", 4), ("b[7]", 2), ("d.e.f", 6), ("nowhere", None), ("", None)],
)
def test_fields_are_found_in_the_text(path: str, line: int | None) -> None:
    text = "a: 1\nb:\n- x\n- y: 1\n  c: 2\nd.e: {f: 1}\n"
    found = find_positions(text, [path]).get(path)
    assert (found and found[0]) == line


def test_targets_of_live_workers_are_chosen_in_place_of_those_of_the_spec(
    signed_in: FlaskClient, served: Registry
) -> None:
    spec = write_document(a_spec(targets=[V3]))
    assert "No worker is live now" in signed_in.get("/publish").text
    served.worker("w1")
    form = signed_in.get("/publish").text
    assert f'name="target" value="{V4}"' in form
    assert f'value="{GPU}"' not in form
    checked = send(signed_in, "/publish", spec, check="1", target=V4).text
    assert re.search(rf'value="{V4}" checked', checked)
    assert f'title="{V4}"' in checked
    assert typed(checked).strip() == spec.strip()
    assert "unknown target" in send(signed_in, "/publish", spec, target="nowhere").text
    there = send(signed_in, "/publish", spec, target=V4)
    assert there.status_code == 303
    (build,) = served.services.publish.version("vision/resnet18", 1).builds
    assert build.target == V4
    page = signed_in.get(there.location).text
    assert 'data-open="true"' in page
    assert f"/builds/{build.id}" in page
