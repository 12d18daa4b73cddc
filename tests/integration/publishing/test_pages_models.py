"""Pages of models, versions and aliases, as browsers without scripts see them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.tokens import Actor
from pt2hub.wire.problems import from_dict
from support.gated import latency, version
from support.pages import Page
from support.registry import GPU, V3, V4

if TYPE_CHECKING:
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from support.registry import Registry

MODEL = "vision/resnet18"
PAGE = f"/models/{MODEL}"
HERE = {"Sec-Fetch-Site": "same-origin"}
NASTY = "<script>alert(1)</script> & </td>"


def read(client: FlaskClient, path: str, status: int = 200) -> Page:
    """A page, as it is read."""
    response = client.get(path)
    assert response.status_code == status, response.get_data(as_text=True)[:2000]
    return Page(response.get_data(as_text=True))


def send(client: FlaskClient, path: str, form: Page, **fields: str) -> TestResponse:
    """Sends a form of a page, with what its hidden fields hold."""
    kept = [(name, value) for name, value in form.fields if name == "seen"]
    data: dict[str, Any] = {name: [] for name, _ in kept} | fields
    for name, value in dict.fromkeys(kept):
        data[name].append(value)
    return client.post(path, data=data, headers=HERE)


def done(client: FlaskClient, response: TestResponse) -> Page:
    """The page that a form led to."""
    assert response.status_code == 303, Page(response.get_data(as_text=True)).text
    return read(client, response.location)


def again(response: TestResponse, status: int) -> Page:
    """The form that came back."""
    assert response.status_code == status
    return Page(response.get_data(as_text=True))


def versions(served: Registry, count: int, **changes: Any) -> None:
    """So many versions that can be pulled."""
    for number in range(count):
        served.published(
            served.submit(checks={"tolerance": 0.01 * (number + 1)}, **changes), code=b"%d" % number
        )


def test_a_models_page_shows_versions_targets_aliases_policy_and_speed(
    web: FlaskClient, served: Registry
) -> None:
    served.submit(targets=[V4, GPU])
    versions(served, 2)
    served.services.aliases.move(MODEL, "prod", 2, expected=None, reason=NASTY, by=Actor("ci"))
    check = {"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}
    served.services.policies.put(MODEL, {"checks": [check]}, revision=0, by=Actor("ada", admin=True))
    page = read(web, PAGE)
    for said in (
        "CPU v4 · torch 2.13",
        "prod is on version 2, set ",
        "Version 3 is newer and ready",
        "newest ready",
        NASTY,
        "5 %",
        "by ada",
        "10.5 ms",
        "batch 2",
        "speeds within 5 % on CPU v4",
    ):
        assert said in page.text
    html = web.get(PAGE).get_data(as_text=True)
    for named in (f'title="{V4}"', f'title="{GPU}"', ': queued"', ': succeeded"', 'aria-label="H100'):
        assert named in html
    assert {f"{PAGE}/versions/3", f"{PAGE}/aliases/prod", f"{PAGE}/versions/1#{GPU}"} <= set(page.links)
    assert "Sign in to set an alias" in page.text
    assert f"pt2hub pull {MODEL}@prod" in page.text
    assert "Version 3 is the newest ready version; a name without @ resolves to it." in page.text
    assert "is newer but not ready" not in page.text
    served.submit(checks={"tolerance": 0.5})
    assert "Version 4 is newer but not ready." in read(web, PAGE).text


def test_a_hundred_targets_are_eight_columns_and_a_count(web: FlaskClient, served: Registry) -> None:
    served.submit()
    served.sql(
        "INSERT INTO targets SELECT (jsonb_populate_record(first, jsonb_build_object("
        "'name', 'torch2.' || n || '-cpu-x86_64_v4'))).* FROM targets AS first, generate_series(20, 118) AS n"
        f" WHERE first.name = '{V4}'"
    )
    served.sql(
        "INSERT INTO builds SELECT (jsonb_populate_record(first, jsonb_build_object('id', left(id, -4) || 'n' || lpad(n::text, 3, '0'),"
        " 'target', 'torch2.' || n || '-cpu-x86_64_v4', 'position', n))).* FROM builds AS first, generate_series(20, 118) AS n"
    )
    html = web.get(PAGE).get_data(as_text=True)
    assert html.count('class="target-dot cell"') == 8
    assert 'title="92 more targets: 92 queued"' in html
    assert "CPU v4 · torch 2.118" in read(web, f"{PAGE}/versions/1").text


def test_a_roll_back_leads_to_the_checks_and_a_form_that_asks_for_a_reason(
    signed_in: FlaskClient, served: Registry
) -> None:
    versions(served, 2)
    move = served.services.aliases.move
    move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("ci"))
    assert "Roll back to" not in read(signed_in, PAGE).text
    move(MODEL, "prod", 2, expected=1, reason="canary passed", by=Actor("ci"))
    page = read(signed_in, PAGE)
    assert "Roll back to 1" in page.text
    link = f"{PAGE}/promotion?alias=prod&number=1"
    assert link in page.links
    form = read(signed_in, link)
    assert "would move: 2 -> 1" in form.text
    assert ("number", "1") in form.fields
    html = signed_in.get(f"{PAGE}/aliases/prod?action=rollback").get_data(as_text=True)
    part = html[html.index('id="rollback"') :]
    assert part.index("<details") < part.index(" open>") < part.index('name="number" value="1"')
    assert served.services.aliases.alias(MODEL, "prod").number == 2
    move(MODEL, "prod", 1, expected=2, reason="worse", by=Actor("ci"))
    assert "Roll back to" not in read(signed_in, PAGE).text + read(signed_in, f"{PAGE}/aliases/prod").text


def test_forms_offer_the_newest_ready_versions(signed_in: FlaskClient, served: Registry) -> None:
    versions(served, 2)
    served.submit(checks={"tolerance": 0.5})
    served.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("ci"))
    for path in (PAGE, f"{PAGE}/aliases/prod"):
        html = signed_in.get(path).get_data(as_text=True)
        assert '<option value="1">1 · prod · ' in html
        assert '<option value="2"' in html
        assert '<option value="3"' not in html
    page = read(signed_in, f"{PAGE}/aliases/prod")
    moved = send(signed_in, f"{PAGE}/aliases", page, alias="prod", choice="2", number="", reason="chosen")
    assert "prod is on version 2" in done(signed_in, moved).text
    typed = send(signed_in, f"{PAGE}/aliases", page, alias="live", choice="2", number="1", reason="typed")
    assert "live is on version 1" in done(signed_in, typed).text


def test_versions_are_filtered_and_sorted_by_speed(web: FlaskClient, served: Registry) -> None:
    for value in (10.0, 12.0, 8.0):
        version(served, latency(value))
    served.submit(checks={"tolerance": 0.5}, labels={"stage": "candidate"})
    served.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("ci"))
    assert listed(web, PAGE) == [4, 3, 2, 1]
    assert listed(web, f"{PAGE}?sort=speed") == [3, 1, 2]
    assert listed(web, f"{PAGE}?sort=speed&after=3") == [1, 2]
    assert listed(web, f"{PAGE}?sort=speed&alias=prod") == [1]
    assert listed(web, f"{PAGE}?state=ready") == [3, 2, 1]
    assert listed(web, f"{PAGE}?state=pending&label=stage%3Dcandidate") == [4]
    assert "No versions match." in read(web, f"{PAGE}?state=failed").text
    page = read(web, PAGE)
    for said in ("20.0 % slower", "20.0 % faster", "Version 3 is newer and ready, 20.0 % faster on"):
        assert said in page.text
    assert "No version has a label stge" in read(web, f"{PAGE}?label=stge", 422).text
    for wrong in ("sort=name", "state=good", "alias=7", "after=x"):
        read(web, f"{PAGE}?{wrong}", 422)


def test_a_derivation_is_recorded_by_a_form(signed_in: FlaskClient, served: Registry) -> None:
    versions(served, 2)
    place = f"{PAGE}/versions/2/lineage"
    assert "Record what version 2 is derived from" in read(signed_in, f"{PAGE}/versions/2").text
    form = {"relation": "fine-tuned", "parent": f"{MODEL}@1"}
    page = done(signed_in, signed_in.post(place, data=form, headers=HERE))
    assert "Lineage recorded." in page.text
    assert f"{MODEL}@1 fine-tuned" in page.text
    refused = again(signed_in.post(place, data=form | {"parent": f"{MODEL}@2"}, headers=HERE), 409)
    assert "cannot be derived from itself" in refused.text
    assert ("parent", f"{MODEL}@2") in refused.fields
    assert (
        "not found"
        in again(signed_in.post(place, data=form | {"parent": f"{MODEL}@9"}, headers=HERE), 404).text
    )


def test_a_version_lists_what_the_checks_of_production_say(web: FlaskClient, served: Registry) -> None:
    for value in (10.0, 12.0):
        version(served, latency(value))
    check = {"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}
    served.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("ci"))
    served.services.policies.put(MODEL, {"checks": [check]}, revision=0, by=Actor("ada", admin=True))
    page = read(web, f"{PAGE}/versions/2")
    for said in ("fails: ", "20 % worse", "at most 5 % worse", "20.0 % slower than version 1"):
        assert said in page.text


def listed(web: FlaskClient, path: str) -> list[int]:
    """Numbers of the versions in the list of a model's page."""
    html = web.get(path).get_data(as_text=True)
    return [int(number) for number in re.findall(r'<tr data-row="(\d+)">', html)]


