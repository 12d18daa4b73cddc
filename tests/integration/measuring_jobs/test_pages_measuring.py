"""Pages of a version that is ready and not measured: they say so, and lead to the measuring job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.tokens import Actor
from pt2hub.errors import InvalidInput
from support.gated import latency, version
from support.pages import Page
from support.registry import V4
from support.remeasuring import measure_now, published_unmeasured, the_job

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.domain.digests import Digest
    from support.registry import Registry

MODEL = "vision/resnet18"


def read(web: FlaskClient, path: str) -> str:
    """The text of a page."""
    response = web.get(path)
    assert response.status_code == 200, response.get_data(as_text=True)[:2000]
    return Page(response.get_data(as_text=True)).text


def addresses(served: Registry, artifact: Digest) -> dict[str, str]:
    """Every page that says whether an artifact is measured."""
    (build,) = served.services.publish.version(MODEL, 1).builds
    return {
        "front": "/",
        "model": f"/models/{MODEL}",
        "version": f"/models/{MODEL}/versions/1",
        "artifact": f"/artifacts/{artifact}",
        "build": f"/builds/{build.id}",
        "steps": f"/builds/{build.id}/steps",
        "builds": "/builds",
    }


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("waiting", "waiting to be measured"),
        ("measuring", "measuring"),
        ("failed", "measuring failed"),
        ("not_measured", "not measured yet"),
    ],
)
def test_every_page_says_where_the_measurement_stands(
    web: FlaskClient, served: Registry, state: str, words: str
) -> None:
    artifact = published_unmeasured(served)
    job = the_job(served, artifact)
    if state == "not_measured":
        served.services.builds.cancel(job, by=Actor("ada"))
    elif state != "waiting":
        claim = served.claim(job)
        if state == "failed":
            served.services.builds.fail(claim, InvalidInput("the device is gone"))
    for name, address in addresses(served, artifact).items():
        assert words in read(web, address), name
    page = web.get(f"/models/{MODEL}/versions/1").get_data(as_text=True)
    assert f'href="/builds/{job}"' in page
    text = Page(page).text
    assert f"These artifacts are verified and can be pulled, but are not measured yet: {V4}" in text
    assert ("the device is gone" in text.lower()) == (state == "failed")
    command = f"To measure it, run pt2hub measure {MODEL}@1 --target {V4}."
    assert (command in text) == (state in ("failed", "not_measured"))
    first = f"{words[:1].upper()}{words[1:]}, verified against the model"
    assert first in read(web, f"/artifacts/{artifact}")
    assert "Not measured yet." in read(web, f"/artifacts/{artifact}?view=benchmark")


def test_a_version_that_is_measured_needs_no_such_words(web: FlaskClient, served: Registry) -> None:
    artifact = published_unmeasured(served)
    measure_now(served, the_job(served, artifact))
    pages = addresses(served, artifact)
    for name in ("model", "version", "artifact", "build", "builds"):
        text = read(web, pages[name])
        assert "waiting to be measured" not in text, name
        assert "not measured yet" not in text, name
    assert "10 ms" in read(web, pages["version"])
    again = the_job(served, artifact)
    assert f"to be measured again in job {again}" in read(web, pages["artifact"])


def test_a_form_whose_check_lacks_figures_leads_to_the_job(signed_in: FlaskClient, served: Registry) -> None:
    version(served, latency(10.0))
    second = published_unmeasured(
        served, served.submit(checks={"tolerance": 0.01}), code=b"second", key="second"
    )
    job = the_job(served, second)
    check = {"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}
    served.services.policies.put(MODEL, {"checks": [check]}, revision=0, by=Actor("ada", admin=True))
    served.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("ci"))
    form = Page(signed_in.get(f"/models/{MODEL}").get_data(as_text=True))
    kept = [(name, value) for name, value in form.fields if name == "seen"]
    fields = {"alias": "prod", "number": "2", "reason": "faster"}
    response = signed_in.post(
        f"/models/{MODEL}/aliases", data={**dict(kept), **fields}, headers={"Sec-Fetch-Site": "same-origin"}
    )
    assert response.status_code == 409
    page = response.get_data(as_text=True)
    assert f'href="/builds/{job}"' in page
    assert f"pt2hub alias set {MODEL}@2 prod --wait" in Page(page).text
