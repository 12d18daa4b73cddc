from __future__ import annotations

from pathlib import Path

import pytest

from pt2hub.domain.reading import ReadMode
from pt2hub.errors import BadConfiguration
from pt2hub.server.config import ServerConfig


def test_everything_has_a_default() -> None:
    config = ServerConfig.from_environ({})
    assert config.database_url is None
    assert config.storage == str(config.home / "server" / "blobs")
    assert (config.host, config.port) == ("127.0.0.1", 8400)
    assert config.home.is_absolute()
    assert (config.isolation, config.s3_public_endpoint_url) == (None, None)
    assert config.lost_worker_seconds >= 3 * config.heartbeat_seconds


def test_every_setting_is_read(tmp_path: Path) -> None:
    config = ServerConfig.from_environ(
        {
            "PT2HUB_HOME": str(tmp_path),
            "PT2HUB_DATABASE_URL": "postgresql://me@db/x",
            "PT2HUB_STORAGE": "s3://bucket/some/prefix/",
            "PT2HUB_HOST": "0.0.0.0",
            "PT2HUB_PORT": "9000",
            "PT2HUB_API_PROCESSES": "4",
            "PT2HUB_MAX_BLOB_BYTES": "1000",
            "PT2HUB_HEARTBEAT_SECONDS": "0.5",
            "PT2HUB_LOST_WORKER_SECONDS": "1.5",
            "PT2HUB_FACTORIES": "torchvision.models, my.models",
            "PT2HUB_ISOLATION": "process",
            "PT2HUB_S3_PUBLIC_ENDPOINT_URL": "https://s3.example:8333/",
            "PT2HUB_TRUSTED_PROXIES": "10.0.0.5, 10.1.0.0/16,fd00::/8",
            "PT2HUB_READ": "team",
            "PT2HUB_READ_BEYOND_LOOPBACK": "public",
        }
    )
    assert config == ServerConfig(
        home=tmp_path,
        storage="s3://bucket/some/prefix",
        database_url="postgresql://me@db/x",
        host="0.0.0.0",
        port=9000,
        api_processes=4,
        max_blob_bytes=1000,
        heartbeat_seconds=0.5,
        lost_worker_seconds=1.5,
        factories=("torchvision.models", "my.models"),
        isolation="process",
        s3_public_endpoint_url="https://s3.example:8333",
        trusted_proxies=("10.0.0.5", "10.1.0.0/16", "fd00::/8"),
        read=ReadMode.TEAM,
        read_beyond_loopback="public",
    )


def test_an_empty_variable_counts_as_unset() -> None:
    names = (
        *("HOME", "DATABASE_URL", "STORAGE", "HOST", "PORT", "MAX_BLOB_BYTES", "HEARTBEAT_SECONDS"),
        *("ISOLATION", "S3_PUBLIC_ENDPOINT_URL", "TRUSTED_PROXIES"),
    )
    assert ServerConfig.from_environ({f"PT2HUB_{name}": "" for name in names}) == ServerConfig.from_environ(
        {}
    )


def test_a_relative_directory_is_fixed_at_once() -> None:
    config = ServerConfig.from_environ({"PT2HUB_HOME": "home", "PT2HUB_STORAGE": "blobs"})
    assert config.home == Path.cwd() / "home"
    assert config.storage == str(Path.cwd() / "blobs")


