"""The documentation says what the code does: specs validate, names exist, nothing is left out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

import pt2hub
from pt2hub import errors
from pt2hub.cli.main import command_tree
from pt2hub.cli.operations.environment_check import SETTINGS
from pt2hub.domain.performance.metrics import METRICS
from pt2hub.domain.publishing.spec import Spec
from pt2hub.server.config import ServerConfig
from pt2hub.server.db.schema import Base
from pt2hub.server.services.promotion.policy_spec import MetricLimit, PromotionCheck, Protection, parse_policy
from pt2hub_workers.config import WorkerConfig
from reference_generator import api_page, errors_page, pages
from support import crawling

if TYPE_CHECKING:
    from collections.abc import Iterator

    import click

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
REFERENCE = pages()
"""Generated once: every process of a test run collects these tests."""
SETTINGS_PAGE = ROOT / "docs" / "how-to" / "settings.md"
WORK_PAGE = ROOT / "CONTRIBUTING.md"
PAGES = [README, *sorted(ROOT.glob("C*.md")), ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODES_PAGE = ROOT / "docs" / "how-to" / "when-a-build-fails.md"
FACTS = ROOT / "docs" / "facts" / "README.md"
PERFORMANCE_PAGE = ROOT / "docs" / "how-to" / "performance-history.md"
POLICY_PAGE = ROOT / "docs" / "how-to" / "promotion-checks.md"
CONFIGS = [
    ROOT / "registry" / "pt2hub" / "server" / "config.py",
    ROOT / "registry" / "pt2hub" / "server" / "provider_settings.py",
    ROOT / "registry" / "pt2hub" / "client" / "availability.py",
    ROOT / "registry" / "pt2hub" / "client" / "config.py",
    ROOT / "workers" / "pt2hub_workers" / "config.py",
    ROOT / "workers" / "pt2hub_workers" / "sandbox" / "limits.py",
]
TUTORIAL = ROOT / "docs" / "tutorial.md"
WEB_PAGE = ROOT / "docs" / "how-to" / "web-pages.md"
INNER = {"PT2HUB_CHANNEL_FD", "PT2HUB_UPDATE_TUTORIAL", "PT2HUB_UPDATE_SCREENSHOTS"}
"""Set by a worker for its own children, or for one test; no settings."""
PARTS = {"/builds/<build>/lines", "/builds/<build>/steps", "/sign-in/callback", "/sign-in/provider"}
"""Addresses for scripts of pages, and those that lead to another one."""

_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_VARIABLE = re.compile(r"PT2HUB_[A-Z0-9_]*[A-Z]")
_COMMAND = re.compile(r"(?:^|\s|/)pt2hub ([^\n#|>]+)")
_CURL = re.compile(r"curl (?:-X (\w+) )?\"\$PT2HUB_URL(/[^\"?]*)(?:\?([^\"]*))?\"")


class Fence(NamedTuple):
    page: Path
    kind: str
    text: str


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def fences(page: Path) -> list[Fence]:
    found = _FENCE.findall(page.read_text())
    return [
        Fence(page, kind.strip(), re.sub(rf"^{pad}", "", text, flags=re.MULTILINE))
        for pad, kind, text in found
    ]


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


def all_fences(*kinds: str) -> list[Fence]:
    return [fence for page in PAGES for fence in fences(page) if fence.kind in kinds]


def rows(text: str) -> Iterator[list[str]]:
    """Cells of the table rows that begin with code."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def settings() -> dict[str, list[str]]:
    every = rows(SETTINGS_PAGE.read_text())
    return {row[0].strip("`"): row[1:] for row in every if row[0].startswith("`PT2HUB_")}


def test_the_settings_that_are_known_at_start_are_those_of_the_page() -> None:
    assert set(settings()) == SETTINGS


@pytest.mark.parametrize("fence", all_fences("yaml"), ids=lambda fence: name_of(fence.page))
def test_every_spec_is_valid(fence: Fence) -> None:
    Spec.model_validate(yaml.safe_load(fence.text))


