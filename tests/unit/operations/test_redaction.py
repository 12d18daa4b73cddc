"""Secrets are taken out of texts, wherever a model or a library prints them."""

from __future__ import annotations

import pytest

from pt2hub.system.redaction import HIDDEN, Redactor, known_secrets, processor

TOKEN = "pt2_" + "a2b3c4d5" * 6 + "e6f7_abcdefg"
ENVIRON = {
    "PT2HUB_TOKEN": TOKEN,
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "AWS_SESSION_TOKEN": "FwoGZXIvYXdzEBYaDH",
    "PT2HUB_DATABASE_URL": "postgresql://hub:corr%40ct-horse@db.internal:5432/hub",
    "REPLICA_URL": "postgresql:///hub?host=replica&password=battery-of-horses",
    "PGPASSWORD": "battery-staple",
    "PT2HUB_BUILD_ENV": "CXX=g++-13 HF_TOKEN=hf_abcdefghijkl",
    "PATH": "/usr/bin",
    "HOME": "/root",
}

# What a model that prints everything it finds would print, and what is left of it.
PRINTED = {
    f"token {TOKEN} end": f"token {HIDDEN} end",
    "key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": f"key {HIDDEN}",
    "key wJalrXUtnFEMI%2FK7MDENG%2FbPxRfiCYEXAMPLEKEY": f"key {HIDDEN}",
    "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE": f"AWS_ACCESS_KEY_ID={HIDDEN}",
    "session FwoGZXIvYXdzEBYaDH.": f"session {HIDDEN}.",
    "replica battery-of-horses": f"replica {HIDDEN}",
    "password corr@ct-horse, as written corr%40ct-horse": f"password {HIDDEN}, as written {HIDDEN}",
    "PGPASSWORD='battery-staple'": f"PGPASSWORD='{HIDDEN}'",
    "{'HF_TOKEN': 'hf_abcdefghijkl', 'PATH': '/usr/bin'}": f"{{'HF_TOKEN': '{HIDDEN}', 'PATH': '/usr/bin'}}",
}

# Secrets of others, known by their form alone.
FORMS = {
    "postgresql://me:s3cr%24t@db/x": f"postgresql://me:{HIDDEN}@db/x",
    "postgresql://me:s3cr@t@db/x": f"postgresql://me:{HIDDEN}@db/x",
    "postgresql:///x?user=me&password=s3cret&host=db": f"postgresql:///x?user=me&password={HIDDEN}&host=db",
    "dbname=x password='s3cret' host=db": f"dbname=x password='{HIDDEN}' host=db",
    "pip install git+https://ghp_0123456789abcdefghij@github.com/x/y": (
        f"pip install git+https://{HIDDEN}@github.com/x/y"
    ),
    "redis://:hunter2@cache:6379": f"redis://:{HIDDEN}@cache:6379",
    "Authorization: Bearer abc.def-ghi": f"Authorization: Bearer {HIDDEN}",
    "authorization: Basic dXNlcjpwYXNz": f"authorization: Basic {HIDDEN}",
    "'Authorization': 'token 0123456789'": f"'Authorization': 'token {HIDDEN}'",
    "(b'Authorization', b'x')": "(b'Authorization', b'x')",
    "curl -H 'Authorization: 0123456789abcdef'": f"curl -H 'Authorization: {HIDDEN}'",
    "sent Bearer eyJhbGciOiJIUzI1NiJ9.e30": f"sent Bearer {HIDDEN}",
    "https://b.s3/x?X-Amz-Credential=ASIA1/2026&X-Amz-Signature=00ff&z=1": (
        f"https://b.s3/x?X-Amz-Credential={HIDDEN}&X-Amz-Signature={HIDDEN}&z=1"
    ),
    "X-Amz-Security-Token: abc": f"X-Amz-Security-Token: {HIDDEN}",
    "AWS4-HMAC-SHA256 Credential=k/2026, SignedHeaders=host, Signature=0123abcd": (
        f"AWS4-HMAC-SHA256 Credential=k/2026, SignedHeaders=host, Signature={HIDDEN}"
    ),
    "ASIAIOSFODNN7EXAMPLE": HIDDEN,
    "secret whsec_6TrjSzKfNhxAHphTagfJ/UJ6wEaX7DNGQYfPay+aEKU= end": f"secret {HIDDEN} end",
}

# What looks like one and is none.
HARMLESS = [
    "git clone ssh://git@github.com/x/y",
    "connect(password=None)",
    "https://github.com/pytorch/pytorch/issues/1",
    "bearer of bad news",
    "pt2_module was loaded",
    "x://[::1]:80/path",
    "loading s3://bucket/AKIA.bin",
    "dtype float32, shape (2, 3)",
]


@pytest.mark.parametrize(("printed", "kept"), PRINTED.items())
def test_a_model_that_prints_what_the_worker_knows_leaves_no_secret(printed: str, kept: str) -> None:
    assert Redactor(known_secrets(ENVIRON)).clean(printed) == kept


@pytest.mark.parametrize(("printed", "kept"), FORMS.items())
def test_secrets_of_known_forms_are_found_without_knowing_them(printed: str, kept: str) -> None:
    assert Redactor().clean(printed) == kept


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor(known_secrets({"A_TOKEN": "abc", "B_SECRET": ""})).clean(text) == text


def test_a_secret_of_several_lines_is_found_line_by_line() -> None:
    redactor = Redactor(["-----BEGIN KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B\n-----END KEY-----\n"])
    assert redactor.clean("it printed MIIEvQIBADAN") == f"it printed {HIDDEN}"


def test_a_secret_within_another_leaves_nothing_of_either() -> None:
    assert Redactor(["secret", "secret-and-more"]).clean("a secret-and-more b") == f"a {HIDDEN} b"


def test_a_line_of_the_servers_own_log_is_cleaned_in_every_value() -> None:
    clean = processor(Redactor(["battery-staple"]))
    event = {
        "event": "x battery-staple",
        "n": 1,
        "deep": {"a": ["battery-staple", 2.5, None]},
        "error": ValueError("no battery-staple"),
    }
    assert clean(None, "info", event) == {
        "event": f"x {HIDDEN}",
        "n": 1,
        "deep": {"a": [HIDDEN, 2.5, None]},
        "error": f"no {HIDDEN}",
    }


@pytest.mark.parametrize(
    "text", ["://" + "a" * 8000, "Authorization: " * 500, "earer " * 1300, "pt2_" * 2000]
)
def test_no_line_takes_long(text: str) -> None:
    redactor = Redactor(known_secrets(ENVIRON))
    for _ in range(20):
        redactor.clean(text)
