"""Figures with their units in the words of people."""

from __future__ import annotations

import math

import pytest

from pt2hub.rendering.quantities import (
    fit_encoding,
    format_age,
    format_bounded,
    format_bytes,
    format_count,
    format_duration,
    format_share,
    percent,
    quantity,
    scale_for,
    sparkline,
)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (10.4218, "ms", "10.42 ms"),
        (0.25, "ms", "250 µs"),
        (0.0000004, "ms", "0.4 ns"),
        (1234.5, "ms", "1.234 s"),
        (0, "ms", "0 ms"),
        (46_830_848, "B", "44.66 MiB"),
        (999, "B", "999 B"),
        (1536, "B", "1.5 KiB"),
        (1023, "B", "1,023 B"),
        (3.5 * 2**40, "B", "3.5 TiB"),
        (1.15, "1", "1.15"),
        (1.2e-6, "1", "1.20e-06"),
        (12345.6, "1/s", "12,346 1/s"),
        (-0.5, "ms", "-500 µs"),
        (12, "us", "12 µs"),
        (1e300, "tokens", "1.000e+300 tokens"),
        (92.3, "s", "92.3 s"),
    ],
)
def test_a_figure_has_the_unit_that_fits_and_four_digits(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_a_column_has_the_unit_and_the_digits_of_its_largest_figure() -> None:
    scale = scale_for([0.9, 1.1, 0.05], "ms")
    assert [scale.text(value) for value in (0.9, 1.1, 0.05)] == ["0.900 ms", "1.100 ms", "0.050 ms"]
    assert scale.text(1e-7) == "1.00e-07 ms"
    assert scale_for([45 << 20, 44.7e6], "B").text(45 << 20) == "45.00 MiB"
    assert scale_for([3, 4], "tokens").text(4) == "4 tokens"
    assert scale_for([], "ms").text(0) == "0 ms"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.032, "+3.2 %"), (0.5, "-50.0 %"), (1.0, "0.0 %"), (0.99999, "0.0 %"), (25, "x 25"), (math.inf, "-")],
)
def test_a_ratio_is_a_change_in_percent(ratio: float, text: str) -> None:
    assert percent(ratio) == text


@pytest.mark.parametrize(
    ("seconds", "text", "age"),
    [
        (0, "0 s", "0 s"),
        (0.0004, "400 µs", "0 s"),
        (0.25, "250 ms", "0 s"),
        (4.25, "4.2 s", "4 s"),
        (59.94, "59.9 s", "60 s"),
        (64, "1 min 4 s", "1 min"),
        (7500.9, "2 h 5 min", "2 h"),
        (86400 * 3 + 3600 * 4, "3 d 4 h", "3 d"),
    ],
)
def test_a_duration_has_two_units_and_an_age_one(seconds: float, text: str, age: str) -> None:
    assert (format_duration(seconds), format_age(seconds)) == (text, age)


def test_shares_counts_and_hostile_sizes() -> None:
    assert [format_share(share) for share in (0.125, 0.05, 0.00123, 12.5)] == [
        "12.5 %",
        "5 %",
        "0.123 %",
        "1,250 %",
    ]
    assert (format_share(0.264, digits=2), format_share(0.5, decimals=1)) == ("26 %", "50.0 %")
    assert (format_count(1, "file"), format_count(1200, "file")) == ("1 file", "1,200 files")
    assert (format_bounded(7, 1000), format_bounded(1000, 1000)) == ("7", "1,000+")
    assert format_bytes(10**400).endswith("TiB")


def test_a_sparkline_spans_its_figures_but_makes_no_cliffs_of_noise() -> None:
    assert sparkline([1, 2, 3]) == "▁▅█"
    assert set(sparkline([100, 101, 102])) <= set("▁▂▃")
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == sparkline([math.nan]) == ""


def test_microseconds_are_spelled_out_where_an_output_has_no_sign_for_them() -> None:
    text = quantity(0.25, "ms")
    assert [
        fit_encoding(text, encoding) for encoding in ("utf-8", "UTF8", "ascii", "ANSI_X3.4-1968", None)
    ] == [
        "250 µs",
        "250 µs",
        "250 us",
        "250 us",
        "250 us",
    ]
