"""Curves in one line of text."""

import math

from vmcjob.cli.sparkline import draw_sparkline


def test_a_curve_falls_from_left_to_right() -> None:
    """The lowest value has the lowest letter; up and down are not exchanged."""
    assert draw_sparkline([7, 6, 5, 4, 3, 2, 1, 0], 8) == "█▇▆▅▄▃▂▁"


def test_a_long_series_is_cut_into_parts_of_which_the_median_counts() -> None:
    """One outlier among four does not change the scale; a short series has fewer letters."""
    assert draw_sparkline([0, 0, 1e9, 0, 1, 1, 1, 1], 2) == "▁█"
    assert draw_sparkline([2.0], 40) == "▁"


def test_what_is_not_finite_is_blank() -> None:
    """NaN rows of a store are steps to come; they are no zeros."""
    assert draw_sparkline([math.nan, 1.0, 2.0], 3) == " ▁█"
    assert draw_sparkline([math.nan], 3) == ""
    assert draw_sparkline([], 3) == ""
