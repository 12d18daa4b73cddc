"""Figures with their units in the words of people."""

from __future__ import annotations

import math

import pytest

from pt2hub.rendering.quantities import percent, quantity, scale_for, sparkline, spelled


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (10.4218, "ms", "10.42 ms"),
        (0.25, "ms", "250 µs"),
        (0.0000004, "ms", "0.4 ns"),
        (1234.5, "ms", "1.234 s"),
        (0, "ms", "0 ms"),
        (44_700_000, "B", "44.7 MB"),
        (999, "B", "999 B"),
        (3.5e12, "B", "3.5 TB"),
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
    assert scale_for([45e6, 44.7e6], "B").text(45e6) == "45.00 MB"
    assert scale_for([3, 4], "tokens").text(4) == "4 tokens"
    assert scale_for([], "ms").text(0) == "0 ms"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.032, "+3.2 %"), (0.5, "-50.0 %"), (1.0, "0.0 %"), (0.99999, "0.0 %"), (25, "x 25"), (math.inf, "-")],
)
def test_a_ratio_is_a_change_in_percent(ratio: float, text: str) -> None:
    assert percent(ratio) == text


def test_a_sparkline_spans_its_figures_but_makes_no_cliffs_of_noise() -> None:
    assert sparkline([1, 2, 3]) == "▁▅█"
    assert set(sparkline([100, 101, 102])) <= set("▁▂▃")
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == sparkline([math.nan]) == ""


def test_microseconds_are_spelled_out_where_an_output_has_no_sign_for_them() -> None:
    text = quantity(0.25, "ms")
    assert [spelled(text, encoding) for encoding in ("utf-8", "UTF8", "ascii", "ANSI_X3.4-1968", None)] == [
        "250 µs",
        "250 µs",
        "250 us",
        "250 us",
        "250 us",
    ]
