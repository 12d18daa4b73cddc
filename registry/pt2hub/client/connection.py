"""One server, as a configuration says where it is."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from pt2hub.client.config import ClientConfig, checked_token
from pt2hub.client.imports import collector_paused

if TYPE_CHECKING:
    from pt2hub.client.transport import Transport


class Connection:
    """A pt2hub server, to which nothing is sent yet.

    Attributes:
        config: Where it speaks to and keeps files.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
    ) -> None:
        """Prepares a client.

        Args:
            config: All settings; read from the environment and `config.toml` where omitted.
            url: Another server's address; a token that `config.toml` holds for its own server is not sent there.
            token: Another token.

        Raises:
            BadConfiguration: A setting is wrong.
        """
        given = config or ClientConfig.from_environ()
        if url:
            given = given.at(url)
        if token:
            given = replace(given, token=checked_token(token, "token"), token_from=None)
        self.config = given

    def close(self) -> None:
        """Closes idle connections."""
        if "_transport" in self.__dict__:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Made on first use: urllib3's import is a third of a load whose files are in the cache.
    @cached_property
    def _transport(self) -> Transport:
        with collector_paused():
            from pt2hub.client.transport import Transport

        config = self.config
        return Transport(
            config.url, token=config.token, url_from=config.url_from, token_from=config.token_from
        )
