"""Where pretrained weights lie: a small server that speaks like the Hugging Face Hub and like torchvision's host.

It answers what huggingface_hub 2 and torch.hub ask for, as their own servers do: the commit of a revision, the files of
a commit, redirects of large files to another host, the codes of errors in `X-Error-Code`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import huggingface_hub.constants
import pytest

from support.stub import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGE = ".safetensors"
"""Files of this kind lie on another host, as those in Git LFS do."""


@dataclass
class Repository:
    """A repository of the hub; `token` may read it, else everybody."""

    token: str | None = None
    gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        """Puts files onto a branch and answers the commit's hash."""
        text = b"".join(name.encode() + data for name, data in sorted(files.items()))
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest()
        self.commits[sha] = files
        self.branches[branch] = sha
        return sha


class Elsewhere(ThreadingHTTPServer):
    """The server.

    Attributes:
        repositories: Those of the hub, by name.
        files: Other files, by path: torchvision's.
        arriving: What comes in place of a file with these bytes: damage on the way.
        asked: Every request, as `GET /path`, and the token that came with it.
        status: Answered to everything, where set.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.files: dict[str, bytes] = {}
        self.arriving: dict[bytes, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.status: int | None = None
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def other_host(self) -> str:
        """The same server under another name, which no token may reach."""
        return f"http://localhost:{self.server_port}"

    def repository(self, name: str, **how: Any) -> Repository:
        """A new repository."""
        return self.repositories.setdefault(name, Repository(**how))


class _Refused(Exception):
    def __init__(self, status: int, code: str | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.headers = {"X-Error-Code": code} if code else {}


class _Handler(BaseHTTPRequestHandler):
    server: Elsewhere
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
        self.server.asked.append((f"{self.command} {path}", token))
        try:
            self._route(path, token)
        except _Refused as refused:
            self._send(refused.status, b"{}", refused.headers)

    def _route(self, path: str, token: str | None) -> None:
        if self.server.status:
            raise _Refused(self.server.status)
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            self._model(name, revision or "main", token)
        elif "resolve" in parts:
            name, _, rest = path.strip("/").partition("/resolve/")
            revision, _, file = rest.partition("/")
            self._resolve(name, revision, file, token)
        elif path in self.server.files:
            self._file(self.server.files[path], {})
        else:
            raise _Refused(404)

    def _repository(self, name: str, token: str | None) -> Repository:
        repository = self.server.repositories.get(name)
        if repository is None or (repository.token and token is None):
            raise _Refused(404 if token else 401, "RepoNotFound")  # the hub does not tell strangers which
        if repository.token and token != repository.token:
            raise _Refused(403, "GatedRepo" if repository.gated else None)
        return repository

    def _commit(self, repository: Repository, revision: str) -> str:
        sha = repository.branches.get(revision, revision)
        if sha not in repository.commits:
            raise _Refused(404, "RevisionNotFound")
        return sha

    def _model(self, name: str, revision: str, token: str | None) -> None:
        repository = self._repository(name, token)
        sha = self._commit(repository, revision)
        siblings = [_sibling(file, data) for file, data in repository.commits[sha].items()]
        document = {"id": name, "sha": sha, "private": bool(repository.token), "siblings": siblings}
        self._send(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _resolve(self, name: str, revision: str, file: str, token: str | None) -> None:
        repository = self._repository(name, token)
        sha = self._commit(repository, revision)
        data = repository.commits[sha].get(file)
        if data is None:
            raise _Refused(404, "EntryNotFound")
        digest = hashlib.sha256(data).hexdigest()
        headers = {"X-Repo-Commit": sha, "ETag": f'"{digest}"'}
        if not file.endswith(LARGE):
            self._file(data, headers)
            return
        self.server.files[f"/cdn/{digest}"] = data
        headers |= {"X-Linked-ETag": f'"{digest}"', "X-Linked-Size": str(len(data))}
        self._send(302, b"", headers | {"Location": f"{self.server.other_host}/cdn/{digest}"})

    def _file(self, data: bytes, headers: dict[str, str]) -> None:
        self._send(200, self.server.arriving.get(data, data), headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = _answer  # noqa: N815  # the base class's names

    def log_message(self, *args: Any) -> None:
        pass


def _sibling(file: str, data: bytes) -> dict[str, Any]:
    known: dict[str, Any] = {"rfilename": file, "size": len(data), "blobId": "0" * 40}
    if file.endswith(LARGE):
        known["lfs"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 134}
    return known


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Elsewhere]:
    """The server, and the libraries pointed to it as their variables do before they are imported."""
    home = tmp_path / "fetched"
    for variable in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TORCH_HOME", str(home / "torch"))
    with serving(Elsewhere()) as server:
        settings = {
            "ENDPOINT": server.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_HUB_DISABLE_TELEMETRY": True,
            "HF_HUB_OFFLINE": False,
        }
        for name, value in settings.items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)
        yield server