@pytest.mark.parametrize("fence", all_fences("yaml fragment"), ids=lambda fence: name_of(fence.page))
def test_every_part_of_a_spec_fits_into_the_one_of_the_readme(fence: Fence) -> None:
    whole = yaml.safe_load(fences_of_readme("yaml")[0].text)
    Spec.model_validate(whole | yaml.safe_load(fence.text))


def fences_of_readme(kind: str) -> list[Fence]:
    return [fence for fence in fences(README) if fence.kind == kind]


def test_there_are_specs_to_check() -> None:
    assert len(all_fences("yaml")) >= 2
    assert len(all_fences("yaml fragment")) >= 3


def test_every_field_of_a_spec_is_explained() -> None:
    page = (ROOT / "docs" / "how-to" / "publish-a-model.md").read_text()
    schema = Spec.model_json_schema()
    fields = set(schema["properties"])
    for definition in schema["$defs"].values():
        fields |= set(definition.get("properties", {}))
    assert [field for field in sorted(fields) if not re.search(rf"\b{field}\b", page)] == []


def test_every_setting_that_the_code_reads_is_documented_and_no_other() -> None:
    read = {name for path in CONFIGS for name in _VARIABLE.findall(path.read_text())}
    assert set(settings()) == read
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]  # it also names settings that are gone
    mentioned = {name for page in pages for name in _VARIABLE.findall(page.read_text())}
    assert mentioned - read - INNER == set()


def test_the_defaults_of_settings_are_the_documented_ones() -> None:
    server = ServerConfig.from_environ({"PT2HUB_HOME": "/home"})
    worker = WorkerConfig.from_environ({"PT2HUB_DATABASE_URL": "postgresql://user@host/database"})
    defaults: dict[str, Any] = {
        "PT2HUB_HOST": server.host,
        "PT2HUB_PORT": server.port,
        "PT2HUB_API_PROCESSES": server.api_processes,
        "PT2HUB_MAX_BLOB_BYTES": server.max_blob_bytes,
        "PT2HUB_MAX_REQUESTS": server.limits.requests_per_token,
        "PT2HUB_MAX_SIGN_INS": server.limits.sign_ins_per_address,
        "PT2HUB_MAX_UPLOADS": server.limits.uploads_per_token,
        "PT2HUB_MAX_WAITS": server.limits.waits_per_token,
        "PT2HUB_MAX_TEAM_BUILDS": server.limits.builds_per_team,
        "PT2HUB_MAX_TEAM_BYTES": server.limits.bytes_per_team,
        "PT2HUB_HEARTBEAT_SECONDS": server.heartbeat_seconds,
        "PT2HUB_LOST_WORKER_SECONDS": server.lost_worker_seconds,
        "PT2HUB_FACTORIES": ",".join(server.factories),
        "PT2HUB_STORAGE": server.storage.replace("/home/", "<home>/"),
        "PT2HUB_VERIFICATION_SECONDS": worker.verification_seconds,
    }
    shown = {
        name: f"`{value:g}`" if isinstance(value, float) else f"`{value}`" for name, value in defaults.items()
    }
    assert {name: cells[1] for name, cells in settings().items() if name in shown} == shown


def test_every_error_code_is_explained_under_its_kind() -> None:
    classes = {cls.code: cls for cls in errors.walk() if cls.__module__.startswith(f"{errors.__name__}.")}
    del classes[errors.Pt2hubError.code]  # never raised itself
    kinds = {"Transient errors": "transient", "Defects": "fatal"}
    fatal_in_the_gate = {"artifact_wrong", "artifact_crashed", "artifact_hung"}
    explained: dict[str, str] = {}
    for section in CODES_PAGE.read_text().split("\n## ")[1:]:
        kind = kinds.get(section.splitlines()[0], "usage")
        for cells in rows(section):
            code = cells[0].strip("`")
            assert code not in explained, f"{code} is explained twice"
            assert len(cells) == 3
            assert all(cells), f"{code} has an empty cell"
            explained[code] = "fatal" if code in fatal_in_the_gate else kind
    assert explained == {code: cls.kind for code, cls in classes.items()}


