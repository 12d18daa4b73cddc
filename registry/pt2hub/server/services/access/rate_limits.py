"""Rate limits of tokens and addresses, counted in the database for all processes together."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from limits import RateLimitItemPerMinute
from limits.storage import Storage
from limits.strategies import FixedWindowRateLimiter

from pt2hub.errors import DatabaseFull, DatabaseReadOnly, RateLimited
from pt2hub.server.db.stores.access.rate_counters import RateCounterStore

if TYPE_CHECKING:
    from pt2hub.domain.limits import Limits
    from pt2hub.server.db.engine import Sessions

MAX_BLOB_CHECKS = 10
"""Blobs that are read again within a minute because of reports: at most 640 MiB, see `damage_reports`."""
MAX_CLIENT_CHECKS = 3
"""Of these for one address, so that nobody takes all of them from others."""
_MAX_BATCH = 50
_BATCH_SHARE = 100
"""A process adds up to a hundredth of a limit before it tells the others: a write per request would be too dear."""
_BATCH_S = 0.5
_MAX_KEPT = 10_000
"""Counters that a process remembers; beyond that, those that have begun again are forgotten."""


class RateLimitService:
    """Counts requests per token and sign-ins per address.

    The limits are fixed windows of a minute that begin with the first request.
    """

    def __init__(self, sessions: Sessions, limits: Limits) -> None:
        self._sessions = sessions
        self._requests = _Limit.of(sessions, limits.requests_per_token)
        self._sign_ins = _Limit.of(sessions, limits.sign_ins_per_address, exact=True)
        self._blob_checks = _Limit.of(sessions, MAX_BLOB_CHECKS, exact=True)
        self._client_checks = _Limit.of(sessions, MAX_CLIENT_CHECKS, exact=True)

    def count_request(self, token: str) -> None:
        """Count a request with a valid token.

        Raises:
            RateLimited: The token has made too many within a minute.
        """
        # Counters hold no tokens.
        key = hashlib.sha256(token.encode()).hexdigest()[:32]
        if self._requests and (wait := self._requests.wait("token", key)):
            raise _refusal(
                f"Too many requests with this token (at most {self._requests.amount} a minute)", wait
            )

    def count_sign_in(self, address: str) -> None:
        """Count an attempt to sign in.

        Raises:
            RateLimited: There were too many from this address within a minute.
        """
        if self._sign_ins and (wait := self._sign_ins.wait("sign-in", address)):
            amount = self._sign_ins.amount
            raise _refusal(f"Too many sign-ins from your address (at most {amount} a minute)", wait)

    def count_blob_check(self, address: str) -> None:
        """Count a blob that is read again because of a client's report, of the client and of all together.

        Raises:
            RateLimited: There were too many within a minute.
        """
        limits = (
            (self._client_checks, address, f"{MAX_CLIENT_CHECKS} a minute from one address"),
            (self._blob_checks, "all", f"{MAX_BLOB_CHECKS} a minute"),
        )
        for limit, whose, most in limits:  # what is refused to one client takes nothing from others
            wait = limit.wait("blob-check", whose) if limit else 0
            if not wait:
                continue
            raise RateLimited(
                f"Too many reports of damaged blobs (at most {most})",
                where="digest",
                hint=f"Try again in {wait} s. The scrub checks all blobs in any case.",
                context={"retry_after": wait},
            )

    def sweep(self) -> None:
        """Delete counters that are over."""
        with self._sessions.begin() as session:
            RateCounterStore(session).sweep()


def _refusal(message: str, wait: int) -> RateLimited:
    return RateLimited(
        message,
        where="token" if "token" in message else "address",
        hint=f"Try again in {wait} s. The operator of the server sets the limit.",
        context={"retry_after": wait},
    )


@dataclass(frozen=True, slots=True)
class _Limit:
    amount: int
    item: RateLimitItemPerMinute
    limiter: FixedWindowRateLimiter

    @classmethod
    def of(cls, sessions: Sessions, amount: int, *, exact: bool = False) -> _Limit | None:
        """Return a limit per minute; None where there is none.

        Args:
            exact: Whether every process knows each count at once.
        """
        if not amount:
            return None
        batch = 1 if exact else max(1, min(_MAX_BATCH, amount // _BATCH_SHARE))
        storage = SharedCounters(sessions, batch=batch)
        return cls(amount, RateLimitItemPerMinute(amount), FixedWindowRateLimiter(storage))

    def wait(self, *who: str) -> int:
        """Count one; return after how many seconds to try again, 0 if it is within the limit."""
        if self.limiter.hit(self.item, *who):
            return 0
        left = self.limiter.get_window_stats(self.item, *who).reset_time - time.time()
        return max(1, math.ceil(left))


@dataclass(slots=True)
class _Count:
    """What a process knows of a counter.

    Attributes:
        pending: What the database does not have yet.
        shared: The counter's value there, as last seen.
        until: When it begins again, by the monotonic clock.
        told: When the database was last told.
    """

    pending: int = 0
    shared: int = 0
    until: float = 0.0
    told: float = -math.inf


class SharedCounters(Storage):
    """A storage of the library `limits` in PostgreSQL; its own are Redis, Memcached and MongoDB.

    Args:
        batch: How much a process counts by itself before it tells the database; it also does twice a second. All
            processes together overlook at most that much each.
    """

    STORAGE_SCHEME = None

    def __init__(self, sessions: Sessions, *, batch: int) -> None:
        super().__init__()
        self._sessions = sessions
        self._batch = batch
        self._lock = threading.Lock()
        self._counts: dict[str, _Count] = {}

    @property
    def base_exceptions(self) -> type[Exception]:
        """Errors that the library would wrap; ours have their own classes."""
        return OSError

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Add to a counter and return its value."""
        with self._lock:
            now = time.monotonic()
            count = self._find(key, now)
            count.pending += amount
            if count.pending < self._batch and now - count.told < _BATCH_S:
                return count.shared + count.pending
            taken, count.pending, count.told = count.pending, 0, now
        try:
            with self._sessions.begin() as session:
                shared, left = RateCounterStore(session).add(key, taken, seconds=expiry)
        except (DatabaseFull, DatabaseReadOnly):  # each process counts for itself meanwhile
            with self._lock:
                left = count.until - now if count.until > now else float(expiry)
            shared = count.shared + taken
        with self._lock:
            count.shared, count.until = shared, time.monotonic() + left
            return shared + count.pending

    def get(self, key: str) -> int:
        """Return a counter's value, as far as this process knows it."""
        with self._lock:
            count = self._find(key, time.monotonic())
            return count.shared + count.pending

    def get_expiry(self, key: str) -> float:
        """Return when a counter begins again, in seconds since the epoch, as far as this process knows it."""
        with self._lock:
            return time.time() + max(0.0, self._find(key, time.monotonic()).until - time.monotonic())

    def check(self) -> bool:
        """Return whether the database answers."""
        with self._sessions.begin():
            return True

    def reset(self) -> int | None:
        """Not supported: other limits share the table."""
        raise NotImplementedError

    def clear(self, key: str) -> None:
        """Not supported: nothing of pt2hub clears a counter."""
        raise NotImplementedError

    def _find(self, key: str, now: float) -> _Count:
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= _MAX_KEPT:
                self._counts = {name: each for name, each in self._counts.items() if each.until > now}
            count = self._counts[key] = _Count()
        elif count.until <= now:
            count.shared = 0
        return count
