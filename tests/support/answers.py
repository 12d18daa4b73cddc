"""What a server's API answers about everything that was published, for comparisons of before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

    from flask.testing import FlaskClient


def answers(web: FlaskClient, headers: dict[str, str]) -> dict[str, Any]:
    """The answer to every question about models, versions, builds, artifacts, aliases and their history."""
    found: dict[str, Any] = {}

    def ask(path: str) -> Any:
        if path not in found:
            response = web.get(f"/api/v1{path}", headers=headers)
            found[path] = response.get_json() if response.status_code == 200 else response.status_code
        return found[path]

    for model in ask("/models")["models"]:
        _ask_model(ask, model["name"])
    ask("/builds")
    ask("/audit?limit=1000")
    ask("/performance/events")
    return found


def _ask_model(ask: Any, model: str) -> None:
    path = f"/models/{model}"
    ask(path)
    ask(f"{path}/policy")
    ask(f"{path}/metrics")
    ask(f"{path}/history?metric=latency_p50")
    ask(f"{path}/history?metric=accuracy")
    for version in ask(f"{path}/versions")["versions"]:
        one = ask(f"{path}/versions/{version['number']}")
        ask(f"/resolve?reference={model}@{version['number']}")
        for build in one["builds"]:
            ask(f"/builds/{build['id']}")
            if build.get("artifact"):
                ask(f"/artifacts/{build['artifact']}")
    ask(f"/resolve?reference={model}")
    for alias in ask(f"{path}/aliases")["aliases"]:
        ask(f"{path}/aliases/{alias['name']}")
        ask(f"/resolve?reference={model}@{alias['name']}")


def differences(before: Any, after: Any, path: str = "", *, ignoring: Collection[str] = ()) -> set[str]:
    """The paths at which two answers differ, numbers of lists left out; fields that are ignored anywhere."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = (before.keys() | after.keys()) - set(ignoring)
        return {
            found
            for name in names
            for found in differences(
                before.get(name), after.get(name), f"{path}.{name}" if path else name, ignoring=ignoring
            )
        }
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = zip(before, after, strict=True)
        return {
            found for one, other in pairs for found in differences(one, other, f"{path}[]", ignoring=ignoring)
        }
    return set() if before == after else {path}
