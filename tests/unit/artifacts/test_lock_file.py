"""Lock files: equal locks are equal files, what does not belong there is named, and every edit is seen."""

from __future__ import annotations

import json
import random
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pt2hub.client.lock.lock_file import format_lock, parse_lock, read_lock, write_lock
from pt2hub.client.lock.lock_schema import SCHEMA, find_faults
from pt2hub.domain.storage import StorageLocation
from pt2hub.errors import Ambiguous, ClientTooOld, LockInvalid, LockMismatch, NotFound, Pt2hubError
from support.locks import BUCKET, CPU, GPU, a_lock, a_stored, locked_model

if TYPE_CHECKING:
    from pt2hub.domain.locks import Lock

WHERE = "pt2hub.lock"
PUBLISHED = Path(__file__).parents[3] / "docs" / "reference" / "pt2hub.lock.schema.json"


def parsed(text: str) -> Lock:
    return parse_lock(text.encode(), WHERE)


def test_a_lock_is_read_as_it_was_written() -> None:
    for lock in (
        a_lock(),
        replace(a_lock(), storage=None),
        replace(a_lock(), targets=(GPU, CPU)),
        replace(a_lock(), models=()),
    ):
        found = parsed(format_lock(lock))
        assert replace(found, targets=tuple(sorted(found.targets))) == replace(
            lock, targets=tuple(sorted(lock.targets))
        )


def test_equal_locks_give_equal_texts_whatever_the_order() -> None:
    models = [
        locked_model(f"team/net@{name}", a_stored(CPU), a_stored(GPU)) for name in ("prod", "canary", "7")
    ]
    texts = set()
    for seed in range(5):
        mixed = random.Random(seed).sample(models, len(models))
        mixed = [
            replace(item, artifacts=item.artifacts[:: random.Random(seed).choice((1, -1))]) for item in mixed
        ]
        texts.add(format_lock(replace(a_lock(), models=tuple(mixed))))
    assert len(texts) == 1
    (text,) = texts
    assert text.endswith("}\n")
    references = [line for line in text.splitlines() if line.startswith("reference")]
    assert references == sorted(references)


def test_each_fact_has_a_line_of_its_own() -> None:
    before = format_lock(a_lock(locked_model("a/b@prod", a_stored(CPU, code=b"1"), a_stored(GPU))))
    after = format_lock(a_lock(locked_model("a/b@prod", a_stored(CPU, code=b"2"), a_stored(GPU))))
    changed = [line for line in after.splitlines() if line not in before.splitlines()]
    assert [line.split(" = ")[0] for line in changed] == ["manifest", "code"], "other code, the same weights"


def test_git_merges_what_two_branches_lock(tmp_path: Path) -> None:
    middle = locked_model("vision/m@prod", a_stored(CPU))
    first, last = locked_model("audio/a@prod", a_stored(CPU)), locked_model("zoo/z@prod", a_stored(GPU))

    def file(name: str, lock: Lock) -> str:
        path = tmp_path / name
        path.write_text(format_lock(lock))
        return str(path)

    given = (
        file("ours", a_lock(first, middle)),
        file("base", a_lock(middle)),
        file("theirs", a_lock(middle, last)),
    )
    merged = subprocess.run(["git", "merge-file", "-p", *given], capture_output=True, text=True, check=False)
    assert merged.returncode == 0, merged.stdout
    assert merged.stdout == format_lock(a_lock(first, middle, last))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_bucket_prefix_can_be_written(prefix: str) -> None:
    lock = replace(a_lock(), storage=StorageLocation(f"s3://models/{prefix}"))
    try:
        assert parsed(format_lock(lock)) == lock
    except LockInvalid:
        assert set(prefix) & {"?", "#", "\n"}, "these are no part of a prefix"