def test_the_table_of_metrics_is_what_the_code_says() -> None:
    section = PERFORMANCE_PAGE.read_text().partition("\n## What is measured\n")[2].partition("\n## ")[0]
    shown = {cells[0].strip("`"): cells[1:4] for cells in rows(section)}
    known = {name: [item.unit, item.better, f"{item.min_effect:.4g}"] for name, item in METRICS.items()}
    assert {
        name: [unit, better, f"{float(effect.removesuffix(' %')) / 100:.4g}"]
        for name, (unit, better, effect) in shown.items()
    } == known


def test_every_policy_is_valid_and_every_field_of_a_check_is_explained() -> None:
    policies = [parse_policy(yaml.safe_load(fence.text)) for fence in all_fences("yaml policy")]
    assert any(policy.checks and policy.metrics for policy in policies)
    explained = {cells[0].strip("`") for cells in rows(POLICY_PAGE.read_text())}
    for part in (PromotionCheck, Protection, MetricLimit):
        assert set(part.model_fields) <= explained


def test_every_route_that_curl_is_shown_with_exists_and_takes_its_parameters() -> None:
    paths = api_page.document()["paths"]
    shown = [found for fence in all_fences("sh") for found in _CURL.findall(fence.text)]
    assert len(shown) >= 8
    for method, path, query in shown:
        routes = [
            routes[(method or "GET").lower()]
            for template, routes in paths.items()
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path)
            and (method or "GET").lower() in routes
        ]
        assert routes, f"{method} {path}"
        known = {item["name"] for item in routes[0].get("parameters", [])}
        assert {part.partition("=")[0] for part in query.split("&") if part} <= known, path


def test_the_table_of_the_web_pages_has_all_of_them_and_no_other() -> None:
    section = WEB_PAGE.read_text().partition("\n## The pages\n")[2].partition("\n## ")[0]
    known = {re.sub(r"<[^<>:]*:", "<", rule) for rule in crawling.rules()}
    files = {rule for rule in known if "/referrers/" in rule}
    assert {cells[0].strip("`") for cells in rows(section)} == known - PARTS - files


def test_every_table_of_the_database_is_named() -> None:
    page = (ROOT / "docs" / "architecture" / "storage.md").read_text()
    assert [name for name in Base.metadata.tables if f"`{name}`" not in page] == []


@pytest.mark.parametrize(("name", "text"), REFERENCE.items(), ids=list(REFERENCE))
def test_the_reference_is_what_the_code_says(name: str, text: str) -> None:
    committed = (ROOT / "docs" / "reference" / name).read_text()
    assert committed == text, f"docs/reference/{name} is out of date: run make docs"


def test_every_field_of_a_spec_has_a_description_and_an_example_or_fields_of_its_own() -> None:
    whole = Spec.model_json_schema()
    for title, schema in {"Spec": whole, **whole["$defs"]}.items():
        for name, field in schema.get("properties", {}).items():
            assert "$ref" in field or {"description", "examples"} <= set(field), f"{title}.{name}"


def test_every_field_that_the_api_answers_is_described() -> None:
    schemas = api_page.document()["components"]["schemas"]
    found = [(title, name, field) for title, s in schemas.items() for name, field in fields_of(s)]
    assert [f"{title}.{name}" for title, name, field in found if not field.get("description")] == []


def test_every_error_is_raised_by_somebody() -> None:
    only_bases = {errors.Pt2hubError, errors.TransientError, errors.FatalError}
    found = [
        cls
        for cls in errors.walk()
        if cls.__module__.startswith(f"{errors.__name__}.") and cls not in only_bases
    ]
    assert [cls.code for cls in found if not errors_page.raisers(cls)] == []