def test_thousands_of_versions_are_read_page_by_page(web: FlaskClient, served: Registry) -> None:
    served.submit()
    served.sql(
        "INSERT INTO versions (model_id, number, identity, spec, pins) SELECT model_id, n, 'sha256:' || n, spec, pins"
        " FROM versions, generate_series(2, 3000) AS n WHERE number = 1"
    )
    first = read(web, PAGE)
    assert f"{PAGE}/versions/3000" in first.links
    (following,) = [link for link in first.links if "upto=" in link]
    second = read(web, following)
    assert f"{PAGE}/versions/2980" in second.links
    assert f"{PAGE}/versions/2981" not in second.links
    assert f"{PAGE}/versions/7" in read(web, f"{PAGE}?upto=7").links
    assert "Invalid version number" in read(web, f"{PAGE}?upto=-1", 422).text


def test_what_is_not_there_is_a_page_that_says_what_is_near(web: FlaskClient, served: Registry) -> None:
    served.submit()
    assert f"Did you mean {MODEL}" in read(web, "/models/vision/resnet81", 404).text
    assert "Its only version is 1" in read(web, f"{PAGE}/versions/{10**9 - 1}", 404).text
    assert "Page not found" in read(web, f"{PAGE}/versions/{10**12}", 404).text
    assert "@prod not found" in read(web, f"{PAGE}/aliases/prod", 404).text
    assert "invalid model name" in read(web, "/models/VISION/x", 422).text