# -- what is wrong -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("schema = 1\n", "", None),
        ("schema = 1\n", "schema = true\n", None),
        ('server = "https://registry.example"\n', "", "server"),
        ('server = "https://registry.example"', 'server = "https://user:pw@registry.example"', "server"),
        ('server = "https://registry.example"', "server = 7", "server"),
        ('url = "s3://models/pt2hub"', 'url = "models/pt2hub"', "storage.url"),
        ("[storage]", "[storag]", "storag"),
        ("version = 3", "version = 0", "models[0].version"),
        ("version = 3", "version = 3.0", "models[0].version"),
        ("version = 3", "version = true", "models[0].version"),
        ("vision/resnet18@prod", "vision/resnet18@", "models[0].reference"),
        ("vision/resnet18@prod", "Vision/resnet18@prod", "models[0].reference"),
        (f'target = "{GPU}"', f'target = "{CPU}"', "models[0].artifacts[1].target"),
        ("size = 7", "size = -7", "models[0].artifacts[0].weights.size"),
        ("size = 7", 'size = "7"', "models[0].artifacts[0].weights.size"),
        ("weights = {", "wights = {", "models[0].artifacts[0].weights"),
        ("sha256:", "sha512:", "models[0].artifacts[0].manifest.digest"),
    ],
)
def test_what_does_not_belong_into_a_lock_is_named(old: str, new: str, path: str | None) -> None:
    text = format_lock(a_lock())
    assert old in text
    with pytest.raises(LockInvalid) as caught:
        parsed(text.replace(old, new))
    assert caught.value.where == WHERE
    assert "pt2hub lock" in str(caught.value.hint)
    assert path is None or path in [item.path for item in caught.value.details]


@pytest.mark.parametrize("data", [b"\xff\xfe", b"[[models]", b"a" * (17 << 20), b"x = " + b"[" * 5000])
def test_what_is_not_toml_is_refused(data: bytes) -> None:
    with pytest.raises(LockInvalid):
        parse_lock(data, WHERE)


def test_conflict_markers_are_named_with_their_line_and_a_way_out() -> None:
    lines = format_lock(a_lock()).splitlines()
    lines[8:8] = ["<<<<<<< HEAD", "version = 4", "=======", "version = 5", ">>>>>>> other"]
    with pytest.raises(LockInvalid, match="merge conflict markers, the first in line 9") as caught:
        parsed("\n".join(lines))
    assert "git checkout --ours" in str(caught.value.hint)
    assert "pt2hub lock" in str(caught.value.hint)


def test_a_lock_of_a_newer_schema_says_what_to_upgrade() -> None:
    with pytest.raises(ClientTooOld, match="schema 3") as caught:
        parsed(format_lock(a_lock()).replace("schema = 1", "schema = 3") + "new_field = 1\n")
    assert "pip install --upgrade pt2hub" in str(caught.value.hint)


def test_an_entry_that_a_merge_left_twice_is_named() -> None:
    text = format_lock(a_lock())
    with pytest.raises(LockInvalid, match="listed twice"):
        parsed(text + "\n" + text[text.index("[[models]]") :])


def test_a_lock_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No such file") as caught:
        read_lock(tmp_path / "pt2hub.lock")
    assert "pt2hub lock" in str(caught.value.hint)


def test_a_lock_is_written_as_a_whole_and_only_if_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "pt2hub.lock"
    assert write_lock(path, a_lock())
    inode = path.stat().st_ino
    assert not write_lock(path, a_lock())
    assert path.stat().st_ino == inode
    assert write_lock(path, replace(a_lock(), models=()))
    assert [item.name for item in tmp_path.iterdir()] == ["pt2hub.lock"]


# -- an edited lock ----------------------------------------------------------------------------------------------------


def seen(text: str, original: Lock) -> bool:
    """Whether an edit of the entries is refused when the file is read, or when what it pins is pulled."""
    stored = {item.manifest.digest: item for item in (a_stored(CPU), a_stored(GPU))}
    try:
        lock = parsed(text)
        if lock == original:
            return True  # white space, a comment
        for model in lock.models:
            for artifact in model.artifacts:
                found = stored.get(artifact.manifest.digest)
                if found is None:
                    return True  # nobody has it
                model.check(artifact.manifest.digest, found.size, found.manifest, found.config)
    except (LockInvalid, LockMismatch):
        return True
    return model.reference != original.models[0].reference and model.model == original.models[0].model