def fields_of(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [*schema.get("properties", {}).items()]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = _SPAN.sub("``", prose(page))  # brackets in code are no links
    addresses = [address for _, address in _LINK.findall(text) if "://" not in address]
    assert [address for address in addresses if not leads_somewhere(page, address)] == []


def leads_somewhere(page: Path, address: str) -> bool:
    path, _, anchor = address.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return False
    return not anchor or anchor in anchors(target)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_fact_that_code_cites_has_its_heading() -> None:
    folders = ("registry", "workers", "tests", "benchmarks", "migrations")
    texts = [path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py")]
    cited = {found for text in texts for found in re.findall(r"\bfacts/(\w+\.md)#([\w-]+)", text)}
    assert len(cited) > 10
    missing = {name for name, anchor in cited if not leads_somewhere(FACTS, f"{name}#{anchor}")}
    assert missing == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_name_that_links_to_a_file_is_defined_there(page: Path) -> None:
    missing = []
    for label, address in _LINK.findall(prose(page)):
        name = label.strip("`")
        if address.endswith(".py") and not name.endswith(".py"):
            text = (page.parent / address).resolve().read_text()
            parts = name.split(".")
            missing += [
                f"{name} in {address}" for part in parts if not re.search(rf"\b(def|class) {part}\b", text)
            ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_is_named_exists(page: Path) -> None:
    bases = (ROOT, ROOT / "registry" / "pt2hub", ROOT / "workers" / "pt2hub_workers")
    texts = [*_SPAN.findall(prose(page)), *(f.text for f in fences(page) if f.kind == "sh")]
    named = {path for text in texts for path in re.findall(r"(?<![\w/.*-])[\w.]+(?:/[\w.]+)+\.py\b", text)}
    assert [path for path in sorted(named) if not any((base / path).is_file() for base in bases)] == []


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        texts = [fence.text.replace("\\\n", " ") for fence in fences(page) if fence.kind == "sh"]
        texts += _SPAN.findall(prose(page).replace("\n", " "))
        found += [(name_of(page), match.strip()) for text in texts for match in _COMMAND.findall(text)]
    return found


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_every_command_exists_with_its_options(page: str, line: str) -> None:
    del page  # names the test
    command: click.Command = command_tree()
    words = shlex.split(line)
    while subcommands := getattr(command, "commands", None):
        if not words or words[0].startswith("-"):
            break
        assert words[0] in subcommands
        command = subcommands[words.pop(0)]
    known = {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    known |= {"-h", "--help", "-"}  # the last is an argument: standard input
    assert [word for word in words if word.startswith("-") and word not in known] == []


def test_there_are_commands_to_check() -> None:
    assert {
        "up",
        "publish",
        "models",
        "versions",
        "alias",
        "show",
        "builds",
        "logs",
        "pull",
        "run",
        "demo",
    } <= {line.split()[0] for _, line in commands()}


def test_every_target_of_make_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = [
        text for page in PAGES for text in (*_SPAN.findall(prose(page)), *(f.text for f in fences(page)))
    ]
    named = {name for text in texts for name in re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)}
    assert {"demo", "test", "lint", "test-gpu"} <= named
    assert named <= targets


def test_every_benchmark_is_listed() -> None:
    text = WORK_PAGE.read_text()
    scripts = [path for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()]
    assert [path.name for path in scripts if f"benchmarks/{path.name}" not in text] == []


def test_every_decision_is_in_the_index_and_has_its_parts() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    records = sorted(folder.glob("[0-9]*.md"))
    numbers = [path.name[:4] for path in records]
    assert numbers == sorted(set(numbers))  # people who write at the same time are given ranges
    for path in records:
        assert f"[{path.name[:4]}]({path.name})" in index
        assert path.read_text().startswith(f"# {path.name[:4]}: ")
        headings = re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE)
        assert headings == ["Context", "Options", "Outcome"], path.name


@pytest.mark.parametrize("fence", all_fences("python"), ids=lambda fence: name_of(fence.page))
def test_every_python_example_compiles(fence: Fence) -> None:
    compile(fence.text, name_of(fence.page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_name_of_the_client_in_an_example_exists(page: Path) -> None:
    spans = [span for span in _SPAN.findall(prose(page)) if "(" in span]
    examples = "\n".join([*spans, *(fence.text for fence in fences(page) if fence.kind == "python")])
    of_package = set(re.findall(r"\bpt2hub\.(\w+)\(", examples))
    of_client = set(re.findall(r"\b(?:client|Client\(\))\.(\w+)\(", examples))
    assert [name for name in of_package if not hasattr(pt2hub, name)] == []
    assert [name for name in of_client if not hasattr(pt2hub.Client, name)] == []