def test_a_version_shows_gate_provenance_spec_and_how_to_pull_it(web: FlaskClient, served: Registry) -> None:
    row = {"point": "example.0", "threads": 2, "group": None, "output": 0, "eager_error": 0.0}
    report = {
        "result": "passed",
        "relative_error": 2e-7,
        "tolerance": 1e-3,
        "comparisons": [{**row, "error": 1e-7, "allowed": 1e-3, "signal": 0.5}, {"error": "NaN"}],
        "no_power": [],
        "notes": [NASTY],
    }
    served.worker("w1")
    view = served.submit(
        targets=[V4, V3], source={"factory": "timm:create_model", "kwargs": {"model_name": NASTY}}
    )
    digest = served.published(view, verification=report)
    page = read(web, f"{PAGE}/versions/1")
    for said in (
        "partial",
        "2e-07 of the signal",
        "2 comparisons",
        "output 0 at example inputs, 2 threads",
        NASTY,
        "in a sandbox",
        "2.13.0+cpu",
        f"pt2hub pull {MODEL}@1",
        f"{MODEL}@{digest}",
        "10.5 ms",
        "torchvision 0.28.0",
        "no worker ever offered this target",
    ):
        assert said in page.text
    assert f"/artifacts/{digest}" in page.links
    assert "Published." in read(web, f"{PAGE}/versions/1?done=published").text
    assert "<b>" not in read(web, f"{PAGE}/versions/1?done=<b>").text


def test_a_version_leads_to_the_nearest_ones_that_are_there(web: FlaskClient, served: Registry) -> None:
    for number in range(1, 5):
        served.submit(checks={"tolerance": number / 10})
        for build in served.services.publish.version(MODEL, number).builds:
            served.services.builds.cancel(build.id, by=Actor("mary"))
    for number in (2, 3):
        served.services.deletion.version(MODEL, number, by=Actor("root", admin=True), reason="old")
    text = read(web, f"{PAGE}/versions/1").links
    assert [link for link in text if link.startswith(f"{PAGE}/versions/")] == [f"{PAGE}/versions/4"]
    assert f"{PAGE}/versions/1" in read(web, f"{PAGE}/versions/4").links


def test_a_failed_build_is_explained_on_its_versions_page(web: FlaskClient, served: Registry) -> None:
    view = served.submit()
    error = {"code": "tolerance_missed", "message": NASTY, "hint": "Raise checks.tolerance.", "kind": "usage"}
    claim = served.claim(view.builds[0].id)
    served.services.builds.fail(claim, from_dict(error))
    page = read(web, f"{PAGE}/versions/1")
    assert NASTY in page.text
    assert "Raise checks.tolerance." in page.text
    assert f"pt2hub retry {view.builds[0].id}" in page.text
    assert "Its build failed." in page.text


