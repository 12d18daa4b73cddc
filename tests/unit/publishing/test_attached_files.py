"""Attached files: their names, what names say about them, and how they enter a spec's identity."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from markupsafe import Markup

from pt2hub.cli.publishing.file_option import parse_files
from pt2hub.client.blobs.file_links import link_files, remove_broken_links
from pt2hub.client.lock.lock_file import format_lock, parse_lock
from pt2hub.client.publishing.attached_files import has_paths, upload_files
from pt2hub.domain.artifacts import Descriptor
from pt2hub.domain.attached_files.files import AttachedFile, files_of
from pt2hub.domain.attached_files.kinds import FileKind, check_media_type, kind_of, media_type_of
from pt2hub.domain.attached_files.names import MAX_FILES, check_name, check_names
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.locks import locked_files
from pt2hub.domain.publishing.spec import Spec
from pt2hub.errors import (
    DuplicateFile,
    EmptyFile,
    InvalidFileName,
    InvalidInput,
    InvalidMediaType,
    LockMismatch,
    NotFound,
    Pt2hubError,
    TooManyFiles,
)
from pt2hub.server.pages.publishing.card import MAX_BRACKETS, MAX_CARD_BYTES, render_card
from pt2hub.server.services.publishing.spec_errors import parse_spec
from support.locks import a_lock, a_stored, locked_model
from support.registry import a_spec

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.digests import Digest

DIGEST = digest_bytes(b"bytes")
TOKENIZER = AttachedFile("tokenizer.json", "tokenizer", "application/json", DIGEST, 5)
CARD = AttachedFile("README.md", "card", "text/markdown", digest_bytes(b"# A"), 3)


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "LICENSE", "a b (1).txt", "größe.txt", "標籤.json", "x" * 128]
)
def test_a_plain_name_is_taken(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "1 to 128 characters"),
        ("x" * 129, "1 to 128 characters"),
        ("ä" * 128, "255 bytes"),
        ("../x", "no folders"),
        ("/etc/passwd", "no folders"),
        ("a\\b", "no folders"),
        ("C:x", "':' is not allowed"),
        ("a\nb", r"U\+000A"),
        ("a\x1b[2J", r"U\+001B"),
        ("a\u202ecod.exe", r"U\+202E"),
        ("a\u2028b", r"U\+2028"),
        ("\ud800", r"U\+D800"),
        ("e\u0301.txt", "NFC"),
        (".hidden", "begin with a dot"),
        ("..", "begin with a dot"),
        ("-rf", "a dash"),
        ("x.", "end with a dot"),
        (" x", "space"),
        ("NUL", "Windows"),
        ("com1.tar.gz", "Windows"),
        ("com\u00b9.txt", "Windows"),
        ("conin$", "Windows"),
        ("code.zip", "own file"),
        ("Weights.SafeTensors", "own file"),
        ("model.pt2", "own file"),
    ],
)
def test_a_name_that_is_not_the_same_everywhere_is_refused(name: str, problem: str) -> None:
    with pytest.raises(InvalidFileName, match=problem) as caught:
        check_name(name)
    assert caught.value.code == "invalid_file_name"
    assert caught.value.message.isascii()


@pytest.mark.parametrize("names", [("a.txt", "A.txt"), ("fi.txt", "\ufb01.txt"), ("a", "a"), ("ß", "ss")])
def test_names_that_are_one_file_on_some_systems_are_refused(names: tuple[str, str]) -> None:
    with pytest.raises(DuplicateFile):
        check_names(names)


def test_there_are_at_most_64_files() -> None:
    names = [f"{number}.txt" for number in range(MAX_FILES)]
    check_names(names)
    with pytest.raises(TooManyFiles, match="65 files"):
        check_names([*names, "x"])


@pytest.mark.parametrize(
    ("name", "kind", "media_type"),
    [
        ("tokenizer.json", FileKind.TOKENIZER, "application/json"),
        ("vocab.txt", FileKind.TOKENIZER, "text/plain"),
        ("spiece.model", FileKind.TOKENIZER, "application/octet-stream"),
        ("labels.txt", FileKind.LABELS, "text/plain"),
        ("id2label.json", FileKind.LABELS, "application/json"),
        ("preprocessor_config.json", FileKind.PREPROCESSING, "application/json"),
        ("calibration.npz", FileKind.CALIBRATION, "application/octet-stream"),
        ("README.md", FileKind.CARD, "text/markdown"),
        ("model-card.md", FileKind.CARD, "text/markdown"),
        ("LICENSE", FileKind.LICENSE, "text/plain"),
        ("licence.txt", FileKind.LICENSE, "text/plain"),
        ("request.json", FileKind.EXAMPLE, "application/json"),
        ("guide.pdf", FileKind.DOCUMENT, "application/pdf"),
        ("weird.bin", FileKind.OTHER, "application/octet-stream"),
    ],
)
def test_a_name_says_what_a_file_is(name: str, kind: FileKind, media_type: str) -> None:
    assert (kind_of(name), media_type_of(name)) == (kind, media_type)


@pytest.mark.parametrize(
    "text", ["", "text", "text/", "/plain", "text/plain; charset=utf-8", "a b/c", "x/" + "y" * 126]
)
def test_a_malformed_media_type_is_refused(text: str) -> None:
    with pytest.raises(InvalidMediaType):
        check_media_type(text, "media_type")
    assert check_media_type("Text/PLAIN", "media_type") == "text/plain"


# -- specs -------------------------------------------------------------------------------------------------------------


def spec_with(**files: Any) -> Spec:
    return parse_spec(a_spec(files={name.replace("_", "."): item for name, item in files.items()}))


def test_files_for_programs_identify_a_version_and_documentation_does_not() -> None:
    plain = parse_spec(a_spec())
    assert spec_with(README_md=DIGEST).identity() == plain.identity()
    assert spec_with(README_md=DIGEST).canonical() == plain.canonical()
    one, other = spec_with(tokenizer_json=DIGEST), spec_with(tokenizer_json=CARD.digest)
    assert len({plain.identity(), one.identity(), other.identity()}) == 3
    told = {"digest": DIGEST, "kind": "tokenizer", "media_type": "application/json"}
    assert spec_with(tokenizer_json=told).identity() == one.identity(), (
        "what is told is what the name suggests"
    )
    assert Spec.from_canonical(one.canonical()).identity() == one.identity()


@pytest.mark.parametrize(
    ("files", "code", "where"),
    [
        ({"../x": DIGEST}, "invalid_file_name", "files.../x"),
        ({"a": DIGEST, "A": DIGEST}, "duplicate_file", "files.A"),
        ({str(number): DIGEST for number in range(65)}, "too_many_files", "files"),
        ({"a.txt": {"digest": DIGEST, "media_type": "text"}}, "invalid_media_type", "files.a.txt.media_type"),
        ({"a.txt": {"digest": DIGEST, "kind": "readme"}}, "invalid_input", "files.a.txt.kind"),
        ({"a.txt": {"kind": "card"}}, "invalid_input", "files.a.txt.digest"),
        ({"a.txt": {"digest": DIGEST, "mode": 7}}, "invalid_input", "files.a.txt.mode"),
        ({"a.txt": "README.md"}, "invalid_input", "files.a.txt"),
        ({"a.txt": 7}, "invalid_input", "files.a.txt"),
        (["a.txt"], "invalid_input", "files"),
    ],
)
def test_a_malformed_file_of_a_spec_has_a_code_and_a_place(files: Any, code: str, where: str) -> None:
    with pytest.raises(Pt2hubError) as caught:
        parse_spec(a_spec(files=files))
    assert (caught.value.code, caught.value.where) == (code, where)


# -- the client --------------------------------------------------------------------------------------------------------


def test_files_of_a_spec_are_found_beside_it_and_given_ones_come_first(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat")
    (tmp_path / "mine.json").write_text("{}")
    sent: list[Path] = []

    def upload(path: Path) -> Digest:
        sent.append(path)
        return digest_bytes(path.read_bytes())

    files = {
        "labels.txt": "labels.txt",
        "vocab.txt": DIGEST,
        "tokenizer.json": {"path": "none", "kind": "other"},
    }
    document: dict[str, Any] = {"files": files}
    assert has_paths(document)
    upload_files(document, {"tokenizer.json": tmp_path / "mine.json"}, tmp_path, upload)
    assert sent == [tmp_path / "labels.txt", tmp_path / "mine.json"]
    assert document["files"] == {
        "labels.txt": {"digest": digest_bytes(b"cat")},
        "vocab.txt": DIGEST,
        "tokenizer.json": {"digest": digest_bytes(b"{}")},
    }
    assert not has_paths(document)
    assert not has_paths({"files": [1]})


def test_nothing_is_sent_before_every_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "empty").touch()
    for name, kind in {"none": NotFound, "empty": EmptyFile, ".": InvalidInput}.items():
        with pytest.raises(kind):
            upload_files({}, {"a.txt": tmp_path / "a", "b.txt": tmp_path / name}, tmp_path, pytest.fail)
    with pytest.raises(InvalidFileName):
        upload_files({}, {"../a": tmp_path / "a"}, tmp_path, pytest.fail)


def test_the_option_takes_kind_and_type_after_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["x/labels.txt:text/plain", "v.dat:tokenizer", "w.dat:labels:text/csv", "odd:card"]
    (tmp_path / "x").mkdir()
    for name in ("x/labels.txt", "v.dat", "w.dat", "odd:card", "x/v.dat"):
        (tmp_path / name).touch()
    assert parse_files(given) == {
        "labels.txt": {"path": "x/labels.txt", "media_type": "text/plain"},
        "v.dat": {"path": "v.dat", "kind": "tokenizer"},
        "w.dat": {"path": "w.dat", "kind": "labels", "media_type": "text/csv"},
        "odd:card": {"path": "odd:card"},
    }
    with pytest.raises(DuplicateFile, match="given twice"):
        parse_files(["x/v.dat", "v.dat"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("none.json", "File 'none.json' not found"),
        ("none.json:tokenizer", "File 'none.json' not found"),
        ("none.json:nope", "File 'none.json:nope' not found"),
        ("here.json:nope", "'nope' is neither a kind of file nor a media type"),
        ("here.json:card:nope", "'nope' is neither a kind of file nor a media type"),
        ("folder", "'folder' is a folder, and only files can be attached"),
        ("folder/", "'folder' is a folder, and only files can be attached"),
        (".", "'.' is a folder, and only files can be attached"),
        (":card", "The path of a file is empty"),
    ],
)
def test_an_option_that_names_no_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "here.json").touch()
    with pytest.raises(Pt2hubError) as caught:
        parse_files([text])
    assert (caught.value.message, caught.value.where) == (message, f"--file {text}")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        ("my data", "tar -cf 'my data.tar' 'my data'"),
        (".", "tar -cf '../here $1.tar' ."),
        ("..", "tar -cf ../../above.tar .."),
        ("my data/..", "tar -cf 'my data/../../here $1.tar' 'my data/..'"),
        (".hidden", "tar -cf hidden.tar .hidden"),
        ("-x", "tar -cf x.tar -- -x"),
    ],
)
def test_a_folder_is_refused_with_the_command_that_packs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, command: str
) -> None:
    here = tmp_path / "above" / "here $1"
    for name in ("my data", ".hidden", "-x"):
        (here / name).mkdir(parents=True)
        (here / name / "a.txt").write_text("a")
    monkeypatch.chdir(here)
    with pytest.raises(InvalidInput) as caught:
        parse_files([folder])
    assert caught.value.hint == f"Attach its files one by one, or pack them: {command}"
    packed = subprocess.run(["sh", "-c", command], check=True, capture_output=True)
    assert b"not dumped" not in packed.stderr, "the archive is outside of the folder"


def test_an_empty_path_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="path of a file is empty") as caught:
        parse_files([""])
    assert caught.value.where == "--file"
    for item in ("", {"path": ""}):
        with pytest.raises(InvalidInput, match="path of a file is empty"):
            upload_files({}, {"a.txt": item}, tmp_path, pytest.fail)


def test_links_have_the_names_and_go_with_their_blobs(tmp_path: Path) -> None:
    blob = tmp_path / "blobs" / "abc"
    blob.parent.mkdir()
    blob.write_text("{}")
    first = link_files(tmp_path, DIGEST, {"tokenizer.json": blob})["tokenizer.json"]
    assert (first.name, first.read_text(), link_files(tmp_path, DIGEST, {"tokenizer.json": blob})) == (
        "tokenizer.json",
        "{}",
        {"tokenizer.json": first},
    )
    remove_broken_links(tmp_path)
    assert first.exists()
    blob.unlink()
    remove_broken_links(tmp_path)
    assert not first.parent.exists()
    first.parent.parent.rmdir()
    first.parent.parent.write_text("in the way")
    assert link_files(tmp_path, DIGEST, {"tokenizer.json": blob}) == {"tokenizer.json": blob}


# -- manifests and locks -----------------------------------------------------------------------------------------------


def test_layers_have_the_media_types_and_annotations_of_modelpack() -> None:
    assert TOKENIZER.as_layer() == Descriptor(
        "application/vnd.cncf.model.weight.config.v1.raw",
        DIGEST,
        5,
        {
            "org.opencontainers.image.title": "tokenizer.json",
            "org.cncf.model.filepath": "tokenizer.json",
            "io.pt2hub.file.kind": "tokenizer",
            "io.pt2hub.file.media-type": "application/json",
        },
    )
    assert CARD.as_layer().mediaType == "application/vnd.cncf.model.doc.v1.raw"


def test_a_manifest_whose_layer_would_leave_its_folder_is_refused() -> None:
    manifest = a_stored().manifest
    evil = replace(TOKENIZER, name="../../.bashrc").as_layer()
    assert files_of(replace(manifest, layers=(*manifest.layers, CARD.as_layer()))) == (CARD,)
    with pytest.raises(InvalidFileName):
        files_of(replace(manifest, layers=(*manifest.layers, evil)))


def test_a_lock_has_the_files_and_notices_others() -> None:
    stored = a_stored()
    with_files = replace(
        stored.manifest, layers=(*stored.manifest.layers, TOKENIZER.as_layer(), CARD.as_layer())
    )
    both = replace(stored, manifest=with_files)
    locked = replace(locked_model("vision/resnet18@prod", both), files=locked_files(with_files))
    lock = a_lock(locked)
    text = format_lock(lock)
    assert text.index("README.md") < text.index('name = "tokenizer.json"')
    assert parse_lock(text.encode(), "pt2hub.lock") == lock
    locked.check(with_files.digest, both.size, with_files, both.config)
    edited = replace(locked, files=(replace(locked.files[0], digest=DIGEST), *locked.files[1:]))
    with pytest.raises(LockMismatch) as caught:
        edited.check(with_files.digest, both.size, with_files, both.config)
    assert [item.path for item in caught.value.details] == ["files.README.md.digest"]
    fewer = replace(locked, files=locked.files[:1])
    with pytest.raises(LockMismatch) as caught:
        fewer.check(with_files.digest, both.size, with_files, both.config)
    assert {item.path for item in caught.value.details} == {
        "files.tokenizer.json.digest",
        "files.tokenizer.json.size",
    }
    older = replace(locked, files=())
    older.check(with_files.digest, both.size, with_files, both.config)


# -- cards -------------------------------------------------------------------------------------------------------------

HOSTILE = """<script>alert(1)</script>

