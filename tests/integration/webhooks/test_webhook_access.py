"""Who may have webhooks: over HTTP, and with `pt2hub webhook`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.server.container import Container
    from support.receiver import Receiver
    from support.registry import Registry
    from support.shell import Shell

PATH = "/api/v1/webhooks"


def bearer(container: Container, name: str, pattern: str) -> dict[str, str]:
    token = container.access.create_token(name, admin=True, patterns=[pattern])
    return {"Authorization": f"Bearer {token}"}


def hook(receiver: Receiver, models: str = "vision/*", **changes: Any) -> dict[str, Any]:
    return {"address": receiver.url(), "models": models, **changes}


def test_another_teams_webhook_does_not_exist(
    api: FlaskClient, container: Container, receiver: Receiver
) -> None:
    vision, nlp = bearer(container, "vision", "vision/*"), bearer(container, "nlp", "nlp/*")
    made = api.post(PATH, json=hook(receiver), headers=vision)
    assert (made.status_code, made.headers["Cache-Control"]) == (201, "no-store")
    document = made.get_json()
    own, secret = document["webhook"]["id"], document["secret"]
    assert secret.startswith("whsec_")
    delivery = api.post(f"{PATH}/{own}/test", headers=vision).get_json()["id"]
    listed = api.get(PATH, headers=vision)
    assert [item["id"] for item in listed.get_json()["webhooks"]] == [own]
    assert secret not in listed.get_data(as_text=True)
    assert api.get(PATH, headers=nlp).get_json() == {"webhooks": []}
    for method, suffix, body in (
        ("PATCH", "", {"enabled": False}),
        ("DELETE", "", None),
        ("POST", "/rotate", {}),
        ("POST", "/test", None),
        ("GET", "/deliveries", None),
        ("POST", f"/deliveries/{delivery}/redeliver", None),
    ):
        answers = [
            api.open(f"{PATH}/{number}{suffix}", method=method, json=body, headers=nlp)
            for number in (own, own + 1000)
        ]
        assert [answer.status_code for answer in answers] == [404, 404], suffix
        foreign, unknown = (answer.get_data(as_text=True) for answer in answers)
        assert foreign.replace(str(own), "N") == unknown.replace(str(own + 1000), "N")
    assert api.get(f"{PATH}/{own}/deliveries", headers=vision).get_json()["deliveries"][0]["id"] == delivery
    missing = api.post(f"{PATH}/{own}/deliveries/999/redeliver", headers=vision)
    assert (missing.status_code, missing.get_json()["code"]) == (404, "not_found")


def test_a_webhook_reaches_no_further_than_its_creator(
    api: FlaskClient, container: Container, receiver: Receiver
) -> None:
    vision = bearer(container, "vision", "vision/*")
    for models in ("*", "nlp/*", "*/resnet18"):
        refused = api.post(PATH, json=hook(receiver, models), headers=vision)
        assert (refused.status_code, refused.get_json()["code"]) == (403, "forbidden")
    publisher = container.access.create_token("ci")
    refused = api.post(PATH, json=hook(receiver), headers={"Authorization": f"Bearer {publisher}"})
    assert refused.status_code == 403
    assert api.get(PATH, headers=vision).get_json() == {"webhooks": []}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"address": "https://127.0.0.1/hook"}, "address_refused"),
        ({"address": "https://localhost/hook"}, "address_refused"),
        ({"address": "https://169.254.169.254/latest/meta-data"}, "address_refused"),
        ({"address": "http://192.0.32.10/hook"}, "address_refused"),
        ({"address": "ftp://192.0.32.10/hook"}, "invalid_input"),
        ({"address": "https://user:secret@192.0.32.10/hook"}, "invalid_input"),
        ({"address": "https://does-not-exist.invalid/hook"}, "receiver_unreachable"),
        ({"events": ["alias.teleported"]}, "invalid_input"),
        ({"models": "vision"}, "invalid_input"),
        ({"enabled": True}, "invalid_input"),
    ],
)
def test_what_is_wrong_with_a_webhook_has_a_code(
    api: FlaskClient, container: Container, receiver: Receiver, changes: dict[str, Any], code: str
) -> None:
    answer = api.post(PATH, json=hook(receiver) | changes, headers=bearer(container, "root", "*"))
    assert (answer.get_json()["code"], answer.get_json().get("hint") is not None) == (code, True)
    assert answer.status_code in {422, 503}
    assert "secret" not in answer.get_data(as_text=True)


@pytest.mark.usefixtures("sending")
def test_commands_manage_webhooks(
    served: Registry, shell: Shell, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PT2HUB_TOKEN", served.services.access.create_token("root", admin=True))
    assert "No webhooks yet" in shell("webhook", "ls").out
    made = shell("webhook", "create", receiver.url(), "--models", "vision/*", "--event", "alias.moved")
    assert (made.code, made.out.startswith("whsec_")) == (0, True)
    (line,) = [line for line in shell("webhook", "ls").lines if "vision/*" in line]
    number = line[0]
    assert line[1:] == [receiver.url(), "vision/*", "alias.moved", "enabled"]
    tested = shell("webhook", "test", number)
    assert (tested.code, "delivered" in tested.out, "200 status 200" in tested.out) == (0, True, True)
    assert [item.event["type"] for item in receiver.received] == ["ping"]
    code, page = shell.json("webhook", "deliveries", number)
    assert (code, page["deliveries"][0]["attempts"][0]["status"]) == (0, 200)
    again = shell("webhook", "redeliver", number, str(page["deliveries"][0]["id"]))
    assert again.out == f"Delivery {page['deliveries'][0]['id']} (ping) is queued again.\n"
    receiver.wait(lambda: len(receiver.received) == 2)
    assert shell("webhook", "rotate", number, "--overlap", "1h").out.startswith("whsec_")
    assert shell("webhook", "disable", number).out == f"Webhook {number} ({receiver.url()}) is disabled.\n"
    assert "disabled: Disabled by root" in shell("webhook", "ls").out
    refused = shell("webhook", "test", number)
    assert (refused.code, f"pt2hub webhook enable {number}" in refused.err) == (1, True)
    assert shell("webhook", "enable", number).code == 0
    receiver.answers["/hook"] = [500]
    assert shell("webhook", "test", number).code == 1
    assert shell("webhook", "rm", number).out == f"Webhook {number} ({receiver.url()}) was deleted.\n"
    assert shell("webhook", "rm", number).code == 1