def test_a_version_without_artifacts_says_whether_any_can_still_come(
    web: FlaskClient, served: Registry
) -> None:
    (build,) = served.submit().builds
    assert "appears here as soon as a build" in read(web, f"{PAGE}/versions/1").text
    served.services.builds.cancel(build.id, by=Actor("mary"))
    assert "Its build was cancelled." in read(web, f"{PAGE}/versions/1").text
    served.services.builds.retry(build.id, by=Actor("mary"))
    assert "appears here as soon as a build" in read(web, f"{PAGE}/versions/1").text


def test_only_where_a_policy_may_refuse_it_an_admin_is_asked_whether_to_force_a_move(
    signed_in: FlaskClient, served: Registry
) -> None:
    version(served, latency(10.0))
    page = read(signed_in, PAGE)
    assert "Set alias" in page.text
    assert "Force the move" not in page.text
    check = {"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}
    served.services.policies.put(MODEL, {"checks": [check]}, revision=0, by=Actor("ada", admin=True))
    assert "Force the move" in read(signed_in, PAGE).text


def test_an_alias_is_made_moved_put_back_and_removed_by_forms(
    signed_in: FlaskClient, served: Registry
) -> None:
    versions(served, 2)
    moves = f"{PAGE}/aliases"
    made = send(signed_in, moves, read(signed_in, PAGE), alias="prod", number="1", reason=f"first {NASTY}")
    page = done(signed_in, made)
    assert "Alias created." in page.text
    assert f"by tester: first {NASTY}" in page.text
    page = done(signed_in, send(signed_in, moves, page, alias="prod", number="2", reason="canary passed"))
    assert "Alias moved." in page.text
    assert "Roll back to version 1" in page.text
    page = done(signed_in, send(signed_in, moves, page, alias="prod", number="1", reason="latency rose"))
    assert [(move.before, move.after) for move in served.services.aliases.alias(MODEL, "prod").history] == [
        (2, 1),
        (1, 2),
        (None, 1),
    ]
    page = done(signed_in, send(signed_in, f"{moves}/prod/remove", page, reason="retired"))
    assert "prod is on no version, removed " in page.text
    assert served.services.aliases.aliases(MODEL).aliases == ()
    page = done(signed_in, send(signed_in, moves, page, alias="prod", number="2", reason="back"))
    assert "prod is on version 2" in page.text


def test_who_moves_an_alias_that_moved_meanwhile_sees_who_did_and_keeps_what_was_typed(
    signed_in: FlaskClient, served: Registry
) -> None:
    versions(served, 3)
    aliases = served.services.aliases
    aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("ci"))
    page = read(signed_in, f"{PAGE}/aliases/prod")
    aliases.move(MODEL, "prod", 2, expected=1, reason="mine was quicker", by=Actor("ada"))
    fields = {"alias": "prod", "number": "3", "reason": "typed at length"}
    page = again(send(signed_in, f"{PAGE}/aliases", page, **fields), 409)
    for said in (
        'moved by token "ada" at',
        "mine was quicker",
        "prod is on version 2 now",
        "typed at length",
    ):
        assert said in page.text
    assert ("number", "3") in page.fields
    done(signed_in, send(signed_in, f"{PAGE}/aliases", page, **fields))
    assert aliases.alias(MODEL, "prod").number == 3


def test_wrong_input_comes_back_with_what_was_typed(signed_in: FlaskClient, served: Registry) -> None:
    versions(served, 1)
    page = read(signed_in, PAGE)
    for fields, said in (
        ({"alias": "prod", "number": "one", "reason": "x"}, "Invalid version number"),
        ({"alias": "prod", "number": "7", "reason": "x"}, "not found"),
        ({"alias": "7", "number": "1", "reason": "x"}, "invalid alias"),
        ({"alias": "prod", "number": "1", "reason": " "}, "The reason is missing"),
        ({"alias": "prod", "number": "1", "reason": "x" * 501}, "The reason is too long"),
    ):
        response = send(signed_in, f"{PAGE}/aliases", page, **fields)
        told = again(response, response.status_code)
        assert 400 <= response.status_code < 500
        assert said in told.text
        assert {("alias", fields["alias"]), ("number", fields["number"])} <= set(told.fields)
    assert served.services.aliases.aliases(MODEL).aliases == ()


