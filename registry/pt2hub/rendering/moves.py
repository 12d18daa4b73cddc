"""Changes in words that say which way: `12.0 % slower`, `3.1 % smaller`; a percentage is never negative."""

from __future__ import annotations

import math

from pt2hub.domain.performance import METRICS

SAME = "no change"
_RATES = ("1/s", "/s")
_BYTES = frozenset(("B", "kB", "MB", "GB", "KiB", "MiB", "GiB"))
_TIMES = frozenset(("ns", "us", "ms", "s", "min", "h"))
_LARGE = 10.0
"""From here on a factor is read more easily than a percentage."""
_HUNDRED, _HUGE = 100, 1e6
_LEAST = 0.0005
"""Changes below it would read as 0.0 %."""


def moved(ratio: float, metric: str, unit: str) -> str:
    """A change of a figure: `12.0 % slower`, `no change`; from ten times on `12 times slower`.

    Percentages are of the figure before: from 10 ms to 15 ms is `50.0 % slower`, from 15 ms to 10 ms `33.3 % faster`.

    Args:
        ratio: After over before.
        metric: What was measured.
        unit: Its unit.
    """
    if not math.isfinite(ratio) or ratio <= 0:
        return "-"
    amount = _amount(ratio)
    return f"{amount} {way(ratio, metric, unit)}" if amount else SAME


def between(low: float, high: float, metric: str, unit: str) -> str:
    """Where a change lies: `9.8 to 14.9 %` on one side of no change, else `2.0 % faster to 4.0 % slower`.

    Args:
        low: The least ratio.
        high: The largest.
        metric: What was measured.
        unit: Its unit.
    """
    ends = sorted((low, high), key=lambda ratio: abs(ratio - 1))
    texts = [_amount(ratio) for ratio in ends]
    one_sided = (low >= 1) == (high >= 1)
    if one_sided and all(text.endswith(" %") for text in texts):
        return f"{texts[0].removesuffix(' %')} to {texts[1]}"
    return f"{moved(low, metric, unit)} to {moved(high, metric, unit)}"


def way(ratio: float, metric: str, unit: str) -> str:
    """The word for a change: what takes longer is `slower`, what holds more bytes `larger`."""
    up, down = _words(metric, unit)
    return up if ratio > 1 else down


def _words(metric: str, unit: str) -> tuple[str, str]:
    """More and less of a metric. Of what only its reporters know nobody has said whether longer means slower."""
    known = metric in METRICS
    if unit in _BYTES:
        return "larger", "smaller"
    if unit in _TIMES:
        return ("slower", "faster") if known else ("longer", "shorter")
    if unit.endswith(_RATES) and known:
        return "faster", "slower"
    return ("larger", "smaller") if metric == "relative_error" else ("higher", "lower")


def factor(ratio: float) -> str:
    """A large ratio, by three digits that count: `21.8`, `1,977`, `3.2e+09`."""
    if ratio >= _HUGE:
        return f"{ratio:.1e}"
    return f"{ratio:,.0f}" if ratio >= _HUNDRED else f"{ratio:.3g}"


def _amount(ratio: float) -> str:
    """How much: `12.0 %`, `12 times`; nothing where it is too little."""
    if abs(ratio - 1) < _LEAST:
        return ""
    if ratio >= _LARGE:
        return f"{factor(ratio)} times"
    return f"{abs(ratio - 1) * 100:.1f} %"
