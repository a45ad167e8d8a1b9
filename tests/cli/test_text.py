"""How numbers and tables look."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmcjob.cli.text import (
    Cell,
    Heading,
    align_facts,
    format_duration,
    format_energy,
    format_point,
    render_table,
)


@pytest.mark.parametrize(
    ("energy", "error", "text"),
    [
        (-1.174476, 0.000012, "-1.174476(12)"),
        (-1.1744761234, 0.00002949, "-1.174476(29)"),
        (-1.174476, 0.0000301, "-1.17448(3)"),
        (-2.903724, 0.0005, "-2.9037(5)"),
        (-2.903724, 0.00096, "-2.9037(10)"),  # not (1) of the digit before: that would be 0.001(0)
        (-2.903724, 0.0000999, "-2.90372(10)"),
        (-0.5, 0.0, "-0.500000(0)"),
        (-0.5, 1e-15, "-0.500000000000(1)"),  # never a smaller error than there is
        (-75.06, 0.5, "-75.1(5)"),
        (-75.06, 1.2, "-75.1(12)"),
        (-75.06, 12.0, "-75(12)"),
        (-75.06, 345.0, "-75(345)"),
        (0.00001, 0.001, "0.0000(10)"),
        (-1.174476, None, "-1.1745"),
        (-1.174476, math.nan, "-1.1745"),
        (None, None, ""),
        (None, 0.1, ""),
        (math.nan, 0.1, ""),
    ],
)
def test_the_error_is_written_in_units_of_the_last_digit(energy, error, text):
    assert format_energy(energy, error) == text


@given(energy=st.floats(-1e4, 1e4), error=st.floats(1e-9, 1e3))
def test_a_written_energy_reads_back_within_a_fraction_of_its_error(energy, error):
    """One digit from 3 on loses at most a sixth, two digits a twentieth; the energy, half a unit.

    Catches a decimal point that slipped, and rounding of 0.096 to a single digit.
    """
    digits, _, units = format_energy(energy, error).rstrip(")").partition("(")
    decimals = len(digits.partition(".")[2])
    assert int(units) / 10**decimals == pytest.approx(error, rel=1 / 6)
    assert float(digits) == pytest.approx(energy, abs=0.501 / 10**decimals)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (80, "1 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86400 * 3 + 3600 * 4 + 5, "3 d 4 h"),
        (-5, "0 s"),
        (None, ""),
        (math.inf, ""),
    ],
)
def test_a_duration_is_written_in_its_two_largest_units(seconds, text):
    assert format_duration(seconds) == text


def test_the_coordinates_of_a_sweep_are_written_as_in_the_spec():
    assert format_point({"R": 1.4, "optimizer.damping": 0.001}) == "R=1.4 optimizer.damping=0.001"
    assert format_point({}) == ""


COLUMNS = [
    Heading("run"),
    Heading("energy", "point", dispensable=1),
    Heading("steps", "right", dispensable=2),
    Heading("note", "note", dispensable=3),
]
ROWS = [
    [Cell("h2-01"), Cell("-1.17(2)"), Cell("5/10"), Cell("")],
    [Cell("benzene-02"), Cell("-230.1(5)"), Cell("100/100"), Cell("a long story, in short words")],
]


def table(width: int | None, rows: list[list[Cell]] = ROWS, is_coloured: bool = False) -> str:
    return render_table(COLUMNS, rows, width=width, is_coloured=is_coloured)


def test_columns_are_aligned_at_their_decimal_points():
    assert table(None).splitlines() == [
        "run         energy        steps  note",
        "h2-01         -1.17(2)     5/10",
        "benzene-02  -230.1(5)   100/100  a long story, in short words",
    ]


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (61, "benzene-02  -230.1(5)   100/100  a long story, in short words"),
        (51, "benzene-02  -230.1(5)   100/100  a long story, i..."),
        (45, "benzene-02  -230.1(5)   100/100  a long st..."),
        (44, "benzene-02  -230.1(5)   100/100"),
        (31, "benzene-02  -230.1(5)   100/100"),
        (30, "benzene-02  -230.1(5)"),
        (22, "benzene-02  -230.1(5)"),
        (21, "benzene-02"),
        (3, "benzene-02"),  # a name is never cut: nobody could type it
    ],
)
def test_on_a_narrow_terminal_the_least_important_columns_go_first(width, line):
    assert table(width).splitlines()[2] == line


@given(width=st.integers(10, 100))
def test_no_line_is_wider_than_the_terminal(width):
    assert max(map(len, table(width).splitlines())) <= width


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (28, "h2-01  51%  no space is left"),
        (27, "h2-01  no space is left"),
        (20, "h2-01  no space i..."),
        (18, "h2-01"),
    ],
)
def test_columns_of_less_worth_give_way_to_a_note(width, line):
    """The cause of a failure was cut after a dozen letters, beside an acceptance of 51%."""
    columns = [Heading("run"), Heading("is", dispensable=2), Heading("note", "note", 1)]
    cells = [Cell("h2-01"), Cell("51%"), Cell("no space is left")]
    shown = render_table(columns, [cells], width=width, is_coloured=False)
    assert shown.splitlines()[1] == line


def test_facts_go_on_in_their_column():
    """A long value began anew at the left edge, as if it were another fact."""
    facts = {"run": "h2", "to ask for": "nothing is known of it", "left": ""}
    assert align_facts(facts).splitlines() == [
        "run         h2",
        "to ask for  nothing is known of it",
    ]
    assert align_facts(facts, 25).splitlines()[1:] == [
        "to ask for  nothing is",
        "            known of it",
    ]


def test_columns_without_content_are_left_out():
    rows = [[Cell("h2-01"), Cell(""), Cell("5/10"), Cell("")]]
    assert table(None, rows).splitlines() == ["run    steps", "h2-01   5/10"]


def test_colours_do_not_move_the_columns():
    rows = [[Cell("h2-01", "green"), *ROWS[0][1:]], ROWS[1]]
    coloured = table(None, rows, is_coloured=True)
    assert "\x1b[32mh2-01     \x1b[0m" in coloured
    for code in ("\x1b[32m", "\x1b[2m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    stripped = [line.rstrip() for line in coloured.splitlines()]
    assert stripped == table(None, rows).splitlines()


@pytest.mark.parametrize("message", ["first\nsecond", "\n first\r\nsecond", "first\n\n"])
def test_a_cell_shows_its_first_line_only(message):
    """Messages of exceptions may have many."""
    rows = [[Cell("h2-01"), Cell(""), Cell(""), Cell(message)]]
    assert table(None, rows).splitlines()[1].rstrip("?") == "h2-01  first"


def test_a_cell_cannot_move_the_cursor():
    """A text in a spec or an exception may hold anything, escape sequences too."""
    rows = [[Cell("h2-01"), Cell(""), Cell("\t5"), Cell("\x1b[2Jgone\x07\x9b")]]
    assert table(None, rows).splitlines()[1] == "h2-01      5  ?[2Jgone??"


def test_a_table_without_rows_shows_its_titles():
    assert table(None, []).split() == ["run", "energy", "steps", "note"]