def test_a_gate_that_refuses_shows_what_it_compared_and_an_admin_may_force(
    signed_in: FlaskClient, served: Registry
) -> None:
    version(served, latency(10.0))
    version(served, latency(12.0))
    check = {"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}
    served.services.policies.put(MODEL, {"checks": [check]}, revision=0, by=Actor("ada", admin=True))
    served.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("ci"))
    fields = {"alias": "prod", "number": "2", "reason": "it mends a wrong result"}
    page = again(send(signed_in, f"{PAGE}/aliases", read(signed_in, PAGE), **fields), 409)
    for said in (
        "Policy results",
        V4,
        "10 ms",
        "12 ms",
        "20 % worse",
        "at most 5 % worse",
        "Force the move",
    ):
        assert said in page.text
    page = done(signed_in, send(signed_in, f"{PAGE}/aliases", page, **fields, force="1"))
    assert "although the policy refused it" in page.text
    assert "forced past 1 failed check" in page.text


def test_what_a_policy_says_to_a_move_that_it_lets_pass_is_told_after_it(
    signed_in: FlaskClient, served: Registry
) -> None:
    version(served, latency(10.0))
    version(served, latency(10.1))
    check = {"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}
    served.services.policies.put(MODEL, {"checks": [check]}, revision=0, by=Actor("ada", admin=True))
    fields = {"alias": "prod", "number": "1", "reason": "first"}
    page = done(signed_in, send(signed_in, f"{PAGE}/aliases", read(signed_in, PAGE), **fields))
    assert "the policy had nothing to compare with" in page.text
    moved = send(signed_in, f"{PAGE}/aliases", page, **fields | {"number": "2"})
    assert "at most 5 % worse is allowed" in done(signed_in, moved).text
    assert "is allowed" not in read(signed_in, f"{PAGE}/aliases/prod").text


def test_who_only_reads_sees_no_form_and_can_send_none(web: FlaskClient, served: Registry) -> None:
    versions(served, 1)
    served.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("ci"))
    page = read(web, f"{PAGE}/aliases/prod")
    assert "Sign in to move prod" in page.text
    assert not [name for name, _ in page.fields if name in ("reason", "seen")]
    response = web.post(f"{PAGE}/aliases/prod/remove", data={"reason": "x", "seen": "prod=1"}, headers=HERE)
    assert response.status_code == 401
    assert served.services.aliases.alias(MODEL, "prod").number == 1


@pytest.mark.parametrize("path", [PAGE, f"{PAGE}/versions/1", f"{PAGE}/aliases/prod"])
def test_a_page_holds_nothing_that_the_policy_forbids(
    signed_in: FlaskClient, served: Registry, path: str
) -> None:
    versions(served, 1)
    served.services.aliases.move(MODEL, "prod", 1, expected=None, reason=NASTY, by=Actor("ci"))
    html = signed_in.get(path).get_data(as_text=True)
    Page(html)
    assert html.count("<h1") == 1
    assert "<script>alert" not in html
    assert f"{MODEL}" in html[html.index("<title>") : html.index("</title>")]


def test_a_version_is_promoted_from_its_page_also_where_no_alias_is_in_production_yet(
    web: FlaskClient, served: Registry
) -> None:
    served.published()
    page = web.get(f"/models/{MODEL}/versions/1").get_data(as_text=True)
    there = f"/models/{MODEL}/promotion?alias=prod&number=1"
    assert "Sign in to promote" in page
    assert "The model has no production alias yet." in page
    found = web.get(there).get_data(as_text=True)
    assert "passes" in found


def test_a_version_says_at_the_top_what_it_is_and_a_model_leads_to_its_card_and_licence(
    web: FlaskClient, served: Registry
) -> None:
    card = (
        b"---\nlicense: mit\n---\n# ResNet-18\n\n![badge](b.png)\n\nIt labels **product** pictures.\nFast.\n"
    )
    files = {name: served.blob(data).digest for name, data in {"README.md": card, "LICENSE": b"MIT"}.items()}
    versions(served, 1, files=files, labels={"license": "MIT"})
    served.published(served.submit(checks={"tolerance": 0.5}), code=b"two")
    served.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("t"))
    shown = read(web, f"{PAGE}/versions/1")
    assert shown.text.index("It labels product pictures. Fast.") < shown.text.index("Load it")
    assert {"#card", "#files"} <= set(shown.links)
    model = read(web, PAGE)
    assert "LicenceMIT" in model.text.replace(" ", "")
    assert {f"{PAGE}/versions/1#card", f"{PAGE}/versions/1#files"} <= set(model.links)
    served.services.catalog.describe(MODEL, "Labels pictures.", by=Actor("t"))
    assert "Labels pictures." in read(web, f"{PAGE}/versions/1").text