def test_an_edit_of_any_character_of_an_entry_is_seen() -> None:
    original = a_lock()
    text = format_lock(original)
    begin = text.index("version = ")
    unseen = [
        (index, text[index], other)
        for index in range(begin, len(text))
        for other in ("1" if text[index] == "0" else "0", '"')
        if text[index] != other and not seen(text[:index] + other + text[index + 1 :], original)
    ]
    assert unseen == []


def test_a_mismatch_names_each_field() -> None:
    stored = a_stored(CPU)
    locked = locked_model("vision/resnet18@prod", stored)
    (artifact,) = locked.artifacts
    wrong = replace(artifact, code=replace(artifact.code, size=1), target=GPU)
    edited = replace(locked, artifacts=(wrong,), version=4)
    with pytest.raises(LockMismatch, match=r"code\.size") as caught:
        edited.check(stored.manifest.digest, stored.size, stored.manifest, stored.config)
    assert [item.path for item in caught.value.details] == ["version", "target", "code.size"]
    assert "--upgrade vision/resnet18@prod" in str(caught.value.hint)


# -- finding -----------------------------------------------------------------------------------------------------------


def test_a_models_name_finds_its_only_reference() -> None:
    lock = a_lock(
        locked_model("a/b@prod", a_stored()),
        locked_model("c/d@1", a_stored()),
        locked_model("c/d@2", a_stored()),
    )
    assert lock.find("a/b", where=WHERE) is lock.find("a/b@prod", where=WHERE)
    with pytest.raises(Ambiguous, match="Several references"):
        lock.find("c/d", where=WHERE)
    with pytest.raises(NotFound, match="is not locked") as caught:
        lock.find("a/b@canary", where=WHERE)
    assert "a/b@prod" in str(caught.value.hint)


# -- the schema --------------------------------------------------------------------------------------------------------


def test_the_published_schema_is_valid_and_takes_what_is_written() -> None:
    published = json.loads(PUBLISHED.read_text())
    assert published == SCHEMA
    jsonschema.Draft202012Validator.check_schema(published)
    validator = jsonschema.Draft202012Validator(published)
    for lock in (
        a_lock(),
        replace(a_lock(), storage=replace(BUCKET, endpoint=None, region=None), targets=(CPU,)),
    ):
        validator.validate(tomllib.loads(format_lock(lock)))


def edits(document: Any, draw: st.DrawFn) -> Any:
    """A document in which one value was replaced, removed or added."""
    if isinstance(document, dict) and draw(st.booleans()):
        name = draw(st.sampled_from([*document, "other"]))
        if name not in document or draw(st.booleans()):
            return {**document, name: draw(st.sampled_from([0, -1, 1 << 70, True, "", "x", [], {}, 1.5]))}
        if draw(st.booleans()):
            return {key: value for key, value in document.items() if key != name}
        return {**document, name: edits(document[name], draw)}
    if isinstance(document, list) and document:
        return [edits(document[0], draw), *document[1:]] if draw(st.booleans()) else []
    return draw(st.sampled_from([document, None, 0, "text"]))


@given(st.data())
def test_the_clients_check_agrees_with_a_library_for_json_schema(data: st.DataObject) -> None:
    document = edits(tomllib.loads(format_lock(a_lock())), data.draw)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    right = validator.is_valid(document)
    assert right == (not [*find_faults(document)]) or document.get("schema") != 1


def test_a_lock_that_was_cut_off_never_gives_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "pt2hub.lock"
    text = format_lock(a_lock())
    hints = []
    for end in range(0, len(text), 7):
        path.write_text(text[:end])
        try:
            read_lock(path)
        except Pt2hubError as exc:
            hints.append(exc.hint)
    assert len(hints) > len(text) // 14
    assert all(hints)