def test_a_slow_heartbeat_makes_the_limit_for_lost_workers_longer() -> None:
    assert ServerConfig.from_environ({"PT2HUB_HEARTBEAT_SECONDS": "60"}).lost_worker_seconds == 180


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PT2HUB_PORT", "http"),
        ("PT2HUB_PORT", "65536"),
        ("PT2HUB_PORT", "-1"),
        ("PT2HUB_MAX_BLOB_BYTES", "0"),
        ("PT2HUB_MAX_BLOB_BYTES", "1GB"),
        ("PT2HUB_DATABASE_URL", "mysql://x"),
        ("PT2HUB_STORAGE", "gs://bucket"),
        ("PT2HUB_STORAGE", "s3://"),
        ("PT2HUB_STORAGE", "s3:/bucket/prefix"),
        ("PT2HUB_HEARTBEAT_SECONDS", "nan"),
        ("PT2HUB_FACTORIES", "os:system"),
        ("PT2HUB_LOG_LEVEL", "loud"),
        ("PT2HUB_ISOLATION", "none"),  # a worker that runs no models is so by its toolchain, not by a setting
        ("PT2HUB_ISOLATION", "Sandbox"),
        ("PT2HUB_S3_PUBLIC_ENDPOINT_URL", "s3.example"),
        ("PT2HUB_S3_PUBLIC_ENDPOINT_URL", "ftp://s3.example"),
        ("PT2HUB_S3_PUBLIC_ENDPOINT_URL", "http://"),
        ("PT2HUB_S3_PUBLIC_ENDPOINT_URL", "http://s3.example:port"),
        ("PT2HUB_S3_PUBLIC_ENDPOINT_URL", "http://s3.example/bucket"),
        ("PT2HUB_S3_PUBLIC_ENDPOINT_URL", "http://s3.example?bucket=b"),
        ("PT2HUB_S3_PUBLIC_ENDPOINT_URL", "http://[s3.example"),
        ("PT2HUB_TRUSTED_PROXIES", "*"),
        ("PT2HUB_TRUSTED_PROXIES", "127.0.0.1,proxy.example"),
        ("PT2HUB_TRUSTED_PROXIES", "10.1.2.3/16"),
        ("PT2HUB_LOST_WORKER_SECONDS", "6"),  # below three heartbeats of 5 s
    ],
)
def test_a_wrong_value_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        ServerConfig.from_environ({name: value})
    assert caught.value.where == name
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PT2HUB_DATABASE_URL", "mysql://me:secret@db"),
        ("PT2HUB_S3_PUBLIC_ENDPOINT_URL", "http://key:secret@s3.example"),
    ],
)
def test_a_wrong_address_is_not_repeated_since_it_may_hold_a_password(name: str, value: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        ServerConfig.from_environ({name: value})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "read", "expected"),
    [
        ("127.0.0.1", "", "public"),
        ("::1", "", "public"),
        ("localhost", "", "public"),
        ("127.0.0.53", "", "public"),
        ("0.0.0.0", "", "authenticated"),
        ("::", "", "authenticated"),
        ("10.0.0.5", "", "authenticated"),
        ("hub.example", "", "authenticated"),
        ("127.0.0.1", "team", "team"),
        ("127.0.0.1", "authenticated", "authenticated"),
        ("0.0.0.0", "team", "team"),
    ],
)
def test_reads_are_public_on_this_machine_only(host: str, read: str, expected: str) -> None:
    config = ServerConfig.from_environ({"PT2HUB_HOST": host, "PT2HUB_READ": read})
    assert config.reading == expected
    config.check_exposure()


def test_public_reads_beyond_loopback_must_be_said_twice() -> None:
    environ = {"PT2HUB_HOST": "0.0.0.0", "PT2HUB_READ": "public"}
    with pytest.raises(BadConfiguration, match=r"could read all weights") as caught:
        ServerConfig.from_environ(environ).check_exposure()
    assert "PT2HUB_READ_BEYOND_LOOPBACK=public" in str(caught.value.hint)
    for wrong in ("1", "authenticated"):
        with pytest.raises(BadConfiguration):
            ServerConfig.from_environ(environ | {"PT2HUB_READ_BEYOND_LOOPBACK": wrong}).check_exposure()
    ServerConfig.from_environ(environ | {"PT2HUB_READ_BEYOND_LOOPBACK": "public"}).check_exposure()
    with pytest.raises(BadConfiguration, match="unknown mode"):
        ServerConfig.from_environ({"PT2HUB_READ": "everyone"})


@pytest.mark.parametrize(
    ("text", "receivers"),
    [
        ("", ()),
        ("127.0.0.1:9000", (("127.0.0.1", 9000),)),
        (" Hooks.Internal.:443 , [::1]:80,", (("hooks.internal", 443), ("::1", 80))),
    ],
)
def test_receivers_of_webhooks_are_hosts_with_ports(
    text: str, receivers: tuple[tuple[str, int], ...]
) -> None:
    assert ServerConfig.from_environ({"PT2HUB_WEBHOOK_ALLOW": text}).webhook_receivers == receivers


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "http://127.0.0.1:9000", "a:b", "a:0", "u@a:1", "10.0.0.0/8", "a:1/x", "::1"]
)
def test_another_form_of_receivers_is_refused(text: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        ServerConfig.from_environ({"PT2HUB_WEBHOOK_ALLOW": text})
    assert caught.value.where == "PT2HUB_WEBHOOK_ALLOW"