<img src=x onerror=alert(1)> <svg onload=alert(1)><script>alert(1)</script></svg>
<a href="javascript:alert(1)">a</a> <a href=" JaVa\tScRiPt:alert(1)">b</a> <a href="data:text/html,x">c</a>
<a href="//evil.example">d</a> <a href="https://good.example" onclick="alert(1)" target=_top>e</a>
<iframe src="https://evil.example"></iframe><base href="https://evil.example"><link rel=stylesheet href="//evil.example">
<meta http-equiv=refresh content="0;url=https://evil.example"><form action="/sign-out" method=post><button>f</button></form>
<style>@import url(https://evil.example)</style><p style="background:url(https://evil.example)" id=x class=y>g</p>
<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></mglyph></table></mtext></math></div></main></body>

![a picture](https://evil.example/p.png "t") [h](javascript:alert(1)) [the licence](LICENSE) [elsewhere](../../x)
"""


def test_a_card_loads_and_runs_nothing() -> None:
    html = render_card(HOSTILE, (("LICENSE", "/api/LICENSE"),))
    lower = html.lower()
    for word in (
        "script",
        "onerror",
        "onclick",
        "<img",
        "evil",
        "style",
        "iframe",
        "<form",
        "<meta",
        "id=",
        "class=",
        "data:",
    ):
        # What is only text may name it.
        assert word not in lower.replace("[h](javascript:alert(1))", "")
    assert 'href="https://good.example" rel="noopener noreferrer nofollow"' in html
    assert '<a href="/api/LICENSE" rel="noopener noreferrer nofollow">the licence</a>' in html
    assert "a picture" in html
    assert "</main>" not in html


def test_a_card_does_not_reverse_text() -> None:
    html = render_card("&#x202e;a <b>&#x202e;b</b>\n\n<p>&#x202e;c \u202ed</p>\n\n`&#x202e;`")
    assert "\u202e" not in html
    assert html.count("202e") == 1, "code shows what is written"


def test_a_card_leads_to_files_whose_names_are_not_ascii() -> None:
    html = render_card("[a](Über.md) [b](<a b.md>)", (("Über.md", "/1"), ("a b.md", "/2")))
    assert 'href="/1"' in html
    assert 'href="/2"' in html


def test_a_card_has_the_usual_forms_below_the_pages_own_headings() -> None:
    text = "---\nlicense: mit\n---\n# Title\n\n<h1>Raw</h1>\n\n###### Small\n\n| a | b |\n|---|---|\n| 1 | `2` |\n\n1. ~~x~~ **y**\n"
    html = render_card(text)
    assert "license: mit" not in html
    for part in (
        "<h3>Title</h3>",
        "<h3>Raw</h3>",
        "<h6>Small</h6>",
        "<td><code>2</code></td>",
        "<s>x</s> <strong>y</strong>",
    ):
        assert part in html


@pytest.mark.parametrize(
    "unit", ["![", "[", "|a|\n|-|\n", "*_", "<div>", "> ", "- a\n", "a\n\n", "# a\n", "a\r"]
)
def test_a_hostile_card_is_shown_as_text_at_once(unit: str) -> None:
    text = (unit * (MAX_CARD_BYTES // len(unit) + 1))[:MAX_CARD_BYTES]
    began = time.process_time()
    html = render_card(text)
    assert time.process_time() - began < 0.5
    assert html == Markup("<pre>{}</pre>").format(text.replace("\r", "\n"))


def test_the_worst_card_that_is_rendered_takes_a_bounded_time() -> None:
    began = time.process_time()
    for unit in ("![", "<b>", "|a|\n"):
        render_card(unit * MAX_BRACKETS)
    assert time.process_time() - began < 5
