"""Where the story's versions come from, and what is beside their models: labels and files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pt2hub.domain.digests import digest_bytes
from support.story.plot import EMBEDDER, RESNET

if TYPE_CHECKING:
    from support.story.plot import Model

_LICENSES = {RESNET: "BSD-3-Clause", EMBEDDER: "Apache-2.0"}
_SETS = {RESNET: "listings-train", EMBEDDER: "tickets-train"}
"""What models are trained on."""
_CARDS = {
    RESNET: """# ResNet-50 for listings

Says which of 1,204 categories a photo of a listing shows.

| data | accuracy |
|---|---|
| listings | see *Evaluations* |
| photos taken in the dark | some 13 points lower |

**Not for** faces, documents or drawings. Photos are resized to 224 x 224; see `preprocessor.json`.
""",
    EMBEDDER: """# Embeddings of support tickets

384 numbers for up to 64 tokens; compare them by their cosine. The tokenizer is beside the model.
""",
}


def labels(model: Model, number: int) -> dict[str, str]:
    """Return the labels of a version, as CI and its team give them."""
    sha = digest_bytes(f"{model.name} {number}".encode())[-40:]
    team, name = model.name.split("/")
    found = {"git.sha": sha, "git.branch": "main", "git.repository": f"https://github.com/{team}/{name}"}
    if data := _SETS.get(model.name):
        digest = digest_bytes(f"{data} {(number + 2) // 3}".encode())  # new data for every third version
        found |= {"data": f"{data}@{digest}", "run": f"https://mlflow.example.com/#/runs/{sha[:12]}"}
    if expression := _LICENSES.get(model.name):
        found["license"] = expression
    return found


def attached(model: Model) -> dict[str, bytes]:
    """Return the files beside a model, by name."""
    if model.name == RESNET:
        categories = "\n".join(f"category-{place}" for place in range(1204)).encode()
        sizes = json.dumps({"size": [224, 224], "mean": [0.485, 0.456, 0.406]}).encode()
        return {"README.md": _CARDS[RESNET].encode(), "labels.txt": categories, "preprocessor.json": sizes}
    if model.name == EMBEDDER:
        vocabulary = json.dumps({"model": {"vocab": {f"token{place}": place for place in range(2000)}}})
        return {"README.md": _CARDS[EMBEDDER].encode(), "tokenizer.json": vocabulary.encode()}
    return {}
