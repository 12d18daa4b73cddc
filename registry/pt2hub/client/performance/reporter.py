"""Reports of measurements taken elsewhere, sent in batches and safe to repeat."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from pt2hub.client.http.server_away import retry_request
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import canonical_json, digest_bytes
from pt2hub.errors import Conflict, Detail, InvalidInput, TransientError
from pt2hub.wire.performance import Reported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pt2hub.client.http.transport import Transport
    from pt2hub.domain.artifacts import Environment
    from pt2hub.errors import Pt2hubError

    Item = Mapping[str, Any]
    Machine = Environment | Mapping[str, Any]

BATCH = 1000
_MAX_BATCH_BYTES = 4 << 20
"""Half of the server's limit on a request."""
_DEFAULT = "default"
_MAX_NOTES = 20
_PLACE = re.compile(r"measurements\[(\d+)\]")


def report(
    transport: Transport,
    measurements: Iterable[Item],
    environment: Machine | None,
    environments: Mapping[str, Machine],
    on_batch: Callable[[Reported], object] | None,
) -> Reported:
    """Send measurements; see `Performance.report`."""
    if isinstance(measurements, Mapping):
        raise InvalidInput(
            "measurements must be a list, got a single measurement",
            where="measurements",
            hint="Pass a list: client.performance.report([measurement]); for a whole document, pass its "
            "`measurements`.",
        )
    machines = {name: _drop_unknown(machine) for name, machine in environments.items()}
    if environment is not None:
        machines[_free(machines)] = _drop_unknown(environment)
    default = None if environment is None else next(reversed(machines))
    prepared = (_prepare(index, item, default, machines) for index, item in enumerate(measurements))
    total, sent = Reported(0, 0), 0
    for batch in _batches(prepared):
        total = _sum(total, _send(transport, batch, machines, sent))
        sent += len(batch)
        if on_batch:
            on_batch(total)
    if not sent:
        raise InvalidInput("At least one measurement is required", where="measurements")
    return total


def _send(transport: Transport, batch: Sequence[Item], machines: Mapping[str, Any], before: int) -> Reported:
    """Send one batch, with retries, which keys make harmless."""
    named = {item.get("environment") for item in batch if isinstance(item.get("environment"), str)}
    used = {name: machine for name, machine in machines.items() if name in named}
    body = canonical_json({"measurements": batch, "environments": used})
    try:
        return retry_request(
            lambda: transport.ask(Reported, "POST", "/api/v1/measurements", body),
            transport.url,
            TransientError,
        )
    except (InvalidInput, Conflict) as exc:
        raise _shift_positions(exc, before) from exc


def _prepare(index: int, item: Item, default: str | None, machines: Mapping[str, Any]) -> dict[str, Any]:
    """Return a measurement as plain JSON, with an environment and a key."""
    path = f"measurements[{index}]"
    if not isinstance(item, dict) and not hasattr(item, "keys"):
        raise InvalidInput(
            "A measurement must be an object", where=path, hint="Write its fields: artifact, metric, value..."
        )
    whole = {str(name): to_plain(value, f"{path}.{name}") for name, value in dict(item).items()}
    if default is not None and whole.get("environment") is None:
        whole["environment"] = default
    if whole.get("key") is None:
        said = whole.get("environment")
        machine = machines.get(said, said) if isinstance(said, str) else _drop_unknown(said)
        whole["key"] = digest_bytes(canonical_json({**whole, "key": None, "environment": machine}))
    return whole


def _drop_unknown(machine: Any) -> Any:
    """Return an environment without unknown fields."""
    fields = encode(machine)
    if not isinstance(fields, dict):
        return fields
    return {name: value for name, value in fields.items() if value is not None}


def to_plain(value: Any, path: str) -> Any:
    """Return a value as plain JSON; refuse values such as NaN."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{value} is not a finite number", where=path, hint="Leave the measurement out.")
    if value is None or isinstance(value, str | int | float):
        return value
    if is_dataclass(value):
        return encode(value)
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {str(name): to_plain(item, f"{path}.{name}") for name, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy's and torch's numbers and arrays
        return to_plain(value.tolist(), path)
    raise InvalidInput(
        f"{type(value).__name__} cannot be encoded as JSON",
        where=path,
        hint="Write numbers, text and lists of them.",
    )


def _batches(items: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield batches within the server's limits on count and size."""
    batch: list[dict[str, Any]] = []
    length = 0
    for item in items:
        size = len(canonical_json(item))
        if batch and (len(batch) == BATCH or length + size > _MAX_BATCH_BYTES):
            yield batch
            batch, length = [], 0
        batch.append(item)
        length += size
    if batch:
        yield batch


def _free(names: Mapping[str, Any]) -> str:
    """Return an unused name."""
    return next(
        name for number in range(len(names) + 1) if (name := f"{_DEFAULT}{number or ''}") not in names
    )


def _sum(one: Reported, other: Reported) -> Reported:
    notes = tuple(islice(dict.fromkeys((*one.notes, *other.notes)), _MAX_NOTES))
    return Reported(one.accepted + other.accepted, one.duplicates + other.duplicates, notes)


def _shift_positions(error: Pt2hubError, before: int) -> Pt2hubError:
    """Return an error with indices that count from the first measurement, not from its batch."""
    if not before:
        return error

    def moved(text: str) -> str:
        return _PLACE.sub(lambda match: f"measurements[{int(match[1]) + before}]", text)

    details: tuple[Detail, ...] = tuple(
        replace(item, path=moved(item.path), message=moved(item.message)) for item in error.details
    )
    hint = f"{error.hint or ''} The first {before} measurements were stored; correct the error and send all of them again.".strip()
    return error.replace(
        message=moved(error.message), where=moved(error.where or ""), hint=hint, details=details
    )
