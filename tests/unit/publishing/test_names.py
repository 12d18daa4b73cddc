from __future__ import annotations

import pytest

from pt2hub.domain.names import Reference, lacks_team, parse_alias, parse_model_name
from pt2hub.errors import InvalidInput
from pt2hub.server.services.suggestions import suggest_models, suggest_words

MODEL = "vision/resnet18"
DIGEST = "sha256:" + "a1" * 32


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        (f"{MODEL}@3", "number", 3),
        (f"{MODEL}@prod", "alias", "prod"),
        (f"{MODEL}@sha256", "alias", "sha256"),
        (f"{MODEL}@{DIGEST}", "digest", DIGEST),
        (f"{MODEL}@{DIGEST[:-1]}", "prefix", DIGEST[:-1]),
        (f"{MODEL}@sha256:a1b2c3", "prefix", "sha256:a1b2c3"),
    ],
)
def test_a_reference_selects_by_one_thing(text: str, field: str, value: object) -> None:
    parsed = Reference.parse(text)
    selectors = {name: getattr(parsed, name) for name in ("number", "alias", "digest", "prefix")}
    assert {name: given for name, given in selectors.items() if given is not None} == {field: value}
    assert str(parsed) == text


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "0",
        "03",
        "1234567890",
        "-x",
        "a b",
        "sha256:",
        "sha256:a1b2c",
        "sha256:A1B2C3",
        f"{DIGEST}0",
        "a\x00",
    ],
)
def test_what_selects_nothing_is_refused_with_the_forms(selector: str) -> None:
    with pytest.raises(InvalidInput, match="invalid version") as caught:
        Reference.parse(f"{MODEL}@{selector}")
    assert "at least 6" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["prod", "v1.2-rc_3", "_x", "P" * 128])
def test_a_name_is_an_alias(name: str) -> None:
    assert parse_alias(name) == name


@pytest.mark.parametrize(
    "name", ["3", "3rd", DIGEST, "sha256:a1b2c3", "", "a" * 129, "a/b", "a\n", ".x", "é"]
)
def test_an_alias_that_is_a_number_or_a_digest_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="invalid alias") as caught:
        parse_alias(name)
    assert "numbers are versions" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("vision/resnet8", ["vision/resnet18"]),
        ("vison/resnet18", ["vision/resnet18", "audio/resnet18"]),
        ("nlp/resnet18", ["audio/resnet18", "vision/resnet18"]),
        ("vison/resnet8", ["vision/resnet18"]),
        ("vision/alexnet", []),
        ("vision/resnet34", []),
        ("a-team-with-a-long-name/bert", []),
    ],
)
def test_only_models_that_are_really_near_are_suggested(asked: str, near: list[str]) -> None:
    models = ["vision/resnet18", "audio/resnet18", "vision/vgg", "a-team-with-a-long-name/gpt", "nlp/bart"]
    assert suggest_models(asked, models) == near


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("prodd", ["prod"]),
        ("PROD", ["prod"]),
        ("production", ["prod"]),
        ("stag", ["staging"]),
        ("canary", []),
    ],
)
def test_words_are_near_when_misspelt_cut_off_or_in_other_case(asked: str, near: list[str]) -> None:
    assert suggest_words(asked, ["prod", "staging"]) == near


@pytest.mark.parametrize(
    ("name", "is_lacking"),
    [("resnet18", True), ("a/b", False), ("Resnet", False), ("", False), ("a" * 200, False)],
)
def test_a_name_that_lacks_only_its_team_is_told_so(name: str, is_lacking: bool) -> None:
    assert lacks_team(name) is is_lacking
    if name != "a/b":
        with pytest.raises(InvalidInput) as caught:
            parse_model_name(name)
        assert (f"write team/{name}." in str(caught.value.hint)) is is_lacking
