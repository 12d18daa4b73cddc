"""Derivations as people write them."""

from __future__ import annotations

import pytest

from pt2hub.domain.lineage import MAX_PARENTS, Relation, external_link, parse_derivation, parse_derivations
from pt2hub.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "relation", "parent"),
    [
        ("fine-tuned:vision/resnet18@3", Relation.FINE_TUNED, "vision/resnet18@3"),
        ("retrained:vision/resnet18@prod", Relation.RETRAINED, "vision/resnet18@prod"),
        ("quantized:hf:google/bert@86b5e093", Relation.QUANTIZED, "hf:google/bert@86b5e093"),
        ("distilled:hf:gpt2@main", Relation.DISTILLED, "hf:gpt2@main"),
        (" other:https://models.example.org/x ", Relation.OTHER, "https://models.example.org/x"),
    ],
)
def test_a_derivation_is_a_relation_and_a_parent(text: str, relation: Relation, parent: str) -> None:
    found = parse_derivation(text)
    assert (found.relation, found.parent) == (relation, parent)
    assert (found.reference is None) == (external_link(parent) is not None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vision/resnet18@3",
        "finetuned:vision/resnet18@3",
        "quantised:vision/resnet18@3",
        "fine-tuned:",
        "fine-tuned:vision/resnet18",
        "fine-tuned:vision/resnet18@sha256:" + "0" * 64,
        "fine-tuned:Vision/ResNet@3",
        "fine-tuned:hf:google/bert",
        "fine-tuned:hf:a/b/c@main",
        "fine-tuned:hf:a/b@ma in",
        "fine-tuned:https://user:secret@example.org/x",
        "fine-tuned:https://",
        "fine-tuned:https://[",
        "fine-tuned:ftp://example.org/x",
        "fine-tuned:https://example.org/\u202e",
        "fine-tuned:https://example.org/a\nb",
        "fine-tuned:https://example.org/" + "x" * 500,
        "fine-tuned:javascript:alert(1)",
    ],
)
def test_what_is_no_derivation_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_derivations([text])
    assert caught.value.hint
    assert caught.value.where == "derived_from[0]"


def test_derivations_are_few_and_a_parent_has_one_relation() -> None:
    assert len(parse_derivations(["other:a/b@1", "other:a/b@1"])) == 1
    with pytest.raises(InvalidInput, match="two relations"):
        parse_derivations(["other:a/b@1", "distilled:a/b@1"])
    with pytest.raises(InvalidInput, match="Too many parents"):
        parse_derivations([f"other:a/b@{number}" for number in range(1, MAX_PARENTS + 2)])


def test_an_external_parent_has_an_address() -> None:
    assert external_link("hf:google/bert@v1") == "https://huggingface.co/google/bert/tree/v1"
    assert external_link("vision/resnet18@3") is None
