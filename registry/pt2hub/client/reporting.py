"""Reports figures that were taken elsewhere: batch by batch, each figure once however often it is sent."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import canonical_json, digest_bytes
from pt2hub.errors import Conflict, Detail, InvalidInput, TransientError
from pt2hub.wire.performance import Reported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pt2hub.client.transport import Transport
    from pt2hub.domain.artifacts import Environment
    from pt2hub.errors import Pt2hubError

    Item = Mapping[str, Any]
    Machine = Environment | Mapping[str, Any]

BATCH = 1000
_MOST_BYTES = 4 << 20
"""Of a batch: half of what a server takes, so that figures with many samples go through too."""
_DEFAULT = "default"
_ATTEMPTS = 4
_PAUSE_SECONDS = 0.5
_MOST_NOTES = 20
_PLACE = re.compile(r"measurements\[(\d+)\]")


class Reporter:
    """Sends figures to one server."""

    def __init__(self, transport: Transport) -> None:
        """Uses a server."""
        self._transport = transport

    def report(
        self,
        measurements: Iterable[Item],
        *,
        environment: Machine | None = None,
        environments: Mapping[str, Machine] | None = None,
        on_batch: Callable[[Reported], object] | None = None,
    ) -> Reported:
        """Sends figures, at most 1,000 at a time; each batch is kept whole or not at all.

        What was sent before is known by its key and counted as a duplicate, so that a report that broke off may
        be sent again. A figure without a key gets one that is made of its content: two figures that say the same
        are one.

        Args:
            measurements: Figures, as `POST /api/v1/measurements` takes them.
            environment: Of the figures that name none.
            environments: Machines that figures name.
            on_batch: Called after each batch with the sum so far.

        Raises:
            InvalidInput: Something is wrong, by its place in `measurements`; batches before that one were kept.
            Conflict: A key was delivered before with another content.
            TransientError: The server did not answer, again and again.
        """
        if isinstance(measurements, Mapping):
            raise InvalidInput(
                "One figure is no list of figures",
                where="measurements",
                hint="Put it into a list: client.report([figure]); of a whole document, give its `measurements`.",
            )
        machines = {name: _known(machine) for name, machine in (environments or {}).items()}
        if environment is not None:
            machines[_free(machines)] = _known(environment)
        default = None if environment is None else next(reversed(machines))
        prepared = (_prepared(place, item, default, machines) for place, item in enumerate(measurements))
        total, sent = Reported(0, 0), 0
        for batch in _batches(prepared):
            total = _sum(total, self._send(batch, machines, sent))
            sent += len(batch)
            if on_batch:
                on_batch(total)
        if not sent:
            raise InvalidInput(
                "There are no figures to report", where="measurements", hint="Give at least one."
            )
        return total

    def _send(self, batch: Sequence[Item], machines: Mapping[str, Any], before: int) -> Reported:
        """Sends one batch, again where no answer came: keys make that harmless."""
        named = {item.get("environment") for item in batch if isinstance(item.get("environment"), str)}
        used = {name: machine for name, machine in machines.items() if name in named}
        body = canonical_json({"measurements": batch, "environments": used})
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._transport.ask(Reported, "POST", "/api/v1/measurements", body)
            except TransientError:
                if attempt == _ATTEMPTS:
                    raise
                time.sleep(_PAUSE_SECONDS * 2 ** (attempt - 1))
            except (InvalidInput, Conflict) as exc:
                raise _moved(exc, before) from exc
        raise AssertionError("unreachable")


def _prepared(place: int, item: Item, default: str | None, machines: Mapping[str, Any]) -> dict[str, Any]:
    """A figure as it is sent: plain JSON, with an environment and a key."""
    path = f"measurements[{place}]"
    if not isinstance(item, dict) and not hasattr(item, "keys"):
        raise InvalidInput(
            "A figure is an object", where=path, hint="Write its fields: artifact, metric, value..."
        )
    whole = {str(name): _plain(value, f"{path}.{name}") for name, value in dict(item).items()}
    if default is not None and whole.get("environment") is None:
        whole["environment"] = default
    if whole.get("key") is None:
        said = whole.get("environment")
        machine = machines.get(said, said) if isinstance(said, str) else _known(said)
        whole["key"] = digest_bytes(canonical_json({**whole, "key": None, "environment": machine}))
    return whole


def _known(machine: Any) -> Any:  # noqa: ANN401  # any value
    """What a machine says of itself: that a field is not known is the same as not naming it."""
    fields = encode(machine)
    if not isinstance(fields, dict):
        return fields
    return {name: value for name, value in fields.items() if value is not None}


def _plain(value: Any, path: str) -> Any:  # noqa: ANN401  # any value
    """A JSON value, or an error at its place: no number stands for what is not one."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{value} is not a finite number", where=path, hint="Leave the figure out.")
    if value is None or isinstance(value, str | int | float):
        return value
    if is_dataclass(value):
        return encode(value)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {str(name): _plain(item, f"{path}.{name}") for name, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy's and torch's numbers and arrays
        return _plain(value.tolist(), path)
    raise InvalidInput(
        f"{type(value).__name__} has no form in JSON",
        where=path,
        hint="Write numbers, text and lists of them.",
    )


def _batches(items: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Groups that a server takes, by count and by length."""
    batch: list[dict[str, Any]] = []
    length = 0
    for item in items:
        size = len(canonical_json(item))
        if batch and (len(batch) == BATCH or length + size > _MOST_BYTES):
            yield batch
            batch, length = [], 0
        batch.append(item)
        length += size
    if batch:
        yield batch


def _free(names: Mapping[str, Any]) -> str:
    """A name that nobody has taken."""
    return next(
        name for number in range(len(names) + 1) if (name := f"{_DEFAULT}{number or ''}") not in names
    )


def _sum(one: Reported, other: Reported) -> Reported:
    notes = tuple(islice(dict.fromkeys((*one.notes, *other.notes)), _MOST_NOTES))
    return Reported(one.accepted + other.accepted, one.duplicates + other.duplicates, notes)


def _moved(error: Pt2hubError, before: int) -> Pt2hubError:
    """An error whose places count from the first figure of all, not of its batch."""
    if not before:
        return error

    def moved(text: str) -> str:
        return _PLACE.sub(lambda match: f"measurements[{int(match[1]) + before}]", text)

    details: tuple[Detail, ...] = tuple(
        replace(item, path=moved(item.path), message=moved(item.message)) for item in error.details
    )
    hint = (
        f"{error.hint or ''} The {before} figures before were kept; send all again once it is mended.".strip()
    )
    return type(error)(
        moved(error.message),
        where=moved(error.where or ""),
        hint=hint,
        details=details,
        context=error.context,
    )
